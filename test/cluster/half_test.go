package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// half is one of cri-evictd's two processes, over all its starts. It is for one
// goroutine.
type half struct {
	name    string // proxy or evict
	binary  string
	config  string // file
	logFile string

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd was reaped
}

func (h *half) start() error {
	f, err := os.OpenFile(h.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the child has its own
	cmd := exec.Command(h.binary, h.name, "--config", h.config)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is for ended to judge
	}()
	h.cmd, h.done = cmd, done
	return nil
}

func (h *half) running() bool {
	if h.cmd == nil {
		return false
	}
	select {
	case <-h.done:
		return false
	default:
		return true
	}
}

// kill ends the process as a crash would.
func (h *half) kill() error {
	if !h.running() {
		return fmt.Errorf("%s had ended by itself:\n%s", h.name, h.tail())
	}
	_ = h.cmd.Process.Signal(syscall.SIGKILL)
	<-h.done
	return nil
}

// stop ends the process cleanly, which it must do. It is no error if it does not
// run.
func (h *half) stop() error {
	if !h.running() {
		return nil
	}
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-h.done:
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s did not end within a minute of SIGTERM", h.name), h.kill())
	}
}

// faults says what its log should not have.
func (h *half) faults() error {
	b, err := os.ReadFile(h.logFile)
	if err != nil {
		return err
	}
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if i := bytes.Index(b, []byte(bad)); i >= 0 {
			return fmt.Errorf("%s: %s", h.name, b[i:min(len(b), i+3000)])
		}
	}
	return nil
}

func (h *half) tail() string {
	b, err := os.ReadFile(h.logFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}
