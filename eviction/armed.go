package eviction

// Armed remembers over a restart which threshold was seen clear, so that the
// same configuration is enforced at once after a crash (design §7).
type Armed interface {
	// Load returns the amount in bytes that was saved last, 0 for none.
	Load() (uint64, error)
	Save(amount uint64) error
}

// armedBefore says whether this very threshold was armed in a previous run.
func (e *Engine) armedBefore() bool {
	amount, err := e.armed.Load()
	if err != nil {
		e.log.WithError(err).Warn("it is not known whether this threshold was in force before: it is acted on once it was seen clear")
		return false
	}
	return amount == e.settings().Rules.Amount && amount > 0
}

// saveArmed notes, once, that the threshold is armed.
func (e *Engine) saveArmed() {
	if e.armed == nil || e.armedSaved || e.settings().Rules.Observe || !e.sampler.armed.Load() {
		return
	}
	if err := e.armed.Save(e.settings().Rules.Amount); err != nil {
		e.log.WithError(err).Warn("a restart during a breach will not evict until the threshold was seen clear")
	}
	e.armedSaved = true
}

// Arm makes the threshold be acted on although it was met when it was loaded.
// It reports whether that changed anything.
// A threshold that is not below the machine's memory cannot be meant.
func (e *Engine) Arm() bool {
	if e.settings().Rules.Amount >= e.sampler.latest.capacity.Load() {
		return false
	}
	changed := e.sampler.armed.CompareAndSwap(false, true)
	if changed {
		e.log.Warn("armed by hand: memory.available is acted on from now on")
	}
	return changed
}
