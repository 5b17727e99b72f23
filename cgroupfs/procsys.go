package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// smallFile holds any one-line file of /proc that is read here.
const smallFile = 256

// MinFreeBytes is vm.min_free_kbytes: what the kernel keeps for itself. A file
// that is not there is ErrAbsent.
func (f *FS) MinFreeBytes() (uint64, error) {
	path := filepath.Join(f.roots.Proc, "sys/vm/min_free_kbytes")
	line, err := readLine(path)
	if err != nil {
		return 0, err
	}
	v, ok := parseUint(line)
	if !ok {
		return 0, broken(path, "", line, errNotNumber)
	}
	return satMul(v, 1024), nil
}

// BootID is the random name the kernel gave to this boot. A file that is not
// there is ErrAbsent.
func (f *FS) BootID() (string, error) {
	path := filepath.Join(f.roots.Proc, "sys/kernel/random/boot_id")
	line, err := readLine(path)
	if err != nil {
		return "", err
	}
	if len(line) == 0 {
		return "", broken(path, "", nil, errMissing)
	}
	return string(line), nil
}

// OOMScoreAdj is /proc/<pid>/oom_score_adj, -1000 to 1000. A process that has
// ended is ErrGone.
func (f *FS) OOMScoreAdj(pid int) (int, error) {
	path := filepath.Join(f.roots.Proc, strconv.Itoa(pid), "oom_score_adj")
	line, err := readLine(path)
	if err != nil {
		if errors.Is(err, ErrAbsent) || errors.Is(err, unix.ESRCH) {
			return 0, fmt.Errorf("process %d: %w", pid, ErrGone)
		}
		return 0, err
	}
	v, err := strconv.Atoi(string(line))
	if err != nil {
		return 0, broken(path, "", line, errNotNumber)
	}
	if v < -1000 || v > 1000 {
		return 0, broken(path, "", line, errAbsurd)
	}
	return v, nil
}

// readLine reads a file of one line. Nothing there is ErrAbsent.
func readLine(path string) ([]byte, error) {
	buf := make([]byte, smallFile)
	b, err := readFileAt(unix.AT_FDCWD, path, buf)
	if err != nil {
		return nil, absentOrBroken(path, err)
	}
	return trimEnd(b), nil
}

// absentOrBroken classifies an error from opening a file that a kernel may or
// may not offer.
func absentOrBroken(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, ErrAbsent)
	}
	return broken(path, "", nil, err)
}
