package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hierarchies returns where cgroup v1 controllers and cgroup v2 are mounted.
func hierarchies() ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	var roots []string
	for _, m := range mounts {
		if !slices.Contains(roots, m.Mountpoint) {
			roots = append(roots, m.Mountpoint)
		}
	}
	return roots, nil
}

// cgroupDirs returns the cgroup directories of the lab's pods that exist now,
// in every hierarchy.
func (t *traces) cgroupDirs() ([]string, error) {
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, root := range roots {
		walkErr := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !d.IsDir() {
				return nil // removed while we looked, or a file
			}
			if err != nil {
				return err
			}
			if t.owns(d.Name()) {
				dirs = append(dirs, p)
				return fs.SkipDir
			}
			return nil
		})
		if walkErr != nil {
			return nil, fmt.Errorf("lab: look for cgroups: %w", walkErr)
		}
		for _, parent := range keys(t.parents) {
			for id := range t.parents[parent] {
				if p := filepath.Join(root, parent, id); isDir(p) && !covered(dirs, p) {
					dirs = append(dirs, p)
				}
			}
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

func covered(dirs []string, p string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return below(p, d) })
}

func isDir(p string) bool {
	info, err := os.Lstat(p)
	return err == nil && info.IsDir()
}

// removeCgroups removes the pods' cgroups, then what is above them as long as
// it is empty: the QoS levels, kubepods and a cgroup root in front. The
// kernel refuses to remove a cgroup that has processes or children, so nothing
// that somebody else uses can go. The processes must have been killed before;
// their cgroups can stay busy for a moment.
func (t *traces) removeCgroups(timeout time.Duration) error {
	dirs, err := t.cgroupDirs()
	if err != nil {
		return err
	}
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	var errs []error
	above := map[string]bool{}
	for _, dir := range dirs {
		if err := removeTree(dir, deadline); err != nil {
			errs = append(errs, err)
		}
		above[filepath.Dir(dir)] = true
	}
	// A pod's cgroup may be gone while the levels above it are still there. Pods
	// without a cgroup parent are in one named after the namespace.
	for _, root := range roots {
		for _, level := range []string{"kubepods/burstable", "kubepods/besteffort", "kubepods", criNamespace} {
			above[filepath.Join(root, level)] = len(t.uids) > 0 || above[filepath.Join(root, level)]
		}
		for parent := range t.parents {
			above[filepath.Join(root, parent)] = true
		}
	}
	for _, dir := range keys(above) {
		if above[dir] {
			removeEmptyUpTo(dir, roots)
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup and its children, deepest first.
func removeTree(dir string, deadline time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lab: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name()), deadline); err != nil {
				return err
			}
		}
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := unix.Rmdir(dir)
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY), time.Now().After(deadline):
			return fmt.Errorf("lab: remove cgroup %s: %w", dir, err)
		}
		<-ticker.C
	}
}

// removeEmptyUpTo removes dir and its ancestors below a hierarchy's root until
// one is in use.
func removeEmptyUpTo(dir string, roots []string) {
	for !slices.Contains(roots, dir) && slices.ContainsFunc(roots, func(r string) bool { return below(dir, r) }) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
		dir = path.Dir(dir)
	}
}

// systemdSlices are the slices to stop: the pods' own, which runc's systemd
// driver has made and nobody else uses.
func (t *traces) systemdSlices() []string {
	return slices.DeleteFunc(keys(t.slices), func(name string) bool {
		return !strings.Contains(name, "-pod") || !t.owns(name)
	})
}
