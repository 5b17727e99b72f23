package main

import "time"

// pacer says how much of a total is due, so that the average rate is exact
// however late the process is scheduled.
type pacer struct {
	total, rate int64 // bytes, bytes per second; rate 0: everything at once
	start       time.Time
}

// due returns the bytes that should be done by now.
func (p pacer) due(now time.Time) int64 {
	if p.rate == 0 {
		return p.total
	}
	elapsed := now.Sub(p.start)
	if elapsed < 0 {
		return 0
	}
	// Whole seconds apart, so that the product cannot overflow.
	seconds := int64(elapsed / time.Second)
	if seconds > p.total/p.rate {
		return p.total
	}
	rest := float64(elapsed%time.Second) / float64(time.Second) * float64(p.rate)
	return min(p.total, seconds*p.rate+int64(rest))
}

// tick is how often work is done: 400 MiB/s are 400 KiB per step.
const tick = time.Millisecond

// run calls step with growing amounts until the total is done.
func (p pacer) run(step func(done, due int64) error) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for done := int64(0); ; {
		if due := p.due(time.Now()); due > done {
			if err := step(done, due); err != nil {
				return err
			}
			done = due
		}
		if done >= p.total {
			return nil
		}
		<-ticker.C
	}
}
