package eviction

import (
	"slices"

	"github.com/cri-evictd/cri-evictd/holds"
)

// keepInterrupted writes the history of a kill that had its effect before the
// process that sent it could: nothing that was held stays unexplained. What that
// process had kept of the decision stays; without it the record's numbers are all
// that is known.
func (e *Engine) keepInterrupted(r holds.Record, pod PlanPod, m MemorySample) {
	if e.history.ended(r.ID, r.UID) {
		return
	}
	d := e.remade(r, pod, m)
	if r.Soft {
		d = e.resumedSoft(r, pod, m)
	}
	report := e.report(d, OutcomeResumed)
	e.keepInputs(report)
	report.Kill = killReport(d, r.KilledAt, 0)
	report.Kill.Intent = 0 // another process's, and not known
	e.keep(report)
}

// ended says whether the history has the end of this decision about this pod.
func (h *history) ended(id uint64, uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.reports, func(r Report) bool {
		return r.ID == id && r.Victim != nil && r.Victim.UID == uid && r.Outcome != OutcomeEvicting
	})
}
