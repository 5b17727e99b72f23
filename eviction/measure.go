package eviction

import (
	"errors"
	"fmt"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// volumeBytes are the bytes in memory emptyDirs that are in RAM: no more than the
// pod had of shared memory in all, or what is swapped out would be taken off the
// gain. What was written since that was read is in RAM.
func (o *openPod) volumeBytes() uint64 {
	if !o.shmemKnown {
		return o.volumes
	}
	since := o.volumes - min(o.volumes, o.volumesThen)
	return min(o.volumes, o.shmem+since)
}

// measure reads what is only read in calm times, and once for a pod seen for
// the first time: without it all its page cache would count as usage. Where a
// reading fails, the one before stands.
func (pl *planner) measure(p *inventory.Pod, o *openPod) {
	var inactive uint64
	for _, c := range o.cgroups {
		n, err := c.InactiveFile()
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
			pl.sayOnce(p, fmt.Errorf("memory.stat of cgroup %s: %w", o.path, err))
			return
		}
		if err == nil {
			inactive += n
		}
	}
	o.inactive, o.measured = inactive, true
	o.shmemKnown = false
	if o.volumes == 0 {
		return
	}
	var shmem uint64
	for _, c := range o.cgroups {
		var st cgroupfs.MemoryStat
		if c.MemoryStat(&st) != nil {
			return
		}
		shmem += st.Shmem
	}
	o.shmem, o.volumesThen, o.shmemKnown = shmem, o.volumes, true
}
