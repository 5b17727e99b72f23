package eviction

import "github.com/cri-evictd/cri-evictd/holds"

// stillComing tells the sampler of a kill of the previous process that was over
// only just now: its memory may not show yet, and for that nobody else is to die
// (bugs.md B42). The record's numbers are those of the signal it was for; by the
// other one nothing is waited for.
func (e *Engine) stillComing(r holds.Record) {
	if !Signal(r.Signal).Memory() {
		return
	}
	if now := e.clock(); now.Sub(r.KilledAt) >= pendingFor || r.Usage <= 0 {
		return
	}
	m := MemorySample{Kernel: uint64(max(r.Available, 0)), Kubelet: uint64(max(r.AvailableKubelet, 0))}
	var bases [hardSignals]uint64
	for i, h := range e.sampler.hards() {
		if h.signal != Signal(r.Signal) {
			continue
		}
		if h == &e.sampler.hard {
			m.MinFree = e.sampler.minFree
		}
		bases[i] = judge(e.settings().rulesOf(h.signal).From, &m, 0, false).Available
	}
	e.sampler.expect(uint64(r.Usage), bases)
}
