package holds

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockName is the file whose flock makes a process the writer. It is not the
// holds file itself, since that one can be replaced.
const lockName = FileName + ".lock"

// takeLock makes this process the writer of dir. The kernel drops the lock with
// the process, however that ends.
func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	// A lock file can be deleted between open and flock; then the lock is on a
	// file that nobody else will find.
	for range 10 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
		if err != nil {
			return nil, fmt.Errorf("opening the writer's lock: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			owner := lockOwner(f)
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s: %w: %s", path, ErrLocked, owner)
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !samePath(path, f) {
			_ = f.Close()
			continue
		}
		// The number is for people only: a full disk must not stop the writer.
		if err := f.Truncate(0); err == nil {
			_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		return f, nil
	}
	return nil, fmt.Errorf("locking %s: the file keeps being replaced", path)
}

// lockOwner tells who holds the lock, as far as the file says.
func lockOwner(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	pid, convErr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || convErr != nil {
		return "process unknown"
	}
	return "process " + strconv.Itoa(pid)
}

// samePath says whether path still leads to the open file f.
func samePath(path string, f *os.File) bool {
	at, err := os.Lstat(path)
	if err != nil {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(at, open)
}
