package eviction

import (
	"fmt"
	"slices"
	"time"
)

// What pods that are on their way out, and space that is being freed, mean for the
// thresholds of disk, inodes and PIDs.

// givenSlow is what the pods that are being deleted or evicted will give back of
// what a threshold counts, by UID: a pod that is being deleted all it has on the
// device, one that is being evicted what its stop frees there, whatever it is
// evicted for.
func (e *Engine) givenSlow(w *softWatch) (deleted uint64, evicted map[string]uint64) {
	plan := e.sampler.plan.Load()
	if plan == nil {
		return 0, nil
	}
	going := e.soft.uids()
	if len(going) == 0 && !slices.ContainsFunc(plan.Pods, func(p PlanPod) bool { return p.Ending }) {
		return 0, nil
	}
	evicted = map[string]uint64{}
	cands, _ := e.measureSlow(plan, w.key.Signal, w.last.Device)
	for i := range cands {
		switch p := &plan.Pods[i]; {
		case slices.Contains(going, p.UID):
			evicted[p.UID] = cands[i].Gain
		case p.Ending:
			deleted += cands[i].Usage
		}
	}
	return deleted, evicted
}

// uids are the pods that are being evicted.
func (s *softHalf) uids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.running))
	for uid := range s.running {
		out = append(out, uid)
	}
	return out
}

// readAgain: the end of a pod has begun or is over, and what was read of disks and
// PIDs is from before: one at a time, as in kubelet's passes. mu is held.
func (s *softHalf) readAgain(at time.Time) {
	for _, w := range s.watches {
		if w.key.slow && at.After(w.after) {
			w.after = at
		}
	}
}

// begun are the pods whose eviction began after the plan was made, such as for
// another threshold in the same round: the plan does not say so. mu is held.
func (s *softHalf) begun(plan *Plan) map[string]bool {
	out := map[string]bool{}
	for i := range plan.Pods {
		if p := &plan.Pods[i]; p.Evicting == 0 && s.running[p.UID] != nil {
			out[p.UID] = true
		}
	}
	return out
}

// barBegun bars the pods whose eviction began after the plan was made.
func (s *softHalf) barBegun(plan *Plan, barred []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := s.begun(plan)
	for i := range plan.Pods {
		barred[i] = barred[i] || begun[plan.Pods[i].UID]
	}
}

const reclaimingText = "containers and images that nobody needs are being removed"

// reclaiming says whether space is being freed for another threshold on the device
// of this one. mu is held.
func (s *softHalf) reclaiming(w *softWatch) bool {
	for _, other := range s.watches {
		if other != w && other.key.slow && other.busy == reclaimingText && other.last.Device == w.last.Device {
			return true
		}
	}
	return false
}

// comingOf is what the evictions under way will give back of what a threshold
// counts; given is what each pod does. why says which of them is waited for, whatever
// it gives. mu is held.
func (s *softHalf) comingOf(w *softWatch, plan *Plan, given map[string]uint64) (coming uint64, why string) {
	begun := s.begun(plan)
	for uid, ev := range s.running {
		if w.key.hard && ev.d.soft != nil && !ev.hard {
			if begun[uid] {
				return 0, fmt.Sprintf("decision %d: a pod has just been asked to end", ev.d.ID)
			}
			continue // a hard threshold shortens it and does not wait for its grace
		}
		switch other := ev.d.slow; {
		case other == nil:
			coming += given[uid]
		case other.reading.Device == w.last.Device && other.unit == w.key.Signal.Unit():
			if ev.d.soft == nil {
				return 0, fmt.Sprintf("decision %d: a pod is being evicted for %s", ev.d.ID, ev.d.Signal)
			}
			coming += ev.d.Candidates[ev.d.Victim].Gain
		case ev.d.soft == nil && !ev.settled:
			return 0, fmt.Sprintf("decision %d: a pod is being evicted for %s", ev.d.ID, ev.d.Signal)
		default:
			coming += given[uid]
		}
	}
	return coming, ""
}
