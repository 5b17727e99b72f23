package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

// runStep runs one command and reports it. An error means that the host cannot
// be told any more.
func runStep(out *sender, i int, step protocol.Step) (protocol.Ended, error) {
	if err := out.send(protocol.Message{Begin: &protocol.Begin{Step: i}}); err != nil {
		return protocol.Ended{}, err
	}
	start := time.Now()
	ended := protocol.Ended{Step: i}
	ended.Code, ended.TimedOut = execute(out, step)
	ended.Seconds = time.Since(start).Seconds()
	return ended, out.send(protocol.Message{Ended: &ended})
}

// execute returns the exit code as a shell would, and whether time ran out.
func execute(out *sender, step protocol.Step) (code int, timedOut bool) {
	if len(step.Args) == 0 {
		fmt.Fprintln(out, "agent: a step without a command")
		return 127, false
	}
	// The agent itself is never the kernel's OOM victim; a step may be.
	args := append([]string{"-n", "0", "--"}, step.Args...)
	cmd := exec.Command("choom", args...)
	cmd.Env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
	}, step.Env...)
	cmd.Dir = step.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/root"
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What a step leaves running keeps its output open: that is no reason to
	// wait for it.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(out, "agent: %v\n", err)
		return 127, false
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	limit := time.NewTimer(step.Timeout)
	defer limit.Stop()
	var err error
	select {
	case err = <-done:
	case <-limit.C:
		timedOut = true
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its group; gone is fine
		err = <-done
	}
	return exitCode(cmd.ProcessState, err), timedOut
}

func exitCode(state *os.ProcessState, err error) int {
	if state == nil || err != nil && !isExit(err) && !errors.Is(err, exec.ErrWaitDelay) {
		return 127
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

func isExit(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}
