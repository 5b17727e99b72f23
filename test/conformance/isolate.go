package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate runs this program again, with network, IPC and mounts of its own, and
// returns its exit code. Bridges, iptables rules, host ports, the shared memory
// critest leaves behind and every mount end with the last process in there,
// however it ends. The host's /sys stays, which `ip netns exec` would hide
// together with the cgroups.
func isolate(args []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	// Whoever is told to stop, the one inside cleans up; we wait.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	// Pdeathsig goes by thread: this one must live as long as we do.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWNS,
		Setpgid:      true, // else Ctrl-C would come twice
		Pdeathsig:    syscall.SIGTERM,
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("namespaces of our own: %w", err)
	}
	ended := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		for {
			select {
			case <-ended:
				return
			case s := <-signals:
				_ = cmd.Process.Signal(s) // it may just have ended
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	<-forwarded
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("the run in its namespaces: %w", err)
	}
	return 0, nil
}

// settle prepares the namespaces from the inside.
func settle() error {
	// Specs on mount propagation need what a booted machine has: shared mounts.
	// exec has made them private, so that nothing goes out.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was sent
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	return nil
}
