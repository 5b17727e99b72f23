package cgroupfs

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// huntBatch bounds the pidfds that are open at a time.
const huntBatch = 64

// hunt is the state of killing a subtree process by process.
type hunt struct {
	done   map[int]struct{} // skipped, signalled, or impossible to signal
	list   []int
	again  []int
	count  int   // processes signalled
	failed error // the first signal that could not be sent
}

func newHunt(skip []int) *hunt {
	h := &hunt{done: make(map[int]struct{}, len(skip)+huntBatch)}
	for _, pid := range skip {
		h.done[pid] = struct{}{}
	}
	return h
}

func (h *hunt) dealtWith(pid int) bool {
	_, ok := h.done[pid]
	return ok
}

// result joins how the hunt ended with what could not be signalled. A cgroup
// that vanishes after its processes were signalled is what was wanted.
func (h *hunt) result(err error) error {
	if h.count > 0 && errors.Is(err, ErrGone) {
		err = nil
	}
	return errors.Join(err, h.failed)
}

// signal kills each process of a listing that was not dealt with before.
//
// The number of a process may be given to a stranger between the listing and
// the opening of its pidfd. So the pidfds come first and a second listing
// decides: a number that is still in it belongs to the process the pidfd
// holds, or that process has ended and the signal goes nowhere.
func (h *hunt) signal(p *PodCgroup) (fresh int, err error) {
	if h.list, err = p.pids(h.list[:0]); err != nil {
		return 0, err
	}
	h.list = slices.DeleteFunc(h.list, h.dealtWith)
	for batch := range slices.Chunk(h.list, huntBatch) {
		var fds [huntBatch]int
		for i, pid := range batch {
			fds[i] = openPidfd(pid)
		}
		h.again, err = p.pids(h.again[:0])
		slices.Sort(h.again)
		for i, pid := range batch {
			h.one(pid, fds[i])
			fresh++
		}
		if err != nil {
			return fresh, err
		}
	}
	return fresh, nil
}

// one signals a process if the second listing has it, and closes its pidfd.
func (h *hunt) one(pid, fd int) {
	if _, still := slices.BinarySearch(h.again, pid); still {
		err := sendKill(pid, fd)
		switch {
		case err == nil:
			h.count++
		case errors.Is(err, unix.ESRCH):
		case h.failed == nil:
			h.failed = fmt.Errorf("kill process %d: %w", pid, err)
		}
		h.done[pid] = struct{}{}
	}
	if fd >= 0 {
		_ = unix.Close(fd) // holds nothing that could be lost
	}
}

// openPidfd gives noFd where there is no pidfd to be had (kernels before 5.3,
// too many open files); the process is then killed by number.
func openPidfd(pid int) int {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return noFd
	}
	return fd
}

func sendKill(pid, fd int) error {
	if fd == noFd {
		return unix.Kill(pid, unix.SIGKILL)
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}
