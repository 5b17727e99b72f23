package diskusage

import (
	"testing"
	"time"
)

// Of all the time that passes, the walker works one part in twenty.
func TestRest(t *testing.T) {
	var worked, passed time.Duration
	for _, w := range []time.Duration{0, 1, time.Microsecond, time.Millisecond, stepTime, 80 * time.Millisecond, time.Second, 3 * time.Second} {
		r := rest(w)
		worked += w
		passed += w + r
		if w*share > w+r {
			t.Errorf("after %v: %v", w, r)
		}
		if r <= 0 || r > maxRest {
			t.Errorf("after %v: %v", w, r)
		}
	}
	if worked*share > passed {
		t.Errorf("%v of %v", worked, passed)
	}
	if r := rest(time.Hour); r != maxRest {
		t.Errorf("after a call that hung: %v", r)
	}
}

// A runtime that takes long is asked less often (bugs.md B109).
func TestStatsPeriod(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: statsCalm, time.Second: statsCalm, 2 * time.Second: 30 * time.Second, 8 * time.Second: 80 * time.Second,
	} {
		if got := statsPeriod(took); got != want {
			t.Errorf("took %v: %v, want %v", took, got, want)
		}
	}
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		name string
		c    candidate
		age  time.Duration
		near bool
		want bool
	}{
		{"never walked", candidate{}, 0, false, true},
		{"in the middle", candidate{began: t0, walking: true}, 0, false, true},
		{"just done", candidate{began: t0}, walkNear, false, false},
		{"long ago", candidate{began: t0}, walkCalm, false, true},
		{"near", candidate{began: t0}, walkNear, true, true},
		{"near and just done", candidate{began: t0}, walkNear - 1, true, false},
		{"the clock was set back", candidate{began: t0}, -time.Hour, false, true},
	} {
		if got := c.c.due(t0.Add(c.age), c.near); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
