package eviction

import (
	"errors"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// PodsMemory reads the cgroup that holds every pod.
type PodsMemory interface {
	// Path is the path below the hierarchy root.
	Path() string
	// Usage is for the fast half: it does not allocate unless it fails.
	Usage() (uint64, error)
	// Limit is cgroupfs.ErrAbsent when there is none.
	Limit() (uint64, error)
	Stat(*cgroupfs.MemoryStat) error
	Close() error
}

// podsView is what a plan has of the pods' cgroup; all amounts are bytes and
// were read in calm times but for the usage.
type podsView struct {
	memory PodsMemory
	limit  uint64
	// inactive is inactive_file, which kubelet takes off the usage; file are all
	// file LRU pages, which the kernel can take back.
	inactive, file uint64
}

// sample fills in one sample of allocatableMemory.available: kubelet's reading
// is limit − (usage − inactive_file) (Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go, makeSignalObservations), the kernel's view
// takes off all file LRU pages. Both saturate at 0; the readings are of
// different times.
func (v *podsView) sample(m *MemorySample) error {
	usage, err := v.memory.Usage()
	if err != nil {
		return err
	}
	used := func(reclaimable uint64) uint64 { return usage - min(usage, reclaimable) }
	m.Capacity = v.limit
	m.Kubelet = v.limit - min(v.limit, used(v.inactive))
	m.Kernel = v.limit - min(v.limit, used(v.file))
	return nil
}

// holds says whether a cgroup lies below the pods' one.
func (v *podsView) holds(path string) bool {
	return v != nil && strings.HasPrefix(path, strings.TrimSuffix(v.memory.Path(), "/")+"/")
}

// podsEvery is how often the slow half reads limit and memory.stat of the pods'
// cgroup: at its limit usage stands still while anonymous memory takes the place
// of page cache, which only memory.stat shows.
const podsEvery = time.Second

// podsReader keeps the pods' cgroup open for the plans. It is used by one
// goroutine.
type podsReader struct {
	open    func() (PodsMemory, error)
	current *podsView
	readAt  time.Time
	// problem is why there is none; nil while there is one, or none was wanted.
	problem error
}

// view returns what the next plan gets, nil for none: no such cgroup, no limit,
// or it cannot be read. alarm: memory.stat is not read again, because the kernel
// is reclaiming.
func (r *podsReader) view(now time.Time, alarm bool) *podsView {
	if !r.readAt.IsZero() && now.Sub(r.readAt) < podsEvery {
		return r.current
	}
	r.readAt = now
	if r.current == nil {
		m, err := r.open()
		if err != nil {
			r.problem = err
			return nil
		}
		r.current = &podsView{memory: m}
	}
	v, err := r.current.refresh(alarm)
	r.problem = err
	if err != nil {
		r.close()
		return nil
	}
	r.current = v
	return v
}

// refresh reads what is only read in calm times. The view itself is never
// changed: plans share it.
func (v *podsView) refresh(alarm bool) (*podsView, error) {
	limit, err := v.memory.Limit()
	if err != nil {
		return nil, err
	}
	out := &podsView{memory: v.memory, limit: limit, inactive: v.inactive, file: v.file}
	if alarm && v.limit != 0 {
		return out, nil
	}
	var st cgroupfs.MemoryStat
	// Old kernels lack some fields; those that count are never missing.
	if err := v.memory.Stat(&st); err != nil && !errors.Is(err, cgroupfs.ErrAbsent) {
		return nil, err
	}
	out.inactive, out.file = st.InactiveFile, st.InactiveFile+st.ActiveFile
	return out, nil
}

// close gives the descriptors up. A plan that still has them gets no numbers.
func (r *podsReader) close() {
	if r.current != nil {
		_ = r.current.memory.Close() // read only; nothing can be lost
		r.current = nil
	}
}

// watches says whether anything is configured for this signal.
func (set *Settings) watches(sig Signal) bool {
	if sig == AllocatableMemoryAvailable && set.Allocatable.Amount > 0 || sig == MemoryAvailable && set.Rules.Amount > 0 {
		return true
	}
	for _, soft := range set.Soft {
		if soft.Signal == sig {
			return true
		}
	}
	return false
}
