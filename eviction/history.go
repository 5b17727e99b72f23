package eviction

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/cri-evictd/cri-evictd/holds"
)

// Outcomes of a decision.
const (
	OutcomeEvicted    = "evicted"
	OutcomeFailed     = "failed"
	OutcomeWouldEvict = "wouldEvict"
	OutcomeNoVictim   = "noVictim"
	OutcomeResumed    = "resumed"
	OutcomeEvicting   = "evicting"  // a soft eviction is under way
	OutcomeReclaimed  = "reclaimed" // soft: memory.reclaim was enough, nobody had to go
)

const historyLength = 1000

// history keeps the newest reports in memory.
type history struct {
	mu      sync.Mutex
	reports []Report // oldest first
}

// put adds a report or replaces the one with its ID.
func (h *history) put(r Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.reports, func(o Report) bool { return o.ID == r.ID }); i >= 0 {
		h.reports[i] = r
		return
	}
	if len(h.reports) >= historyLength {
		h.reports = slices.Delete(h.reports, 0, len(h.reports)-historyLength+1)
	}
	h.reports = append(h.reports, r)
}

// length is how many there are.
func (h *history) length() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reports)
}

// newest returns up to n reports, newest first.
func (h *history) newest(n int) []Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.reports[max(0, len(h.reports)-n):])
	slices.Reverse(out)
	return out
}

// load fills the history with what the ledger kept; what cannot be read is
// left out.
func (h *history) load(raw []json.RawMessage) {
	var reports []Report
	for _, b := range raw {
		var r Report
		if json.Unmarshal(b, &r) == nil {
			reports = append(reports, r)
		}
	}
	slices.Reverse(reports)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports = append(reports, h.reports...)
}

// keepInputs gives a resumed decision back what it was decided on, where the
// report of the process that decided it is known.
func (e *Engine) keepInputs(r *Report) {
	for _, old := range e.history.newest(historyLength) {
		if old.ID == r.ID && old.Victim != nil && *old.Victim == *r.Victim {
			r.Time, r.Summary, r.Memory, r.Candidates = old.Time, old.Summary, old.Memory, old.Candidates
			return
		}
	}
}

// keep records a report in memory and hands it to the ledger.
func (e *Engine) keep(r *Report) {
	e.count(r)
	c := *r
	if r.Kill != nil {
		k := *r.Kill
		c.Kill = &k
	}
	c.Soft = r.Soft.clone()
	e.history.put(c)
	select {
	case e.persist <- c:
	default:
		e.log.WithField("decision", c.ID).Warn("the ledger is behind; this decision is kept in memory only")
	}
}

// record returns the holds file's record with this ID.
func (e *Engine) record(id uint64) (holds.Record, bool) {
	for _, r := range e.holds.Records() {
		if r.ID == id {
			return r, true
		}
	}
	return holds.Record{}, false
}

// History returns up to n decisions, newest first.
func (e *Engine) History(n int) []Report { return e.withTelling(e.history.newest(n)) }
