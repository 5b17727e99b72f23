package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/systemd"
)

// A program that hangs at its start, before or after it has had the evictor make
// room, is ended, and the old process goes on.
func TestUpgradeToAProgramThatHangs(t *testing.T) {
	for name, says := range map[string]string{"at once": "", "half way": "echo prepared >&3\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program, pidFile := filepath.Join(dir, "program"), filepath.Join(dir, "pid")
			text := "#!/bin/sh\ntrap '' TERM\necho $$ >" + pidFile + "\n" + says + "exec sleep 600\n"
			if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			log := logrus.New()
			log.SetOutput(io.Discard)
			p := &process{manager: systemd.NewManager(log)}
			h := newHandOver(p, log)
			h.self = func() (string, []string, error) { return program, nil, nil }
			h.comeUp = 3 * time.Second // a shell's start takes less
			h.leave = func() { t.Error("the old process ends") }
			var evicts atomic.Int64
			begins := make(chan struct{}, 10)
			h.evict = newPausable(func(ctx context.Context) error {
				evicts.Add(1)
				begins <- struct{}{}
				<-ctx.Done()
				evicts.Add(-1)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- h.evict.run(ctx) }()
			<-begins
			_, finish, err := h.upgrade(t.Context())
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not get as far") || finish != nil {
				t.Errorf("finish %t, error %v", finish != nil, err)
			}
			b, err := os.ReadFile(pidFile)
			pid, convErr := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil || convErr != nil {
				t.Fatalf("the program did not begin: %v, %v", err, convErr)
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the program that hung is there: %v", err)
			}
			if says != "" {
				select { // the evictor made room, and is back
				case <-begins:
				case <-time.After(20 * time.Second):
				}
			}
			if evicts.Load() != 1 {
				t.Error("nothing is evicted any more")
			}
			if !h.busy.TryLock() || h.done {
				t.Error("no further upgrade is possible")
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
