package cgroupfs

import (
	"errors"
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noFd marks a descriptor that could not be had.
const noFd = -1

// guard keeps descriptors from being closed while somebody uses them. A closed
// number is handed out again by the kernel at once; a kill written to it would
// hit another pod. It is an atomic counter, so that the fast half waits for
// nobody.
type guard struct{ n atomic.Int64 }

const guardClosed = int64(1) << 62

// acquire reports whether the descriptors may be used until release.
func (g *guard) acquire() bool {
	for {
		v := g.n.Load()
		if v&guardClosed != 0 {
			return false
		}
		if g.n.CompareAndSwap(v, v+1) {
			return true
		}
	}
}

// release reports whether the caller is the last user after shut and has to
// close the descriptors now.
func (g *guard) release() bool { return g.n.Add(-1) == guardClosed }

// shut ends new use. last tells that nobody is using the descriptors, so the
// caller closes them now; otherwise the last release does.
func (g *guard) shut() (last bool, err error) {
	for {
		v := g.n.Load()
		if v&guardClosed != 0 {
			return false, fs.ErrClosed
		}
		if g.n.CompareAndSwap(v, v|guardClosed) {
			return v == 0, nil
		}
	}
}

// scratch is a small buffer for readings that must not allocate. A buffer on
// the stack is one only as long as the compiler can see that the system call
// lets go of it, which it cannot in a build with the race detector. Whoever
// comes while it is taken gets a fresh one.
type scratch struct {
	free atomic.Pointer[[smallFile]byte]
}

func newScratch() *scratch {
	s := new(scratch)
	s.give(new([smallFile]byte))
	return s
}

func (s *scratch) take() *[smallFile]byte {
	if b := s.free.Swap(nil); b != nil {
		return b
	}
	return new([smallFile]byte)
}

func (s *scratch) give(b *[smallFile]byte) { s.free.Store(b) }

// descriptor is one kept-open file.
type descriptor struct {
	guard
	path string
	fd   int
}

func openDescriptor(path string) (*descriptor, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &descriptor{path: path, fd: fd}, nil
}

// read fills buf from the start of the file and returns the part that was
// filled. It does not allocate unless it fails.
func (d *descriptor) read(buf []byte) ([]byte, error) {
	if !d.acquire() {
		return nil, &fs.PathError{Op: "read", Path: d.path, Err: fs.ErrClosed}
	}
	b, err := readWhole(d.fd, buf)
	if d.release() {
		_ = unix.Close(d.fd) // closed for reading; nothing can be lost
	}
	if err != nil {
		return nil, broken(d.path, "", nil, err)
	}
	return b, nil
}

func (d *descriptor) close() error {
	last, err := d.shut()
	if err != nil {
		return &fs.PathError{Op: "close", Path: d.path, Err: err}
	}
	if !last {
		return nil
	}
	return unix.Close(d.fd)
}

// readWhole reads a whole file from its start. It goes on until the end is
// seen: a /proc file made of many records answers one page at a time.
func readWhole(fd int, buf []byte) ([]byte, error) {
	n := 0
	for n < len(buf) {
		m, err := unix.Pread(fd, buf[n:], int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m == 0 {
			return buf[:n], nil
		}
		n += m
	}
	return nil, errTooLong
}

// readOnce reads a one-value file with a single system call.
func readOnce(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n, err
	}
}

// openAt opens with close-on-exec and without being stopped by a signal.
func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return fd, err
	}
}

// readFileAt reads a small file below an open directory into buf.
func readFileAt(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	b, err := readWhole(fd, buf)
	_ = unix.Close(fd) // read only; nothing can be lost
	return b, err
}

// writeAll writes a short command to an open kernel file.
func writeAll(fd int, text []byte) error {
	for {
		_, err := unix.Pwrite(fd, text, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err
	}
}
