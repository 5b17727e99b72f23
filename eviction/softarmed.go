package eviction

// softPrefix marks the soft threshold of a signal among what Armed remembers.
const softPrefix = "soft:"

// SoftName is the name a signal's soft threshold has among those Armed
// remembers.
func (s Signal) SoftName() Signal { return softPrefix + s }

// softArmedBefore says whether a soft threshold is acted on from its first round
// on: this very amount was in force in the last run, or nothing is remembered at
// all.
func (e *Engine) softArmedBefore(th SoftThreshold) bool {
	if e.armed == nil {
		return true
	}
	before, err := e.armed.Load()
	if err != nil {
		e.log.WithError(err).WithField("signal", th.Signal).
			Warn("it is not known whether this soft threshold was in force before: it is acted on once it was seen clear")
		return false
	}
	return before[th.Signal.SoftName()] == th.Amount
}

// softArmed adds the soft thresholds that are acted on to what is remembered.
func (e *Engine) softArmed(amounts map[Signal]uint64) {
	e.watchAll(e.thresholds(e.settings())) // before the first save: it asks for what was remembered
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	for k, w := range e.soft.watches {
		switch {
		case !w.armed:
		case k.slow:
			amounts[k.name] = k.fingerprint
		case !k.hard:
			amounts[k.Signal.SoftName()] = k.Amount
		}
	}
}

// armSoft makes the soft thresholds be acted on; it returns those that were not
// before.
func (e *Engine) armSoft() []Signal {
	capacity := e.sampler.latest.capacity.Load()
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	var out []Signal
	for k, w := range e.soft.watches {
		switch {
		case w.armed || k.fast():
		case k.slow:
			// Always below the capacity or not armed: a share is, and an amount that is
			// not cannot be meant.
			if c := e.slow.capacityOf(k.Signal); k.Amount < c {
				w.armed = true
				out = append(out, k.name)
			}
		case k.Amount < capacity:
			w.armed = true
			out = append(out, k.Signal.SoftName())
		}
	}
	return out
}
