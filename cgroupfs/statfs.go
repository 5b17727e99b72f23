package cgroupfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Filesystem is what statfs says of the file system that holds a path.
type Filesystem struct {
	// Device is st_dev of the path: what tells one file system from another.
	Device uint64
	// Type is f_type, the file system's magic number.
	Type int64
	// Capacity, Free and Available are bytes; Available is what is left for
	// everybody but root (f_bavail).
	Capacity, Free, Available uint64
	// Inodes and InodesFree are f_files and f_ffree. Inodes is 0 where the file
	// system has no table of them (btrfs).
	Inodes, InodesFree uint64
	// At is when it was read.
	At time.Time
}

// ErrHangs says that the file system does not answer. It is asked again once the
// call that hangs has come back.
var ErrHangs = errors.New("the file system does not answer")

// Statfs reads the file system that holds path. It may hang as long as the file
// system does. Its errors are a *fs.PathError.
func Statfs(path string) (Filesystem, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Stat(path, &st) }); err != nil {
		return Filesystem{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	var s unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(path, &s) }); err != nil {
		return Filesystem{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return filesystem(uint64(st.Dev), &s), nil
}

// filesystem converts statfs as cAdvisor does for kubelet (google/cadvisor
// v0.60, fs/fs.go getVfsStats): blocks of f_frsize bytes.
func filesystem(device uint64, s *unix.Statfs_t) Filesystem {
	size := uint64(max(s.Frsize, 0))
	if size == 0 {
		size = uint64(max(s.Bsize, 0)) // kernels before 2.6 and some FUSE file systems
	}
	return Filesystem{
		Device: device, Type: int64(s.Type),
		Capacity: satMul(s.Blocks, size), Free: satMul(s.Bfree, size), Available: satMul(s.Bavail, size),
		Inodes: s.Files, InodesFree: s.Ffree,
	}
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// StatfsReader reads file systems with a time limit each. A call that hangs in
// the kernel cannot be ended; it keeps one goroutine per path at most, which ends
// when the kernel lets go of it. Its methods may be called at the same time.
type StatfsReader struct {
	limit  time.Duration
	clock  func() time.Time
	statfs func(path string) (Filesystem, error) // Statfs; tests have others

	mu    sync.Mutex
	calls map[string]*statfsCall
}

// statfsCall is one that is under way. fs and err are set once done is closed.
type statfsCall struct {
	began time.Time
	done  chan struct{}
	fs    Filesystem
	err   error
}

// NewStatfsReader returns a reader that waits for limit at most.
func NewStatfsReader(limit time.Duration, clock func() time.Time) *StatfsReader {
	return &StatfsReader{limit: limit, clock: clock, statfs: Statfs, calls: map[string]*statfsCall{}}
}

// Read is Statfs, with ErrHangs when that takes longer than the limit. Who asks
// for a path that is being read has the same answer: the limit counts from the
// first.
func (r *StatfsReader) Read(ctx context.Context, path string) (Filesystem, error) {
	call := r.call(path)
	timer := time.NewTimer(r.limit - r.clock().Sub(call.began))
	defer timer.Stop()
	select {
	case <-call.done:
		return call.fs, call.err
	case <-ctx.Done():
		return Filesystem{}, ctx.Err()
	case <-timer.C:
		return Filesystem{}, fmt.Errorf("%s: %w for %s", path, ErrHangs, r.limit)
	}
}

// call is the one under way for the path, begun if there is none.
func (r *StatfsReader) call(path string) *statfsCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[path]; c != nil {
		return c
	}
	c := &statfsCall{began: r.clock(), done: make(chan struct{})}
	r.calls[path] = c
	go func() {
		c.fs, c.err = r.statfs(path)
		c.fs.At = r.clock()
		r.mu.Lock()
		delete(r.calls, path)
		r.mu.Unlock()
		close(c.done)
	}()
	return c
}
