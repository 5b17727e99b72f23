package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	scratchPrefix = "celab-"
	// scratchLock is held as long as the owner of a scratch folder lives.
	scratchLock = ".lock"
	// scratchMax leaves room for the sockets of containerd and 2.4's shims.
	scratchMax = maxSocketPath - len("/ctd/s/") - 64
)

// NewScratch makes a folder with a path short enough for sockets, and first
// removes those of processes that were killed, with all they had started.
// remove does the same with the new one; call Containerd.Cleanup before, which
// reports errors.
func NewScratch() (dir string, remove func(), err error) {
	base, err := scratchBase()
	if err != nil {
		return "", nil, err
	}
	sweepStale(base)
	if dir, err = os.MkdirTemp(base, scratchPrefix); err != nil {
		return "", nil, fmt.Errorf("lab: scratch folder: %w", err)
	}
	// Containers run with other users' ids in later issues: let them through.
	lock, err := lockScratch(dir)
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("lab: scratch folder: %w", err), os.RemoveAll(dir))
	}
	remove = func() {
		_ = removeScratch(dir) // the next NewScratch tries again
		_ = lock.Close()       // releases the lock
	}
	return dir, remove, nil
}

// scratchBase is $TMPDIR unless that is too long for sockets below it.
func scratchBase() (string, error) {
	for _, base := range []string{os.TempDir(), "/tmp"} {
		real, err := realPath(base)
		if err != nil {
			return "", err
		}
		// MkdirTemp adds up to ten digits.
		if len(real)+1+len(scratchPrefix)+10 <= scratchMax && isDir(real) {
			return real, nil
		}
	}
	return "", errors.New("lab: neither $TMPDIR nor /tmp is a folder with a short path")
}

// lockScratch makes the lock file appear only when it is already held, so that
// nobody takes a folder that is being made for an abandoned one.
func lockScratch(dir string) (*os.File, error) {
	draft := filepath.Join(dir, scratchLock+"-new")
	f, err := os.OpenFile(draft, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = os.Rename(draft, filepath.Join(dir, scratchLock))
	}
	if err != nil {
		_ = f.Close() // it is thrown away
		return nil, err
	}
	return f, nil
}

// sweepStale removes the scratch folders whose owner has ended without
// removing them. It does what it can: a folder it cannot remove stays.
func sweepStale(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, scratchPrefix+"*"))
	if err != nil {
		return // only for a malformed pattern
	}
	for _, dir := range dirs {
		if !isDir(dir) || !ownedByUs(dir) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, scratchLock), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // being made or removed, or not from us
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = removeScratch(dir) // the next NewScratch tries again
		}
		_ = f.Close() // releases the lock
	}
}

func ownedByUs(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid()
}

// removeScratch ends what still runs from the folder and removes it. The lock
// file goes last, so that a failure leaves a folder that is found again.
func removeScratch(dir string) error {
	// kubelet first: it would start again what is ended.
	err := newIdentity(dir).kill(killTimeout)
	var t traces
	err = errors.Join(err, sweep(layout{dir: filepath.Join(dir, "ctd")}, &t), removeCgroupRoot(filepath.Base(dir), killTimeout))
	entries, readErr := os.ReadDir(dir)
	if errors.Is(readErr, os.ErrNotExist) {
		return err
	}
	err = errors.Join(err, readErr, unmountBelow(dir))
	for _, e := range entries {
		if e.Name() != scratchLock {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
