package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

// testWatcher keeps what the steps print in files, and prints the result of each
// and all of what failed.
type testWatcher struct {
	machine string
	steps   []testStep
	logs    string
	out     io.Writer
	failed  int

	step int
	log  *os.File
	buf  bytes.Buffer // of the running step
	err  error        // the first one about the log files
}

func (w *testWatcher) begin(step int) {
	w.step = step
	w.buf.Reset()
	fmt.Fprintf(w.out, "vm: begin %s: %s\n", w.machine, w.steps[step].name)
	w.note(os.MkdirAll(w.logs, 0o755))
	var err error
	w.log, err = os.Create(filepath.Join(w.logs, fileName(w.steps[step].name)+".log"))
	w.note(err)
}

func (w *testWatcher) output(b []byte) {
	w.buf.Write(b)
	if w.log != nil {
		_, err := w.log.Write(b)
		w.note(err)
	}
}

func (w *testWatcher) ended(e protocol.Ended) {
	w.closeLog()
	s := w.steps[w.step]
	r := readResults(w.buf.String())
	problems := r.problems(s.skips)
	if e.TimedOut {
		problems = append(problems, "did not end within its time")
	}
	if e.Code != 0 {
		problems = append(problems, fmt.Sprintf("exit code %d", e.Code))
	}
	verdict := "ok"
	if len(problems) > 0 {
		verdict = "FAIL"
		w.failed++
		fmt.Fprint(w.out, r.failures)
	}
	fmt.Fprintf(w.out, "vm: %-4s %s: %s: %d tests passed, %d skipped, %.0f s (of the guest)\n", verdict, w.machine, s.name, r.passed, len(r.skipped), e.Seconds)
	for _, a := range s.skips {
		if n := r.skippedBy(a); n > 0 {
			fmt.Fprintf(w.out, "vm:      %d may be skipped: %s: %s\n", n, a.test, a.reason)
		}
	}
	for _, p := range problems {
		fmt.Fprintf(w.out, "vm:      %s\n", p)
	}
}

// close ends the log of a step the machine did not survive.
func (w *testWatcher) close() error {
	w.closeLog()
	return w.err
}

func (w *testWatcher) closeLog() {
	if w.log != nil {
		w.note(w.log.Close())
		w.log = nil
	}
}

func (w *testWatcher) note(err error) {
	if w.err == nil {
		w.err = err
	}
}

// lines lets several machines write whole messages to one output.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// fileName makes a step's name into a file's.
func fileName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, ", ", "-"), " ", "-")
}

// moduleRoot is the folder of this module's go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if filepath.Base(file) != "go.mod" {
		return "", errors.New("must be run within the module")
	}
	return filepath.Dir(file), nil
}
