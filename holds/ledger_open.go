package holds

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// errDamaged says that the ledger's file cannot be relied on.
var errDamaged = errors.New("damaged ledger")

// ledgerLockWait is how long opening waits for a process that is just ending.
const ledgerLockWait = time.Second

// database is one open file of the ledger.
type database struct {
	bolt *bbolt.DB
	file *os.File
	// failed is set when bbolt panicked or faulted. Its locks may never be given
	// back, so nobody may enter it again, not even to close it.
	failed atomic.Pointer[problem]
	// decisions is the number of decisions kept; changed under Ledger.writing.
	decisions int
}

// close closes the file; of a failed one the mapping stays until the process
// ends.
func (d *database) close() error {
	if d.failed.Load() != nil {
		return d.file.Close()
	}
	return guard(d.bolt.Close)
}

// guard calls fn and turns a panic, and a fault in a mapping, into an error
// that wraps errDamaged. Faults are only caught in the calling goroutine, so
// nothing of bbolt that starts goroutines (Batch, Check) is used.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return fn()
}

// open opens the file, or a new one when it is damaged.
func (l *Ledger) open() (*database, error) {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of the ledger: %w", err)
	}
	d, err := l.openFile()
	if !errors.Is(err, errDamaged) {
		return d, err
	}
	if err := l.moveAway(err); err != nil {
		return nil, err
	}
	return l.openFile()
}

// restart replaces a database that failed by a new, empty one.
func (l *Ledger) restart(failed *database) (*database, error) {
	_ = failed.close() // read by nobody any more
	if err := l.moveAway(failed.failed.Load().err); err != nil {
		return nil, err
	}
	return l.openFile()
}

// moveAway renames the file, for a person to look at.
func (l *Ledger) moveAway(why error) error {
	to := fmt.Sprintf("%s.corrupt-%d", l.path, time.Now().UnixNano())
	err := os.Rename(l.path, to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("moving a damaged ledger away (%w): %w", why, err)
	}
	if err != nil {
		to = "nothing, it was gone"
	}
	reason := fmt.Errorf("ledger %s: %w; renamed to %s and a new one started", l.path, why, to)
	l.recovered.Store(&problem{err: reason})
	l.log.WithError(why).WithField("path", l.path).WithField("renamedTo", to).Error("the ledger was damaged; a new one is started")
	return nil
}

// openFile opens or creates the file as it is. The error wraps errDamaged when
// it cannot be gone on with, ErrLocked when another process has it.
func (l *Ledger) openFile() (*database, error) {
	f, created, err := l.openLocked()
	if err != nil {
		return nil, err
	}
	if !created {
		// Before bbolt maps it: a loop of pages would never end there.
		if err := checkBolt(f); err != nil {
			return nil, errors.Join(fmt.Errorf("opening the ledger %s: %w", l.path, err), f.Close())
		}
	}
	d := &database{file: f}
	err = guard(func() error {
		var err error
		d.bolt, err = bbolt.Open(l.path, 0o600, &bbolt.Options{
			// The file that was checked, with its lock.
			OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return f, nil },
			Timeout:      ledgerLockWait,
			FreelistType: bbolt.FreelistMapType,
		})
		if err != nil {
			return classify(err)
		}
		return d.bolt.Update(d.prepare)
	})
	if err != nil {
		_ = f.Close() // for the lock; bbolt may have done it, or never will
		return nil, fmt.Errorf("opening the ledger %s: %w", l.path, err)
	}
	return d, nil
}

// classify tells a damaged file from one that cannot be read or written now.
func classify(err error) error {
	for _, damage := range []error{bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum} {
		if errors.Is(err, damage) {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return err
}

// openLocked opens the file and takes its lock, the same one bbolt takes.
func (l *Ledger) openLocked() (f *os.File, created bool, err error) {
	st, err := os.Lstat(l.path)
	created = errors.Is(err, fs.ErrNotExist)
	if err == nil && !st.Mode().IsRegular() {
		return nil, false, fmt.Errorf("ledger %s: %w: not a regular file but %v", l.path, errDamaged, st.Mode().Type())
	}
	f, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("opening the ledger: %w", err)
	}
	deadline := time.Now().Add(ledgerLockWait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, created, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, false, errors.Join(fmt.Errorf("locking the ledger %s: %w", l.path, err), f.Close())
		}
		if time.Now().After(deadline) {
			return nil, false, errors.Join(fmt.Errorf("ledger %s: %w", l.path, ErrLocked), f.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// prepare makes the buckets and counts the decisions.
func (d *database) prepare(tx *bbolt.Tx) error {
	for _, name := range []string{bucketMeta, bucketHolds, bucketDecisions, bucketRepeats, bucketNotices} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			if errors.Is(err, bolterrors.ErrIncompatibleValue) {
				return fmt.Errorf("%w: %q is not a bucket", errDamaged, name)
			}
			return err
		}
	}
	meta, err := bucket(tx, bucketMeta)
	if err != nil {
		return err
	}
	switch have := meta.Get([]byte(keyFormat)); {
	case have == nil:
		if err := meta.Put([]byte(keyFormat), []byte(ledgerFormat)); err != nil {
			return err
		}
	case string(have) != ledgerFormat:
		return fmt.Errorf("%w: format %.20q, want %q", errDamaged, have, ledgerFormat)
	}
	decisions, err := bucket(tx, bucketDecisions)
	if err != nil {
		return err
	}
	return decisions.ForEach(func(_, _ []byte) error {
		d.decisions++
		return nil
	})
}
