package eviction

import (
	"errors"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// diskTarget is what candidates are measured for.
type diskTarget struct {
	device uint64
	unit   Unit
	// told: kubelet is told of the eviction and deletes what is left. removes: the
	// stopped containers are removed by us.
	told, removes bool
}

// diskDetail is what the reader wants to know of a candidate beside its numbers.
type diskDetail struct {
	// deletion is what only kubelet frees, in the unit; no part of the gain unless
	// it is told.
	deletion uint64
	// incomplete: a part of the usage is not known, it is at least what is said.
	incomplete, exact bool
	oldest            time.Time
}

// diskCandidate is a pod as the ranking for disk or inodes sees it.
func diskCandidate(p *PlanPod, u *PodUsage, on diskTarget) (Candidate, diskDetail) {
	c := p.Candidate
	c.Request, c.RequestKnown = uint64(max(p.StorageRequest.Value, 0)), storageKnown(p.StorageRequest)
	c.Evicting = p.Evicting != 0
	sum := u.on(on.device, on.unit == Inodes)
	c.Usage, c.Known = sum.total, sum.known
	c.Gain = sum.stop
	if on.removes || on.told {
		c.Gain += sum.removal
	}
	if on.told {
		c.Gain += sum.deletion
	}
	return c, diskDetail{deletion: sum.deletion, incomplete: sum.incomplete, exact: sum.exact, oldest: sum.oldest}
}

func storageKnown(v inventory.Value[int64]) bool {
	return v.Source != "" && v.Source != inventory.FromDefault
}

// pidCandidate is a pod as the ranking for PIDs sees it. read is pids.current of
// a cgroup (cgroupfs.CgroupPIDs). A pod without a cgroup of its own has those of
// its containers; one of them that is gone has none.
func pidCandidate(p *PlanPod, read func(cgroup string) (uint64, error)) Candidate {
	c := p.Candidate
	c.Request, c.RequestKnown = 0, false
	c.Evicting = p.Evicting != 0
	for _, path := range p.paths {
		n, err := read(path)
		switch {
		case errors.Is(err, cgroupfs.ErrGone):
		case err != nil:
			c.Usage, c.Known = 0, false
			return c
		default:
			c.Known = true
			c.Usage += n
		}
	}
	c.Gain = c.Usage
	return c
}
