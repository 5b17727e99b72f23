package eviction

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// wakeSource numbers what can end the sampler's wait.
type wakeSource int32

const (
	wakeUsage    wakeSource = iota // the node's usage passed a value (v1)
	wakePressure                   // tasks stall on memory (PSI)
	wakePods                       // memory.events of the pods' cgroup (v2)
	wakeSources                    // how many there are

	wakeOwn wakeSource = -1 // wake was called
)

// leastWait is how long a wait lasts at least, whatever the kernel says: a
// source that floods must not keep the real-time thread busy. It is the period
// of the alarm, so that nothing is seen later than an alarm would see it.
const leastWait = periodAlarm

// waker is how the sampler waits. The fast half waits; the slow half adds and
// removes sources meanwhile: the kernel keeps the set, so that no lock is shared
// and a closed descriptor leaves by itself.
type waker struct {
	epoll int
	own   int // eventfd of wake
	woken [wakeSources]atomic.Uint64
	// failed: the kernel reported an error on it.
	failed [wakeSources]atomic.Bool
	events [wakeSources + 1]unix.EpollEvent // the fast half's own
}

func newWaker() (*waker, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	w := &waker{epoll: epoll}
	if w.own, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(epoll) // nothing is in it
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	// Level-triggered: a wake during a tick must not be lost.
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wakeOwn)}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, w.own, &ev); err != nil {
		w.close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return w, nil
}

func (w *waker) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(w.own, one[:]) // a full counter has been noticed already
}

func (w *waker) close() {
	_ = unix.Close(w.own) // both hold nothing that could be lost
	_ = unix.Close(w.epoll)
}

// add lets a descriptor end waits from now on, until it is closed or removed.
// Edge-triggered: nobody has to read from it to hear of the next event, so the
// fast half never touches it.
func (w *waker) add(s wakeSource, fd int, mask uint32) error {
	w.failed[s].Store(false)
	ev := unix.EpollEvent{Events: mask | unix.EPOLLET, Fd: int32(s)}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// remove takes a descriptor out before it is closed.
func (w *waker) remove(fd int) {
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil) // its close does it too
}

// wait sleeps for d, or until wake is called or a source has an event, but at
// least leastWait in the latter case. It is a plain wait in the kernel, not a Go
// timer, which would need another, ordinary thread to fire.
func (w *waker) wait(d time.Duration) {
	began := time.Now()
	n, err := unix.EpollWait(w.epoll, w.events[:], max(1, int(d.Milliseconds())))
	if err != nil && !errors.Is(err, unix.EINTR) {
		w.pause(d) // cannot be; sampling goes on all the same
		return
	}
	for i := range max(0, n) {
		s := wakeSource(w.events[i].Fd)
		if s == wakeOwn {
			w.clear()
			return
		}
		w.woken[s].Add(1)
		if w.events[i].Events&unix.EPOLLERR != 0 {
			w.failed[s].Store(true)
		}
	}
	if rest := min(d, leastWait) - time.Since(began); rest > 0 {
		w.pause(rest)
	}
}

// pause sleeps for d or until wake is called, deaf to the sources.
func (w *waker) pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	fds := [1]unix.PollFd{{Fd: int32(w.own), Events: unix.POLLIN}}
	if n, err := unix.Ppoll(fds[:], &ts, nil); err == nil && n > 0 {
		w.clear()
	}
}

// clear takes back what wake wrote.
func (w *waker) clear() {
	var b [8]byte
	_, _ = unix.Read(w.own, b[:]) // empty already: nothing to take back
}
