package cgroupfs

import (
	"errors"
	"fmt"
	"path/filepath"
)

// PodsMemory reads the cgroup that all pods are below, whose limit kubelet sets
// to the node's Allocatable. It stays with this very cgroup: after its removal
// every method says ErrGone, and OpenPodsMemory finds the new one. All methods
// may be called at the same time, Close included.
type PodsMemory struct{ cgroup *PodCgroup }

// OpenPodsMemory opens `kubepods` or `kubepods.slice` at the hierarchy's root
// or below one level of cgroup root. Where there are several, as after a change
// of kubelet's cgroup driver, it is the one with the most memory. None is
// ErrAbsent.
func (f *FS) OpenPodsMemory() (*PodsMemory, error) {
	trees, err := f.kubepodsTrees()
	if err != nil {
		return nil, err
	}
	var best *PodCgroup
	var most uint64
	var failed []error
	for _, tree := range trees {
		c := f.newCgroup(tree)
		err := c.openReading()
		if err != nil {
			c.closeAll()
			// One that went away just now is one there is not.
			if !errors.Is(err, ErrGone) {
				failed = append(failed, err)
			}
			continue
		}
		usage, err := c.Usage()
		if err != nil && !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrGone) {
			failed = append(failed, err)
		}
		if err != nil || best != nil && usage <= most {
			_ = c.Close() // read only; nothing can be lost
			continue
		}
		if best != nil {
			_ = best.Close() // read only
		}
		best, most = c, usage
	}
	switch {
	case best != nil:
		return &PodsMemory{cgroup: best}, nil
	case len(failed) > 0:
		return nil, errors.Join(failed...)
	}
	return nil, fmt.Errorf("%s: no kubepods or kubepods.slice with memory numbers: %w", f.memory, ErrAbsent)
}

// Path is the path below the hierarchy root.
func (p *PodsMemory) Path() string { return p.cgroup.Path() }

// Usage is the memory charged to all pods together, in bytes. One pread on a
// kept descriptor, no allocation unless it fails. After the removal of the
// cgroup it is ErrGone.
func (p *PodsMemory) Usage() (uint64, error) { return p.cgroup.Usage() }

// Limit is the limit of all pods together, in bytes: node Allocatable where
// kubelet enforces it. Unlimited is ErrAbsent. It opens the file anew and is for
// calm times.
func (p *PodsMemory) Limit() (uint64, error) {
	limit, limited, err := p.cgroup.MemoryLimit()
	if err != nil {
		return 0, err
	}
	if !limited {
		return 0, fmt.Errorf("%s: unlimited: %w", filepath.Join(p.cgroup.full, p.cgroup.limitFile()), ErrAbsent)
	}
	return limit, nil
}

// Stat reads memory.stat of all pods together, inactive and active file pages
// among it. It costs the kernel a flush of per-CPU counts and is for calm times.
// A field this kernel does not have is ErrAbsent, with all others filled in.
func (p *PodsMemory) Stat(m *MemoryStat) error { return p.cgroup.MemoryStat(m) }

// Close closes the descriptors, or leaves that to a method still running.
func (p *PodsMemory) Close() error { return p.cgroup.Close() }
