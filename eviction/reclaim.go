package eviction

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/inventory"
)

const (
	// reclaimChunk is what one write asks for: small enough to be over before
	// the deadline, large enough to be worth the call.
	reclaimChunk = 64 * mi
	// reclaimFor bounds one round of reclaim (design §8).
	reclaimFor = 50 * time.Millisecond
	// reclaimStuck is when a write that does not come back is no longer waited
	// for. The kernel does not let go of it; its goroutine ends with it.
	reclaimStuck = 2 * time.Second
)

// reclaimer is a cgroup whose memory the kernel takes back on demand (v2's
// memory.reclaim): cgroupfs.ErrReclaimShort when it found less than it was asked
// for, cgroupfs.ErrAbsent when the kernel does not offer it.
type reclaimer interface {
	Reclaim(bytes uint64) error
}

// ReclaimReport says what memory.reclaim was asked for before a soft eviction.
type ReclaimReport struct {
	Asked     uint64        `json:"asked"`     // bytes in all writes
	Returned  uint64        `json:"returned"`  // bytes of the writes that succeeded
	Took      time.Duration `json:"took"`      // ns
	Available uint64        `json:"available"` // before it
	// After is what the first sample after it said was available.
	After uint64          `json:"availableAfter,omitempty"`
	Pods  []inventory.Ref `json:"pods"`
	Error string          `json:"error,omitempty"`
}

// reclaimTarget is one pod to take memory back from.
type reclaimTarget struct {
	ref    inventory.Ref
	excess uint64 // over its request: no more than that is taken
	from   []reclaimer
}

// reclaimTargets are the pods over their request, those with the most page cache
// that nobody uses first: what the kernel takes from them costs least. A
// protected pod keeps its memory.
func reclaimTargets(pods []PlanPod, cands []Candidate) []reclaimTarget {
	order := make([]int, 0, len(pods))
	for i := range pods {
		if pods[i].Barred == "" && cands[i].OverRequest() {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(pods[b].InactiveFile, pods[a].InactiveFile), cmp.Compare(cands[b].Excess(), cands[a].Excess()))
	})
	var out []reclaimTarget
	for _, i := range order {
		t := reclaimTarget{ref: pods[i].Ref, excess: uint64(max(cands[i].Excess(), 0)) + pods[i].InactiveFile}
		for _, c := range pods[i].cgroups {
			if r, ok := c.(reclaimer); ok {
				t.from = append(t.from, r)
			}
		}
		if len(t.from) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// reclaim asks the kernel for need bytes from the targets in turn, in chunks, and
// begins no chunk after reclaimFor. absent is true when the kernel cannot do it
// at all. It may block in the kernel for longer than that.
func reclaim(targets []reclaimTarget, need uint64, clock func() time.Time) (r ReclaimReport, absent bool) {
	begun := clock()
	for _, t := range targets {
		left, tried := t.excess, false
		for _, c := range t.from {
			for left > 0 && r.Returned < need && clock().Sub(begun) < reclaimFor {
				if !tried {
					tried = true
					r.Pods = append(r.Pods, t.ref)
				}
				r.Asked += reclaimChunk
				err := c.Reclaim(reclaimChunk)
				if errors.Is(err, cgroupfs.ErrAbsent) {
					return ReclaimReport{}, true
				}
				if err != nil {
					if !errors.Is(err, cgroupfs.ErrReclaimShort) && !errors.Is(err, cgroupfs.ErrGone) {
						r.Error = err.Error()
					}
					break // nothing more to be had here
				}
				r.Returned += reclaimChunk
				left -= min(left, reclaimChunk)
			}
		}
		if r.Returned >= need || clock().Sub(begun) >= reclaimFor {
			break
		}
	}
	r.Took = clock().Sub(begun)
	return r, false
}
