package eviction

import (
	"github.com/cri-evictd/cri-evictd/holds"
)

// softStands says whether the soft threshold that an interrupted eviction was
// for is still met. It was past its grace, so that its minimum reclaim counts. A
// threshold that is not configured any more, or whose signal cannot be read, is
// none to end a pod for.
func (e *Engine) softStands(r holds.Record, m *MemorySample) bool {
	if !Signal(r.Signal).Memory() {
		return e.slowStands(Signal(r.Signal), false)
	}
	for _, th := range e.settings().Soft {
		if th.Signal != Signal(r.Signal) || th.Amount == 0 {
			continue
		}
		if available, known := e.availableNow(th.Signal, m); known && Met(available, th.Amount+th.MinReclaim) {
			return true
		}
	}
	return false
}

// availableNow is a signal's number in a sample that was just taken.
func (e *Engine) availableNow(sig Signal, m *MemorySample) (uint64, bool) {
	switch {
	case sig == AllocatableMemoryAvailable:
		return e.allocatableNow()
	case sig != MemoryAvailable || m.Capacity == 0:
		return 0, false
	}
	return judge(e.settings().Rules.From, m, 0, false).Available, true
}

// allocatableNow reads what the pods' cgroup has left. It is for the start only:
// later the planner's reader is the loop's own.
func (e *Engine) allocatableNow() (uint64, bool) {
	if e.planner.pods.open == nil {
		return 0, false
	}
	v := e.planner.pods.view(e.clock(), false)
	var m MemorySample
	if v == nil || v.sample(&m) != nil {
		return 0, false
	}
	return judge(e.settings().Allocatable.From, &m, 0, false).Available, true
}

// hardStands says whether the hard threshold that an interrupted kill was for is
// met; memory is whether that of memory.available is.
func (e *Engine) hardStands(r holds.Record, memory bool) bool {
	switch s := Signal(r.Signal); {
	case !s.Memory():
		return !r.Soft && e.slowStands(s, true)
	case s != AllocatableMemoryAvailable:
		return memory
	}
	amount := e.settings().Allocatable.Amount
	available, known := e.allocatableNow()
	return memory || known && amount > 0 && Met(available, amount)
}

// resumedSoft makes a decision of the record of a soft eviction; nothing is sent
// yet.
func (e *Engine) resumedSoft(r holds.Record, pod PlanPod, m MemorySample) *Decision {
	d := e.remade(r, pod, m)
	d.soft = &SoftReport{MaxPodGrace: e.maxPodGrace()}
	for _, th := range e.settings().Soft {
		if th.Signal == d.Signal {
			d.soft.Grace, d.soft.MinReclaim = th.Grace, th.MinReclaim
			d.Rules.MinReclaim = th.MinReclaim
		}
	}
	if th, ok := e.settings().slowOf(d.Signal, false); ok && d.slow != nil {
		d.soft.Grace = th.Grace
		d.Rules.MinReclaim = th.MinReclaim.Resolve(e.slow.capacityOf(d.Signal))
		d.soft.MinReclaim = d.Rules.MinReclaim
	}
	need := d.Rules.Amount + d.Rules.MinReclaim
	d.soft.Shortage = need - min(need, d.Verdict.Available)
	return d
}
