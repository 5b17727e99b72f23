package eviction

import (
	"maps"
	"sync/atomic"
)

// Armed remembers over a restart which thresholds were seen clear, so that the
// same configuration is enforced at once after a crash (design §7).
type Armed interface {
	// Load returns the amounts in bytes that were saved last, by signal; none
	// for a signal that was never armed.
	Load() (map[Signal]uint64, error)
	Save(amounts map[Signal]uint64) error
}

// arming is the amount at which a hard threshold was last seen clear: armed is
// this very amount and no other, so that a threshold that is new after a reload
// is unarmed without anybody having to say so in time. The sampler and Arm set
// it.
type arming struct {
	amount atomic.Uint64
	// always: every threshold is acted on at once.
	always atomic.Bool
}

// armed says whether these rules are acted on. What only observes is.
func (a *arming) armed(r *Rules) bool {
	return r.Observe || a.always.Load() || a.amount.Load() == r.Amount
}

// sawClear arms the threshold: it is not met.
func (a *arming) sawClear(r *Rules) {
	if a.amount.Load() != r.Amount {
		a.amount.Store(r.Amount)
	}
}

// armable are the hard thresholds that are acted on only after they were seen
// clear.
func armable() []Signal { return []Signal{MemoryAvailable, AllocatableMemoryAvailable} }

// rulesOf returns the hard threshold of a signal; Amount 0 when it is off.
func (set *Settings) rulesOf(s Signal) *Rules {
	if s == AllocatableMemoryAvailable {
		return &set.Allocatable
	}
	return &set.Rules
}

// armAtStart arms the thresholds that were in force in the last run.
func (e *Engine) armAtStart() {
	if e.armed == nil {
		for _, s := range armable() {
			e.sampler.hardOf(s).armed.always.Store(true)
		}
		return
	}
	before, err := e.armed.Load()
	if err != nil {
		e.log.WithError(err).Warn("it is not known which thresholds were in force before: they are acted on once they were seen clear")
		return
	}
	e.armedBefore = before
	for _, s := range armable() {
		e.sampler.hardOf(s).armed.amount.Store(before[s])
	}
}

// saveArmed notes which thresholds are armed when that changed.
func (e *Engine) saveArmed() {
	if e.armed == nil {
		return
	}
	amounts := map[Signal]uint64{}
	for _, s := range armable() {
		if a := e.sampler.hardOf(s).armed.amount.Load(); a > 0 && a == e.settings().rulesOf(s).Amount {
			amounts[s] = a
		}
	}
	e.softArmed(amounts)
	e.stillArmed(amounts)
	if maps.Equal(amounts, e.armedSaved) {
		return
	}
	if err := e.armed.Save(amounts); err != nil {
		e.log.WithError(err).Warn("a restart during a breach will not evict until the threshold was seen clear")
	}
	e.armedSaved = amounts
}

// unarmed lists the thresholds that are not acted on because they were met when
// they were loaded and have not been clear since.
func (e *Engine) unarmed() []Signal {
	var out []Signal
	for _, s := range armable() {
		h, r := e.sampler.hardOf(s), e.settings().rulesOf(s)
		// One that has no number yet, or none at all, is not met.
		if r.Amount > 0 && h.latest.at.Load() != 0 && !h.armed.armed(r) {
			out = append(out, s)
		}
	}
	return append(out, e.slowUnarmed()...)
}

// Arm makes thresholds be acted on although they were met when they were
// loaded. It reports whether that changed anything. A threshold that is not
// below what there is cannot be meant.
func (e *Engine) Arm() bool {
	changed := false
	for _, s := range e.unarmed() {
		if !s.Memory() {
			continue // with the soft ones, below
		}
		h, amount := e.sampler.hardOf(s), e.settings().rulesOf(s).Amount
		if amount >= h.latest.capacity.Load() {
			continue
		}
		h.armed.amount.Store(amount)
		changed = true
		e.log.Warn("armed by hand: " + string(s) + " is acted on from now on")
	}
	for _, s := range e.armSoft() {
		changed = true
		e.log.Warn("armed by hand: " + string(s) + " is acted on from now on")
	}
	return changed
}
