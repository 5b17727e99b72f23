package eviction

import (
	"errors"
	"time"
)

// Reload replaces the settings while the engine runs, all of them or, with an
// error, none. Kills under way go on; a threshold that is new and already met
// is unarmed, as at a start (design §7). A pause goes on.
func (e *Engine) Reload(set Settings) error {
	if set.HoldMaximum <= 0 {
		return errors.New("eviction: settings without a holdMaximum")
	}
	e.change.Lock()
	e.configured = set
	e.apply()
	e.change.Unlock()
	e.store.Trust(set.Protection.Trusted)
	e.wantPlan()
	return nil
}

// Pause makes the engine decide and report as in mode observe for d: nothing is
// killed, the holds there are stand, and no condition is published. It ends by
// itself and is not kept over a restart. It returns when it will end; with d of
// zero or less the pause there is ends now, and the result is zero.
func (e *Engine) Pause(d time.Duration) time.Time {
	if d <= 0 {
		e.Resume()
		return time.Time{}
	}
	until := e.clock().Add(d)
	e.change.Lock()
	e.pausedUntil = until
	e.apply()
	e.change.Unlock()
	e.log.WithField("until", until.UTC().Format(time.RFC3339)).Warn("paused by hand: decisions are reported, nothing is evicted")
	e.wantPlan()
	return until
}

// Resume ends a pause; it reports whether there was one.
func (e *Engine) Resume() bool {
	e.change.Lock()
	was := !e.pausedUntil.IsZero()
	e.pausedUntil = time.Time{}
	e.apply()
	e.change.Unlock()
	if was {
		e.log.Warn("the pause is over: pods are evicted again")
		e.wantPlan()
	}
	return was
}

// PausedUntil returns when the pause ends, zero when there is none.
func (e *Engine) PausedUntil() time.Time {
	e.change.Lock()
	defer e.change.Unlock()
	return e.pausedUntil
}

// endPause ends a pause whose time is over; the loop calls it each second.
func (e *Engine) endPause() {
	until := e.PausedUntil()
	if !until.IsZero() && !e.clock().Before(until) {
		e.Resume()
	}
}

// apply puts into force what was configured and what a pause makes of it. It
// must be called with change held.
func (e *Engine) apply() {
	set := e.configured
	if !e.pausedUntil.IsZero() {
		for _, s := range armable() {
			r := set.rulesOf(s)
			r.Observe, r.Paused = true, true
		}
	}
	e.set.Store(&set)
	e.sampler.use(&set)
}
