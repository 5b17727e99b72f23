package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Event is a descriptor on which the kernel tells that memory is moving. It is
// for an edge-triggered epoll, where nothing has to be read to hear of the next
// one, and it is a hint only: whoever is woken by it reads the numbers anew. Its
// methods are for one goroutine at a time.
type Event struct {
	fd     int
	mask   uint32
	path   string
	detail string
	reread bool // a read tells whether the file is still there
}

// Fd is the descriptor to poll; it is valid until Close.
func (e *Event) Fd() int { return e.fd }

// Mask is what to poll for, as epoll_ctl takes it.
func (e *Event) Mask() uint32 { return e.mask }

// Detail says in a few words what was asked for.
func (e *Event) Detail() string { return e.detail }

// Check finds out whether more events can come: ErrGone when the cgroup they
// come from was removed.
func (e *Event) Check() error {
	if !e.reread {
		return nil
	}
	var buf [smallFile]byte
	if _, err := readOnce(e.fd, buf[:]); err != nil {
		return goneOrBroken(e.path, err)
	}
	return nil
}

// Close ends the events.
func (e *Event) Close() error { return unix.Close(e.fd) }

// notOffered classifies an error from asking for events: what this kernel does
// not have, has turned off, or does not give to us is ErrAbsent. Nothing depends
// on events, so the lack of a permission is no failure either.
func notOffered(path string, err error) error {
	for _, absent := range []error{fs.ErrNotExist, fs.ErrPermission, unix.EROFS, unix.EOPNOTSUPP} {
		if errors.Is(err, absent) {
			return fmt.Errorf("%s: %w: %w", path, err, ErrAbsent)
		}
	}
	return broken(path, "", nil, err)
}
