package cgroupfs

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func startSleep(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may be dead already, as the test wants
		_ = cmd.Wait()
	})
	return cmd
}

// A number that the second listing does not have any more may be a stranger's
// by now.
func TestHuntSparesAStranger(t *testing.T) {
	cmd := startSleep(t)
	pid := cmd.Process.Pid
	h := newHunt(nil)
	h.one(pid, openPidfd(pid))
	if h.count != 0 || h.failed != nil || h.dealtWith(pid) {
		t.Errorf("count %d, %v, dealt with %v", h.count, h.failed, h.dealtWith(pid))
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("the stranger: %v", err)
	}
	for name, open := range map[string]func(int) int{"pidfd": openPidfd, "by number": func(int) int { return noFd }} {
		c := startSleep(t)
		fd := open(c.Process.Pid)
		h := newHunt(nil)
		h.again = []int{c.Process.Pid}
		h.one(c.Process.Pid, fd)
		if h.count != 1 || !h.dealtWith(c.Process.Pid) {
			t.Errorf("%s: count %d", name, h.count)
		}
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A process that has ended meanwhile is not a failure; one we may not signal
// is.
func TestHuntErrors(t *testing.T) {
	cmd := startSleep(t)
	pid := cmd.Process.Pid
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	h := newHunt(nil)
	h.again = []int{pid}
	h.one(pid, noFd)
	if h.count != 0 || h.failed != nil || !h.dealtWith(pid) {
		t.Errorf("ended: count %d, %v", h.count, h.failed)
	}
	const bad = 1 << 20 // no descriptor of ours
	h.again = []int{1 << 29}
	h.one(1<<29, bad)
	if h.count != 0 || !errors.Is(h.failed, unix.EBADF) {
		t.Errorf("impossible: count %d, %v", h.count, h.failed)
	}
	if err := h.result(ErrGone); !errors.Is(err, unix.EBADF) || !errors.Is(err, ErrGone) {
		t.Errorf("result: %v", err)
	}
	h.count, h.failed = 1, nil
	if err := h.result(ErrGone); err != nil {
		t.Errorf("gone after its processes were signalled: %v", err)
	}
}
