package eviction

import "slices"

// seedBudget counts the kills of the last hour that the history knows of, so
// that a restart is no new budget. It must be called before the sampler runs.
func (e *Engine) seedBudget() {
	now := e.clock()
	reports := e.history.newest(historyLength)
	slices.Reverse(reports) // the breaker wants them in the order of their time
	for _, r := range reports {
		switch r.Outcome {
		case OutcomeEvicted, OutcomeResumed, OutcomeFailed:
		default:
			continue
		}
		if age := now.Sub(r.Time); age < 0 || age >= budgetWindow {
			continue
		}
		if r.Soft != nil {
			continue // a soft threshold has a budget of its own
		}
		if r.Signal == MemoryAvailable || r.Signal == AllocatableMemoryAvailable {
			e.sampler.hardOf(r.Signal).breaker.count(r.Time)
		}
	}
}
