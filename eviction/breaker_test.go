package eviction

import (
	"testing"
	"time"
)

// uselessKill lets a kill come to its end without any memory coming back.
func (b *breaker) uselessKill(now time.Time) {
	b.note(now, gi, 100*mi, false)
	b.observe(now.Add(time.Millisecond), 100*mi, false)
	b.over(now)
}

func TestCascadeStopsAfterTwoUselessKills(t *testing.T) {
	var b breaker
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	for i := range 2 {
		if why := b.stops(at(i)); why != Chosen {
			t.Fatalf("kill %d: stopped for %v", i, why)
		}
		b.uselessKill(at(i))
	}
	if why := b.stops(at(2)); why != Cascade {
		t.Fatalf("after two kills without effect: %v", why)
	}
	if until, why := b.state(at(2)); why != Cascade || !until.Equal(at(62)) {
		t.Errorf("open for %v until %v", why, until)
	}
	if why := b.stops(at(61)); why != Cascade {
		t.Errorf("after 59 s: %v", why)
	}
	if why := b.stops(at(62)); why != Chosen {
		t.Errorf("after a minute: %v", why)
	}
	if _, why := b.state(at(62)); why != Chosen {
		t.Errorf("still shown as open: %v", why)
	}
}

func TestCascadeForgetsWhenAKillHelped(t *testing.T) {
	for _, tt := range []struct {
		name string
		rise uint64
		want NoVictim
	}{
		{"half of the gain came back", 512 * mi, Chosen},
		{"a bit less than half", 512*mi - 1, Cascade},
		{"nothing", 0, Cascade},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b breaker
			b.uselessKill(t0)
			b.stops(t0)
			now := t0.Add(time.Second)
			b.note(now, gi, 100*mi, false)
			b.observe(now, 100*mi+tt.rise, false)
			b.observe(now, 90*mi, false) // somebody else took it
			b.over(now)
			if why := b.stops(now.Add(time.Second)); why != tt.want {
				t.Errorf("stopped for %v, want %v", why, tt.want)
			}
		})
	}
}

// A kill in flight is not judged; both of an emergency are afterwards.
func TestCascadeCountsOnlyKillsThatAreOver(t *testing.T) {
	var b breaker
	second := t0.Add(time.Millisecond)
	b.note(t0, gi, 100*mi, false)
	if why := b.stops(second); why != Chosen {
		t.Fatalf("stopped for %v while the first is in flight", why)
	}
	b.note(second, gi, 50*mi, false)
	b.over(t0)
	b.over(second)
	if why := b.stops(t0.Add(time.Second)); why != Cascade {
		t.Errorf("two kills of an emergency without effect: %v", why)
	}
}

func TestCascadeForgetsAfterAClearMinute(t *testing.T) {
	for _, tt := range []struct {
		clear time.Duration
		want  NoVictim
	}{{breakerPause, Chosen}, {breakerPause - time.Second, Cascade}} {
		var b breaker
		b.uselessKill(t0)
		now := t0
		for ; now.Sub(t0) <= tt.clear; now = now.Add(time.Second) {
			b.observe(now, 600*mi, true)
		}
		b.observe(now, 100*mi, false)
		b.stops(now)
		b.uselessKill(now)
		if why := b.stops(now.Add(time.Second)); why != tt.want {
			t.Errorf("clear for %v between two useless kills: %v, want %v", tt.clear, why, tt.want)
		}
	}
}

func TestOutsidePressureTakesOneVictimAMinute(t *testing.T) {
	var b breaker
	b.note(t0, 100*mi, 90*mi, true)
	if why := b.stops(t0.Add(59 * time.Second)); why != OutsidePressure {
		t.Errorf("within the minute: %v", why)
	}
	if why := b.stops(t0.Add(60 * time.Second)); why != Chosen || !b.outside {
		t.Errorf("after it: %v, a victim was taken in this breach: %v", why, b.outside)
	}
	b.observe(t0.Add(61*time.Second), 600*mi, true)
	if b.outside {
		t.Error("the breach is over and its victim still counts")
	}
}

func TestKillBudget(t *testing.T) {
	var b breaker
	at := func(m int) time.Time { return t0.Add(time.Duration(m) * time.Minute) }
	for i := range 3 {
		if b.spent(at(10*i), 3) {
			t.Fatalf("spent after %d kills", i)
		}
		b.count(at(10 * i))
	}
	for _, tt := range []struct {
		minute, budget int
		want           bool
	}{{20, 3, true}, {59, 3, true}, {60, 3, false}, {59, 4, false}, {59, 0, false}, {59, budgetMost + 1, false}, {59, 2, true}, {69, 2, true}, {70, 2, false}} {
		if got := b.spent(at(tt.minute), tt.budget); got != tt.want {
			t.Errorf("minute %d, budget %d: spent %v", tt.minute, tt.budget, got)
		}
	}
	for i := range 3 * budgetMost {
		b.count(at(60).Add(time.Duration(i) * time.Second))
	}
	last := at(60).Add(3 * budgetMost * time.Second)
	if !b.spent(last, budgetMost) || b.spent(last.Add(time.Hour), 1) {
		t.Error("a ring that went round forgets or invents kills")
	}
}
