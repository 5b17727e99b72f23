package eviction

import "time"

const (
	// notFalling is how long a victim's usage may stand still before the next
	// victim is taken (design §9).
	notFalling = 2 * time.Second
	// fallStep is the least that counts as falling.
	fallStep = 1 * mi
	// killWatchdog is how long the kill may take to be sent before the fallback
	// thread takes over (bugs.md B15).
	killWatchdog = 100 * time.Millisecond
	// bigVictim is a gain that is waited for even where it does not make up for
	// the whole shortage: the kernel frees about 12 GiB/s, so that a victim of
	// this size is visibly shrinking for some 100 ms.
	bigVictim = 1 << 30
	// shrinkWindow is what a victim's pace is taken over; a kill that was ordered
	// less than that ago counts as shrinking.
	shrinkWindow = 100 * time.Millisecond
	// shrinkDivisor: a victim visibly shrinks when it gives back this part of the
	// shortage in a window, which makes up for all of it within a second. A
	// victim that only trickles, because it is throttled or swapped out, is not
	// worth waiting for while the node runs dry.
	shrinkDivisor = 10
)

// emergencyLine is where available has to fall to for a second kill while one is
// in flight: half the threshold (design §8) or, where that was passed before the
// first kill, half of what was left then.
func emergencyLine(amount, available uint64) uint64 {
	if half := amount / 2; available >= half {
		return half
	}
	return available / 2
}

// follow looks at the kills in flight and drops those nobody has to wait for any
// more. It says whether one was in flight when it was called, and whether one
// ended: the sample may be older than that, so the next one counts.
func (s *Sampler) follow(now time.Time) (busy, ended bool) {
	busy = s.inflight != nil
	if s.second != nil && s.over(s.second, now) {
		s.second, ended = nil, true
	}
	if s.inflight != nil && s.over(s.inflight, now) {
		s.inflight, s.second, ended = s.second, nil, true
	}
	return busy, ended
}

// over says whether a kill need not be waited for any more, and sees to it that
// a stuck one is noticed.
func (s *Sampler) over(d *Decision, now time.Time) bool {
	switch d.kill.at() {
	case killSettled:
		gain := d.Candidates[d.Victim].Gain
		for i, h := range s.hards() {
			h.core.pending.add(now, gain, d.bases[i])
		}
		s.hardOf(d.Signal).breaker.over(d.At)
		return true
	case killAbandoned:
		s.hardOf(d.Signal).breaker.over(d.At)
		return true
	case killOrdered:
		// The killer thread may hang in the kill of an earlier victim.
		if !d.kill.claimed.Load() {
			s.watch(d, now.Sub(d.At))
		}
	case killIntent:
		s.watch(d, now.Sub(time.Unix(0, d.kill.intentAt.Load())))
	}
	d.kill.shrinks(d.pod(), now)
	if now.Sub(d.kill.lastFall) > notFalling+d.Grace {
		// It goes on dying in the slow half; the node cannot wait for it.
		s.hardOf(d.Signal).breaker.over(d.At)
		return true
	}
	return false
}

// shrinks takes a look at the victim's usage.
func (k *kill) shrinks(pod *PlanPod, now time.Time) {
	u, known := pod.usage()
	switch {
	case k.lastFall.IsZero():
		k.lowest, k.lastFall = u, now
		k.windowFrom, k.windowAt = u, now
	case known && u+fallStep <= k.lowest:
		k.lowest, k.lastFall = u, now
	}
	if !known {
		return
	}
	k.fell = k.windowFrom - min(k.windowFrom, u)
	if now.Sub(k.windowAt) >= shrinkWindow {
		k.pace, k.fell = k.fell, 0
		k.windowFrom, k.windowAt = u, now
	}
}

// worthWaiting says whether the victim is big enough to make up for the shortage
// and visibly shrinking.
func (d *Decision) worthWaiting(shortage uint64, now time.Time) bool {
	gain := d.Candidates[d.Victim].Gain
	if gain < shortage && gain <= bigVictim {
		return false
	}
	if now.Sub(d.At) < shrinkWindow {
		return true
	}
	return max(d.kill.pace, d.kill.fell) >= max(shortage/shrinkDivisor, fallStep)
}

// emergency says whether a second victim may be taken although a kill is in
// flight: so little is left, no other second one is in flight, and the first is
// not worth waiting for.
func (s *Sampler) emergency(h *hard, st *step, now time.Time) bool {
	if !st.emergency || s.inflight == nil || s.second != nil {
		return false
	}
	v := &st.verdict
	return !s.inflight.worthWaiting(h.core.rules.Amount-min(h.core.rules.Amount, v.Available), now)
}

// watch gives a kill that takes too long to the fallback thread, once.
func (s *Sampler) watch(d *Decision, since time.Duration) {
	if since <= killWatchdog || !d.kill.fallback.CompareAndSwap(false, true) {
		return
	}
	select {
	case s.stuck <- d:
	default:
		d.kill.fallback.Store(false) // the next tick tries again
	}
}

// expect notes a kill that is over and was not the sampler's, as at the end of a
// soft eviction: gain bytes are to come back, counted from bases, which are those
// of the time of its decision. It never waits.
func (s *Sampler) expect(gain uint64, bases [hardSignals]uint64) {
	select {
	case s.elsewhere <- release{gain: gain, bases: bases}:
	default: // nothing waits for it then
	}
}

// release is memory that a kill elsewhere will give back, in bytes.
type release struct {
	gain  uint64
	bases [hardSignals]uint64
}

// bases are what is available now by each hard signal, in bytes.
func (s *Sampler) bases() (out [hardSignals]uint64) {
	for i, h := range s.hards() {
		out[i] = h.latest.available.Load()
	}
	return out
}

// takeReleases adds what other kills will give back.
func (s *Sampler) takeReleases(now time.Time) {
	for {
		select {
		case r := <-s.elsewhere:
			for i, h := range s.hards() {
				h.core.pending.add(now, r.gain, r.bases[i])
			}
		default:
			return
		}
	}
}
