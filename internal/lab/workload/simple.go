package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// pause is the sandbox's process: it reaps what a shared PID namespace
// reparents to it, and ends when told to.
func pause(args []string, _, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "workload: pause: unexpected argument %q\n", args[0])
		return 2
	}
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range c {
		if s != syscall.SIGCHLD {
			return 0
		}
		reap()
	}
	return 0
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

// beat is the well-behaved neighbour: its output shows that it runs on.
func beat(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "workload: beat: unexpected argument %q\n", args[0])
		return 2
	}
	end := endSignals(false)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for n := 1; ; n++ {
		fmt.Fprintf(stdout, "beat %d %s\n", n, time.Now().UTC().Format(time.RFC3339Nano))
		select {
		case <-end:
			return 0
		case <-ticker.C:
		}
	}
}

// ignoreTerm can only be killed.
func ignoreTerm(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "workload: ignore-term: unexpected argument %q\n", args[0])
		return 2
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	fmt.Fprintln(stdout, "ignore-term: running")
	for s := range c {
		fmt.Fprintf(stdout, "ignore-term: %v ignored\n", s)
	}
	return 0
}

// exit0 ends cleanly when told to.
func exit0(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "workload: exit0: unexpected argument %q\n", args[0])
		return 2
	}
	fmt.Fprintln(stdout, "exit0: running")
	<-endSignals(false)
	return 0
}
