package eviction

import (
	"testing"
	"time"
)

// Freed memory can take seconds to show in MemAvailable. What a dead victim will
// still give back must not cost a second pod its life.
func TestMemoryThatIsComingBackIsWaitedFor(t *testing.T) {
	rules := Rules{Amount: 500 * mi, Floor: 100 * mi}
	decideWithin := func(c *core, from time.Duration, available uint64, samples int) bool {
		for i := range samples {
			s := sample(from+time.Duration(i)*10*time.Millisecond, available, available)
			if c.step(&s, false).action == decide {
				return true
			}
		}
		return false
	}
	dead := func(gain uint64) *core {
		c := &core{rules: rules}
		c.pending.add(t0, gain, 490*mi)
		return c
	}
	t.Run("nothing shows yet", func(t *testing.T) {
		c := dead(400 * mi)
		if decideWithin(c, 0, 490*mi, 900) {
			t.Error("a second victim while 400 MiB are to come back")
		}
		if !decideWithin(c, pendingFor+time.Millisecond, 490*mi, 2) {
			t.Error("no second victim when nothing came back in 10 s")
		}
	})
	t.Run("what is to come does not suffice", func(t *testing.T) {
		if !decideWithin(dead(5*mi), 0, 490*mi, 2) {
			t.Error("5 MiB to come were taken for a shortage of 10")
		}
	})
	t.Run("what came back is not expected again", func(t *testing.T) {
		c := dead(400 * mi)
		s := sample(0, 890*mi, 890*mi)
		c.step(&s, false)
		if !decideWithin(c, 10*time.Millisecond, 490*mi, 2) {
			t.Error("memory that was back and is gone again is still expected")
		}
	})
	t.Run("below half nobody waits", func(t *testing.T) {
		if !decideWithin(dead(4*gi), 0, 249*mi, 1) {
			t.Error("waited below half the threshold")
		}
	})
	t.Run("below the floor nobody waits", func(t *testing.T) {
		c := &core{rules: Rules{Amount: 500 * mi, Floor: 400 * mi}}
		c.pending.add(t0, 4*gi, 390*mi)
		if !decideWithin(c, 0, 390*mi, 2) {
			t.Error("waited below the floor")
		}
	})
	t.Run("two dead victims add up", func(t *testing.T) {
		c := dead(100 * mi)
		c.pending.add(t0.Add(time.Second), 200*mi, 490*mi)
		if got := c.pending.left(t0.Add(time.Second), 490*mi); got != 300*mi {
			t.Errorf("%d MiB are to come, want 300", got/mi)
		}
	})
}
