// Package cluster holds the tests of cri-evictd beside a real kubelet and a real
// API server: what Kubernetes shows of an eviction, and what kubelet makes of it.
// kubelet's runtime endpoint is the proxy's socket, the evictor has kubelet's
// kubeconfig. Pressure is made by thresholds far above what is in use.
package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const (
	mi       = 1 << 20
	nodeName = "n1"
)

// built is the binary under test, made once per run, with the race detector.
type built struct {
	dir  string
	once sync.Once
	path string
	err  error
}

var binary = &built{}

func TestMain(m *testing.M) {
	dir, remove, err := lab.NewScratch()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary.dir = dir
	code := m.Run()
	remove()
	os.Exit(code)
}

func (b *built) make(t *testing.T) string {
	t.Helper()
	b.once.Do(func() {
		b.path = filepath.Join(b.dir, "cri-evictd")
		cmd := exec.Command("go", "build", "-race", "-o", b.path, "github.com/cri-evictd/cri-evictd/cmd/cri-evictd")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("building cri-evictd: %w\n%s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

// soak is how long pods come and go in `make soak`, which also runs the whole
// matrix; zero in CI, which runs one case per behaviour.
func soak(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("CRI_EVICTD_SOAK")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CRI_EVICTD_SOAK: %v", err)
	}
	return d
}

// times is how often a case is run: once in CI, n times in `make soak`.
func times(t *testing.T, n int) int {
	t.Helper()
	if soak(t) == 0 {
		return 1
	}
	return n
}

// eventually waits until ok returns nil, with a deadline that a loaded machine can
// hold.
func eventually(t *testing.T, what string, within time.Duration, ok func() error) {
	t.Helper()
	if err := await(within, ok); err != nil {
		t.Fatalf("%s: not within %v: %v", what, within, err)
	}
}

// await is eventually without a test: it returns the last error.
func await(within time.Duration, ok func() error) error {
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		err := ok()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// testWriter writes lines to the test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil { // after the end of the test Log panics
		w.t.Log(strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}
