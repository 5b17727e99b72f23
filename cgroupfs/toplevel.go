package cgroupfs

import (
	"cmp"
	"path"
	"slices"
)

// CgroupUsage is what a cgroup and all below it use, in bytes.
type CgroupUsage struct {
	Path  string // below the hierarchy root
	Usage uint64
}

// TopLevelUsage lists the cgroups directly below the hierarchy's root with the
// memory they use, the biggest first: system.slice, user.slice, kubepods. It
// tells who has the memory when no pod does. What cannot be read, or has no
// memory controller, is left out; nil when nothing can. It is for calm times.
func (f *FS) TopLevelUsage() []CgroupUsage {
	names, err := f.dirs("/")
	if err != nil {
		return nil
	}
	var out []CgroupUsage
	for _, name := range names {
		c := f.newCgroup(path.Join("/", name))
		if err := c.openReading(); err != nil {
			c.closeAll()
			continue
		}
		if usage, err := c.Usage(); err == nil {
			out = append(out, CgroupUsage{Path: c.path, Usage: usage})
		}
		_ = c.Close() // read only; nothing can be lost
	}
	slices.SortStableFunc(out, func(a, b CgroupUsage) int { return cmp.Compare(b.Usage, a.Usage) })
	return out
}
