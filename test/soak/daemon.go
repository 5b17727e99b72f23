package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a clean end may take: the drain of the proxy is 10 s.
const stopTimeout = 30 * time.Second

// daemon is one half of cri-evictd, over all its restarts.
type daemon struct {
	argv []string
	log  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func (d *daemon) name() string { return d.argv[1] }

func (d *daemon) start() error {
	f, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the child has its own
	cmd := exec.Command(d.argv[0], d.argv[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), "GOTRACEBACK=all") // for goroutines
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(done)
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cmd, d.done = cmd, done
	return nil
}

func (d *daemon) process() (*exec.Cmd, chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd, d.done
}

// pid is 0 when it does not run.
func (d *daemon) pid() int {
	cmd, done := d.process()
	if cmd == nil {
		return 0
	}
	select {
	case <-done:
		return 0
	default:
		return cmd.Process.Pid
	}
}

// crash ends it as kill -9 does. That it had ended by itself is an error.
func (d *daemon) crash() error {
	if d.pid() == 0 {
		return fmt.Errorf("%s had ended by itself:\n%s", d.name(), d.tail())
	}
	cmd, done := d.process()
	_ = cmd.Process.Kill()
	<-done
	return nil
}

// terminate ends it cleanly, which must work.
func (d *daemon) terminate() error {
	cmd, done := d.process()
	if cmd == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	default:
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(stopTimeout):
		_ = cmd.Process.Kill()
		<-done
		return fmt.Errorf("%s did not end within %v of SIGTERM", d.name(), stopTimeout)
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("%s after SIGTERM: %v\n%s", d.name(), cmd.ProcessState, d.tail())
	}
	return nil
}

// goroutines ends the process with SIGQUIT and counts what its dump shows.
func (d *daemon) goroutines() (int, error) {
	before, err := os.Stat(d.log)
	if err != nil {
		return 0, err
	}
	cmd, done := d.process()
	if d.pid() == 0 {
		return 0, errors.New(d.name() + " does not run")
	}
	_ = cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-done:
	case <-time.After(stopTimeout):
		_ = cmd.Process.Kill()
		<-done
		return 0, fmt.Errorf("%s did not end by SIGQUIT", d.name())
	}
	b, err := os.ReadFile(d.log)
	if err != nil {
		return 0, err
	}
	n := len(regexp.MustCompile(`(?m)^goroutine \d+ .*\[`).FindAll(b[before.Size():], -1))
	if n == 0 {
		return 0, fmt.Errorf("%s: no goroutines in its dump", d.name())
	}
	return n, nil
}

// faults are lines of the log that must not be there.
func (d *daemon) faults() error {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		for _, bad := range []string{"panic:", "panic caught", "DATA RACE", "fatal error:"} {
			if strings.Contains(line, bad) {
				return fmt.Errorf("%s logged: %s", d.name(), strings.TrimSpace(line))
			}
		}
	}
	return nil
}

func (d *daemon) tail() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

// footprint is what a process holds.
type footprint struct {
	descriptors, threads int
	anonKiB              int // RssAnon
}

func (d *daemon) footprint() (footprint, error) {
	var f footprint
	dir := fmt.Sprintf("/proc/%d", d.pid())
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return f, err
	}
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		return f, err
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return f, err
	}
	f.descriptors, f.threads = len(fds), len(tasks)
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &f.anonKiB); err == nil {
			break
		}
	}
	return f, nil
}
