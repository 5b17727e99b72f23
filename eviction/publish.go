package eviction

import (
	"fmt"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// unkillableFor is how long a pod whose kill was given up is passed over, so
// that it does not cost each further victim 2 s.
const unkillableFor = 5 * time.Minute

// publishPlan gives the fast half a fresh plan.
func (e *Engine) publishPlan() {
	in := planInput{
		now: e.clock(), snapshot: e.store.Snapshot(), alarm: e.sampler.latest.met.Load(),
		held: map[string]string{}, keepOpen: map[string]bool{}, repeats: map[string]uint32{},
	}
	e.softPlan(&in)
	for _, r := range e.holds.Records() {
		if r.Holds() && in.evicting[r.UID] == 0 {
			in.held[r.UID] = fmt.Sprintf("held: evicted by decision %d", r.ID)
			// An intent is a kill that the slow half may not know of yet.
			in.keepOpen[r.UID] = r.State == holds.Intent
		}
	}
	e.mu.Lock()
	for uid, why := range e.pending {
		in.held[uid], in.keepOpen[uid] = why, true
	}
	for uid, at := range e.unkillable {
		if in.now.Sub(at) >= unkillableFor {
			delete(e.unkillable, uid)
		} else if in.held[uid] == "" {
			in.held[uid] = "it could not be killed a moment ago"
		}
	}
	for uid, r := range e.repeats {
		if in.now.Sub(r.Last) < repeatForgotten {
			in.repeats[uid] = r.Count
		}
	}
	e.mu.Unlock()
	if st := e.syncer.State(); !st.Listed {
		// Nothing is judged by an inventory that was never read (bugs.md B89).
		in.snapshot = &inventory.Snapshot{}
	}
	in.expected = e.factsExpected()
	in.told, in.allocatable = e.tells(), e.settings().watches(AllocatableMemoryAvailable)
	e.planner.protect = e.settings().Protection
	e.sampler.plan.Store(e.planner.build(in))
}
