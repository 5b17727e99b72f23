package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// makeCgroupRoot makes a cgroup of this name at the top of every hierarchy, for
// kubelet's cgroupRoot, which has to exist.
func makeCgroupRoot(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := unix.Mkdir(filepath.Join(root, name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("lab: cgroup %s in %s: %w", name, root, err)
		}
	}
	return nil
}

// removeCgroupRoot removes it with all that is below; no process may be left in
// it. It is no error if there is none.
func removeCgroupRoot(name string, timeout time.Duration) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	var errs []error
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, removeTree(dir, deadline))
	}
	return errors.Join(errs...)
}
