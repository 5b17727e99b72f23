package eviction

import "time"

const (
	periodCalm    = time.Second
	periodNear    = 100 * time.Millisecond
	periodAlarm   = 2 * time.Millisecond
	periodDwell   = 10 * time.Millisecond
	alarmDwell    = time.Second
	nearMultiple  = 4
	timeToDivisor = 8
	// fastestFill is the rate, in bytes per second, that memory is taken to be
	// able to fill at without warning (earlyoom's figure for its own pacing).
	fastestFill = 6 << 30
)

// pace chooses how long to wait for the next sample.
type pace struct {
	last     uint64
	lastAt   time.Time
	fill     float64 // bytes per second that available shrinks by, smoothed
	metSince time.Time
	met      bool
}

// next returns the sampling period of design §7: the time to the threshold ÷ 8
// within [2 ms, 1 s], at most 100 ms while available is below four times the
// threshold; below the threshold 2 ms for the first second and then 10 ms. A
// quiet node gets no longer than it would take to fill it up to the threshold
// at once (at least 100 ms), so that a burst out of nothing is seen before it is
// over (bugs.md B106).
func (p *pace) next(now time.Time, available, amount uint64, met bool) time.Duration {
	p.observe(now, available)
	if met {
		if !p.met {
			p.met, p.metSince = true, now
		}
		if now.Sub(p.metSince) < alarmDwell {
			return periodAlarm
		}
		return periodDwell
	}
	p.met = false
	period := periodCalm
	if available/nearMultiple < amount {
		period = periodNear
	}
	if available > amount {
		fill := time.Duration(float64(available-amount) / fastestFill * float64(time.Second))
		period = min(period, max(fill, periodNear))
	}
	if ttt, ok := p.timeTo(available, amount); ok {
		period = min(period, max(ttt/timeToDivisor, periodAlarm))
	}
	return period
}

// timeTo returns the time until available reaches amount at the present rate;
// ok is false when it is not shrinking.
func (p *pace) timeTo(available, amount uint64) (time.Duration, bool) {
	if p.fill <= 0 || available < amount {
		return 0, false
	}
	s := float64(available-amount) / p.fill
	if s > 3600 {
		return 0, false
	}
	return time.Duration(s * float64(time.Second)), true
}

func (p *pace) observe(now time.Time, available uint64) {
	if p.lastAt.IsZero() {
		p.last, p.lastAt = available, now
		return
	}
	dt := now.Sub(p.lastAt).Seconds()
	if dt <= 0 {
		return
	}
	rate := (float64(p.last) - float64(available)) / dt
	// A rise in the rate counts at once, a fall with half weight: being early
	// costs a few reads, being late costs a node.
	if rate > p.fill {
		p.fill = rate
	} else {
		p.fill = (p.fill + rate) / 2
	}
	p.last, p.lastAt = available, now
}
