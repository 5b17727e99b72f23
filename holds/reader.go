package holds

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Reader looks pods up in a holds file. Any number of readers, in any number of
// processes, may read while the one writer writes. All methods can be called
// from any goroutine.
//
// A Reader never reports an error for a lookup: no file, a file that is none, a
// damaged record mean "no hold", since the proxy must let calls through then.
// Problem tells afterwards.
type Reader struct {
	path    string
	file    atomic.Pointer[readerFile]
	known   atomic.Pointer[snapshot]
	problem atomic.Pointer[problem]
	closed  atomic.Bool

	conditionsProblem atomic.Pointer[problem]

	empty snapshot // never changed
}

// problem is boxed because an atomic pointer needs one concrete type.
type problem struct{ err error }

// readerFile is one open holds file. As long as it is open its inode number
// cannot go to another file.
type readerFile struct {
	f        *os.File
	dev, ino uint64
	private  bool // one lookup's own
}

// OpenReader returns a reader for the holds file in dir. The file need not
// exist, and may be removed and replaced at any time.
func OpenReader(dir string) *Reader {
	return &Reader{path: filepath.Join(dir, FileName)}
}

// Lookup returns all records of a pod UID, newest first, the released ones
// included.
func (r *Reader) Lookup(uid string) []Record {
	s := r.current()
	return slices.Clone(s.byUID[uid])
}

// Held returns the newest record that keeps this pod UID down.
func (r *Reader) Held(uid string) (Record, bool) {
	return firstHold(r.current().byUID[uid])
}

// HeldSandbox returns the newest record that keeps the pod of this sandbox
// down.
func (r *Reader) HeldSandbox(sandboxID string) (Record, bool) {
	return firstHold(r.current().bySandbox[sandboxID])
}

func firstHold(records []Record) (Record, bool) {
	for i := range records {
		if records[i].Holds() {
			return records[i], true
		}
	}
	return Record{}, false
}

// All returns all records, newest first.
func (r *Reader) All() []Record { return slices.Clone(r.current().records) }

// Problem returns what was wrong with the file at the last lookup: nil when it
// was whole or is not there. The error wraps ErrBadHeader or ErrBadRecord, or is
// that of the system call.
func (r *Reader) Problem() error {
	if p := r.problem.Load(); p != nil {
		return p.err
	}
	return nil
}

// Close closes the file. Lookups find nothing afterwards.
func (r *Reader) Close() error {
	r.closed.Store(true)
	if f := r.file.Swap(nil); f != nil {
		return f.f.Close()
	}
	return nil
}

// report sets or clears the problem.
func (r *Reader) report(err error) {
	if err != nil {
		r.problem.Store(&problem{err: err})
	} else if r.problem.Load() != nil {
		r.problem.Store(nil)
	}
}

// nothing reports a problem, nil for none, with an empty snapshot.
func (r *Reader) nothing(err error) *snapshot {
	r.report(err)
	return &r.empty
}

// current returns the file's content: the known one if file, size, times and
// generation are as they were, else a new one.
func (r *Reader) current() *snapshot {
	// Only a file that is replaced again and again needs more than one try, and
	// then the last one does not share its descriptor.
	const tries = 4
	for try := range tries {
		if r.closed.Load() {
			return &r.empty
		}
		var st unix.Stat_t
		if err := statRetry(r.path, &st); err != nil {
			return r.nothing(r.missing(err))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return r.nothing(fmt.Errorf("%s: %w: not a regular file", r.path, ErrBadHeader))
		}
		f, err := r.open(&st, try == tries-1)
		if err != nil {
			return r.nothing(r.missing(err))
		}
		if f == nil {
			continue
		}
		s, err := r.read(f, &st)
		if f.private {
			_ = f.f.Close() // read only: nothing can be lost
		}
		if errors.Is(err, os.ErrClosed) {
			continue // another lookup saw a newer file
		}
		if err != nil {
			return r.nothing(fmt.Errorf("%s: %w", r.path, err))
		}
		r.report(s.problem)
		return s
	}
	return r.nothing(nil) // closed meanwhile
}

// missing is nil when the file is not there, which is no problem.
func (r *Reader) missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("opening %s: %w", r.path, err)
}

// statRetry is lstat that goes on after a signal.
func statRetry(path string, st *unix.Stat_t) error {
	for {
		if err := unix.Lstat(path, st); err != unix.EINTR {
			return err
		}
	}
}

// open returns the open file st is of, opening it when it is not the one at
// hand. It returns nil when the path or the file at hand changed meanwhile, but
// never for a private file: that is what stands there now, for this caller to
// close, and st becomes its own.
func (r *Reader) open(st *unix.Stat_t, private bool) (*readerFile, error) {
	old := r.file.Load()
	if !private && old != nil && old.dev == uint64(st.Dev) && old.ino == st.Ino {
		return old, nil
	}
	// A fifo put there since the stat must not block.
	f, err := os.OpenFile(r.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	was := *st
	if err := unix.Fstat(int(f.Fd()), st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	opened := &readerFile{f: f, dev: uint64(st.Dev), ino: st.Ino, private: private}
	if private {
		return opened, nil
	}
	if was.Ino != st.Ino || was.Dev != st.Dev || !r.file.CompareAndSwap(old, opened) {
		return nil, f.Close()
	}
	if old != nil {
		_ = old.f.Close() // read only: nothing can be lost
	}
	if r.closed.Load() && r.file.CompareAndSwap(opened, nil) {
		return nil, f.Close()
	}
	return opened, nil
}
