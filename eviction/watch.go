package eviction

import "time"

// observation is what is known of a signal now, in its unit.
type observation struct {
	// absent: the kernel has no such number, which is no failure.
	absent bool
	// At is when the newest sample was taken; zero when there never was one.
	At time.Time
	// Available is the number compared with the thresholds.
	Available uint64
	// Device is st_dev of the file system it is about, 0 for none.
	Device uint64
	// Lowest and Highest are over all samples since the round before.
	Lowest, Highest uint64
}

const (
	// observationFor is how long a sample says something about the present.
	observationFor = 5 * time.Second
	// sameReading is how long a reading that does not change is taken for the
	// one that was acted on already (bugs.md B17).
	sameReading = 30 * time.Second
)

// fresh says whether the observation tells anything about now.
func (o *observation) fresh(now time.Time) bool {
	return !o.At.IsZero() && now.Sub(o.At) < observationFor
}

// watch follows one threshold through the rounds of the slow half, in kubelet's
// order of evaluation (Kubernetes 1.37, pkg/kubelet/eviction/eviction_manager.go
// synchronize: thresholdsMet, hysteresis by minimum reclaim once the grace was
// over, thresholdsFirstObservedAt, thresholdsMetGracePeriod,
// thresholdsUpdatedStats). Each threshold has a watch of its own, so that none
// waits for another (bugs.md B104). A hard threshold is one without grace. It is
// pure; time is passed in.
//
// Departures: it sees every sample of the fast half and not one in ten seconds;
// without fresh samples nothing is concluded and the grace begins anew.
type watch struct {
	// armed: seen clear once, or in force before (design §7).
	armed bool
	// observed: nothing is done but reported, so that it need not be armed.
	observed bool
	// firstMet is since when it has been met without a break; zero: it is not.
	firstMet time.Time
	// past: met for the whole grace. From then on it stays met until threshold
	// plus minimum reclaim is reached.
	past bool
	// fresh: the last round had a sample that the one before had not.
	fresh bool
	// lastMet and lastNotClear are when it was last met (hysteresis included),
	// and last below threshold plus minimum reclaim or unknown.
	lastMet, lastNotClear time.Time
	seen                  time.Time // of the newest sample taken in

	// after: only a sample from after this time counts, when the last thing that
	// was done about it had ended.
	after time.Time
	// acted says that a pod was ended for it on the reading actedValue, which was
	// over at actedAt.
	acted      bool
	actedAt    time.Time
	actedValue uint64
}

// round takes the observation of one round.
func (w *watch) round(th SoftThreshold, o observation, now time.Time) {
	w.fresh = false
	if o.absent {
		w.firstMet, w.past = time.Time{}, false
		return
	}
	if !o.fresh(now) {
		w.firstMet, w.past = time.Time{}, false
		w.lastNotClear = now
		return
	}
	if !o.At.After(w.seen) {
		return
	}
	w.fresh, w.seen = true, o.At
	limit := th.Amount
	if w.past {
		limit += th.MinReclaim
	}
	if !Met(o.Highest, th.Amount) {
		w.armed = true
	}
	if !Met(o.Highest, limit) {
		w.firstMet, w.past = time.Time{}, false
		limit = th.Amount
	}
	met := Met(o.Available, limit)
	switch {
	case !met:
		w.firstMet = time.Time{}
	case w.firstMet.IsZero():
		w.firstMet = o.At
	}
	w.past = met && o.At.Sub(w.firstMet) >= th.Grace
	if met || Met(o.Lowest, th.Amount) {
		w.lastMet = o.At
	}
	if Met(o.Lowest, th.Amount+th.MinReclaim) {
		w.lastNotClear = o.At
	}
}

// due says whether something is to be done about it on this round's sample:
// never twice on one, never on one from before the last thing done had ended,
// and never twice on a reading that stands still.
func (w *watch) due(o observation) bool {
	if !w.armed && !w.observed || !w.past || !w.fresh || !o.At.After(w.after) {
		return false
	}
	return !w.acted || o.Available != w.actedValue || o.At.Sub(w.actedAt) >= sameReading
}

// done notes that a pod was ended for it on a reading, which was over at.
func (w *watch) done(at time.Time, value uint64) {
	w.acted, w.actedAt, w.actedValue, w.after = true, at, value, at
}
