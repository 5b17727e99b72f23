package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// pause holds a sandbox's namespaces: it reaps what is given to it and ends
// when told to.
func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

// pgrep prints the ids of the processes with this name, as `pgrep NAME` does;
// Debian's busybox is built without it.
func pgrep(args []string) {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: pgrep NAME")
		os.Exit(2)
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	found := false
	for _, path := range names {
		comm, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() || !strings.Contains(string(comm), args[0]) {
			continue
		}
		fmt.Println(pid)
		found = true
	}
	if !found {
		os.Exit(1)
	}
}

// ipcs prints the kernel's own table of shared memory segments, which has the
// ids in it that a spec looks for.
func ipcs() {
	f, err := os.Open("/proc/sysvipc/shm")
	if err == nil {
		_, err = io.Copy(os.Stdout, f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
