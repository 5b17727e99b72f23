package eviction

import "time"

const (
	// breakerPause is how long a signal whose kills do not help stands still.
	breakerPause = time.Minute
	// breakerTries is how many kills in a row may be of no use.
	breakerTries = 2
	// budgetWindow is what a kill budget is counted over.
	budgetWindow = time.Hour
	// budgetMost is the largest kill budget that is told from none.
	budgetMost = 1024
)

// breaker stops a signal whose kills do not help (design §8). It is pure: time
// is passed in. It does not allocate, so that the fast half can own one; a soft
// threshold has its own.
type breaker struct {
	// trials are kills whose use is not known yet: one in flight, a second in
	// an emergency.
	trials  [breakerTries]trial
	useless int       // kills in a row that were of no use
	until   time.Time // open until then
	why     NoVictim  // and for this reason
	// outside: a victim was taken in this breach although all pods together
	// could not have made up for the shortage.
	outside    bool
	clearSince time.Time
	kills      [budgetMost]time.Time // a ring, the newest at (n-1) % budgetMost
	n          int
}

// trial is one kill and what it was expected to give, in bytes.
type trial struct {
	at         time.Time // of its decision; zero: unused
	gain, base uint64
	over       bool // nobody waits for it any more
}

// observe takes what is available in each sample, and whether that is clear:
// above the threshold plus its minimum reclaim.
func (b *breaker) observe(now time.Time, available uint64, clear bool) {
	for i := range b.trials {
		t := &b.trials[i]
		if !t.at.IsZero() && available >= t.base+t.gain/2 {
			b.useless = 0
			*t = trial{}
		}
	}
	if !clear {
		b.clearSince = time.Time{}
		return
	}
	b.outside = false
	if b.clearSince.IsZero() {
		b.clearSince = now
	}
	if now.Sub(b.clearSince) >= breakerPause {
		b.useless, b.trials = 0, [breakerTries]trial{}
	}
}

// note takes a kill that is ordered: gain bytes are expected, counted from base,
// what is available now. outside says that all pods together could not make up
// for the shortage: nobody else is taken then for a while, and in this breach
// not while that stays so.
func (b *breaker) note(now time.Time, gain, base uint64, outside bool) {
	i := 0
	for i < len(b.trials)-1 && !b.trials[i].at.IsZero() {
		i++
	}
	b.trials[i] = trial{at: now, gain: gain, base: base}
	b.count(now)
	if outside {
		b.outside = true
		b.open(now, OutsidePressure)
	}
}

// over says that nobody waits any more for the kill that was decided at this
// time: it is done, given up, or the victim does not shrink.
func (b *breaker) over(decided time.Time) {
	for i := range b.trials {
		if t := &b.trials[i]; t.at.Equal(decided) {
			t.over = true
		}
	}
}

// stops says, when a victim is wanted, why none may be taken now; Chosen when
// one may. The kills before that are over and did not make available rise by
// half of what was expected count as useless.
func (b *breaker) stops(now time.Time) NoVictim {
	if now.Before(b.until) {
		return b.why
	}
	for i := range b.trials {
		if t := &b.trials[i]; !t.at.IsZero() && t.over {
			b.useless++
			*t = trial{}
		}
	}
	if b.useless >= breakerTries {
		b.open(now, Cascade)
		return Cascade
	}
	return Chosen
}

// state returns until when the breaker is open, and why; Chosen when it is not.
func (b *breaker) state(now time.Time) (time.Time, NoVictim) {
	if now.Before(b.until) {
		return b.until, b.why
	}
	return time.Time{}, Chosen
}

func (b *breaker) open(now time.Time, why NoVictim) {
	b.until, b.why, b.useless = now.Add(breakerPause), why, 0
}

// count notes a kill for the budget; kills have to be given in the order of
// their time.
func (b *breaker) count(at time.Time) {
	b.kills[b.n%budgetMost] = at
	b.n++
}

// spent says whether this many kills were made in the hour before now; 0 is no
// budget at all.
func (b *breaker) spent(now time.Time, budget int) bool {
	if budget <= 0 || budget > budgetMost || b.n < budget {
		return false
	}
	return now.Sub(b.kills[(b.n-budget)%budgetMost]) < budgetWindow
}
