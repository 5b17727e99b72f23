package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Roots says where the kernel's file systems are. Flags set them, so that the
// whole program can run against a checked-in tree.
type Roots struct {
	Proc   string // "/proc"
	Cgroup string // "/sys/fs/cgroup"
}

// Mode is the kind of cgroup hierarchy that holds the memory controller.
type Mode uint8

const (
	// V1 has a hierarchy per controller.
	V1 Mode = iota
	// Hybrid has v1 controllers, memory among them, beside a v2 hierarchy.
	Hybrid
	// V2 has the one unified hierarchy.
	V2
)

// String is "v1", "hybrid" or "v2".
func (m Mode) String() string {
	switch m {
	case V1:
		return "v1"
	case Hybrid:
		return "hybrid"
	case V2:
		return "v2"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// FS reads one machine, or one checked-in tree. Its methods may be called at
// the same time.
type FS struct {
	roots   Roots
	mode    Mode
	memory  string // directory below which pod paths hang
	freezer string // same for the v1 freezer, empty when there is none
	live    bool   // memory is a mounted cgroup file system
}

// Open finds out which hierarchies there are: by the file system's magic
// number where they are real, by their files in a checked-in tree. Nothing
// that looks like a memory hierarchy is ErrAbsent; a tree that is there and
// cannot be looked at is a *BrokenError.
func Open(r Roots) (*FS, error) {
	f := &FS{roots: r}
	v2, err := isV2(r.Cgroup)
	if err != nil {
		return nil, err
	}
	if v2 {
		f.mode, f.memory, f.live = V2, r.Cgroup, isCgroupFS(r.Cgroup)
		return f, nil
	}
	memory := filepath.Join(r.Cgroup, "memory")
	if ok, err := exists(filepath.Join(memory, "memory.usage_in_bytes")); err != nil {
		return nil, err
	} else if !ok {
		return nil, fmt.Errorf("%s: neither cgroup.controllers (v2) nor memory/memory.usage_in_bytes (v1): %w", r.Cgroup, ErrAbsent)
	}
	f.mode, f.memory, f.live = V1, memory, isCgroupFS(memory)
	if freezer := filepath.Join(r.Cgroup, "freezer"); isDir(freezer) {
		f.freezer = freezer
	}
	// systemd mounts the second hierarchy at "unified"; its mere presence
	// changes nothing but the name, as memory is not there.
	hybrid, err := isV2(filepath.Join(r.Cgroup, "unified"))
	if err != nil && !errors.Is(err, ErrAbsent) {
		return nil, err
	}
	if hybrid {
		f.mode = Hybrid
	}
	return f, nil
}

// Mode tells which kind of hierarchy holds the memory controller.
func (f *FS) Mode() Mode { return f.mode }

// Roots gives back what Open was called with.
func (f *FS) Roots() Roots { return f.roots }

func isV2(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, absentOrBroken(dir, err)
	}
	if int64(st.Type) == unix.CGROUP2_SUPER_MAGIC {
		return true, nil
	}
	return exists(filepath.Join(dir, "cgroup.controllers"))
}

// isCgroupFS tells a mounted hierarchy of either version from a plain
// directory.
func isCgroupFS(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false
	}
	return int64(st.Type) == unix.CGROUP_SUPER_MAGIC || int64(st.Type) == unix.CGROUP2_SUPER_MAGIC
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, broken(path, "", nil, err)
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
