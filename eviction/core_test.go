package eviction

import (
	"testing"
	"time"
)

func hardCore(amount uint64) *core { return &core{rules: Rules{Amount: amount}} }

func TestOneSampleIsNotEnough(t *testing.T) {
	c := hardCore(500 * mi)
	for i, tt := range []struct {
		kernel uint64
		busy   bool
		want   action
	}{
		{600 * mi, false, calm},
		{490 * mi, false, firstSample},
		{510 * mi, false, calm}, // a dip is forgotten
		{490 * mi, false, firstSample},
		{489 * mi, false, decide},
		{480 * mi, true, waiting},      // a kill is in flight
		{480 * mi, false, firstSample}, // it ended: two fresh ones again
		{480 * mi, false, decide},
	} {
		s := sample(time.Duration(i)*2*time.Millisecond, tt.kernel, tt.kernel)
		if got := c.step(&s, tt.busy).action; got != tt.want {
			t.Fatalf("sample %d: action %d, want %d", i, got, tt.want)
		}
	}
}

func TestBelowHalfOneSampleIsEnough(t *testing.T) {
	c := hardCore(500 * mi)
	s := sample(0, 249*mi, 249*mi)
	if got := c.step(&s, false).action; got != decide {
		t.Errorf("action %d, want decide", got)
	}
}

func TestClearNeedsMinimumReclaim(t *testing.T) {
	c := &core{rules: Rules{Amount: 500 * mi, MinReclaim: 100 * mi}}
	for i, tt := range []struct {
		kernel  uint64
		cleared bool
	}{{599 * mi, false}, {600 * mi, true}, {499 * mi, false}} {
		s := sample(time.Duration(i)*time.Second, tt.kernel, tt.kernel)
		if got := c.step(&s, false).cleared; got != tt.cleared {
			t.Errorf("cleared at %d: %v, want %v", tt.kernel, got, tt.cleared)
		}
	}
}

func TestSamplingPeriod(t *testing.T) {
	const amount = 500 * mi
	t.Run("far and calm", func(t *testing.T) {
		var p pace
		if got := p.next(t0, 8*gi, amount, false); got != time.Second {
			t.Errorf("period %v, want 1s", got)
		}
	})
	t.Run("within four times", func(t *testing.T) {
		var p pace
		if got := p.next(t0, 4*amount-1, amount, false); got != 100*time.Millisecond {
			t.Errorf("period %v, want 100ms", got)
		}
	})
	t.Run("an eighth of the time that is left", func(t *testing.T) {
		var p pace
		p.next(t0, 8*gi+800*mi, amount, false)
		got := p.next(t0.Add(time.Second), 8*gi, amount, false) // 800 MiB/s, 7692 MiB left
		if want := 1201 * time.Millisecond; got != time.Second {
			t.Errorf("period %v, want 1s (an eighth would be %v)", got, want)
		}
		got = p.next(t0.Add(2*time.Second), amount+640*mi, amount, false) // about 7.5 GiB/s
		if got > 12*time.Millisecond || got < 2*time.Millisecond {
			t.Errorf("period %v with 640 MiB left at over 7 GiB/s, want about 10ms", got)
		}
	})
	t.Run("alarm: 2 ms for a second, then 10 ms", func(t *testing.T) {
		var p pace
		for at := time.Duration(0); at < time.Second; at += 100 * time.Millisecond {
			if got := p.next(t0.Add(at), amount-1, amount, true); got != 2*time.Millisecond {
				t.Fatalf("period %v after %v, want 2ms", got, at)
			}
		}
		if got := p.next(t0.Add(time.Second), amount-1, amount, true); got != 10*time.Millisecond {
			t.Errorf("period %v after 1s, want 10ms", got)
		}
		p.next(t0.Add(2*time.Second), amount+1, amount, false)
		if got := p.next(t0.Add(3*time.Second), amount-1, amount, true); got != 2*time.Millisecond {
			t.Errorf("period %v at a new breach, want 2ms", got)
		}
	})
	t.Run("never shorter than 2 ms", func(t *testing.T) {
		var p pace
		p.next(t0, 100*gi, amount, false)
		if got := p.next(t0.Add(time.Millisecond), amount, amount, false); got != 2*time.Millisecond {
			t.Errorf("period %v, want 2ms", got)
		}
	})
}

// bugs.md B09: 600Mi shrinking at 500Mi/s with auto = 500Mi: a decision by
// t = 0.30 s with at least 450Mi left, with the sampler's own pacing.
func TestDecisionComesBeforeTheFloor(t *testing.T) {
	c := hardCore(500 * mi)
	at := time.Duration(0)
	for at < time.Second {
		avail := 600*mi - uint64(at.Seconds()*500*mi)
		s := sample(at, avail, avail)
		st := c.step(&s, false)
		if st.action == decide {
			if at > 300*time.Millisecond || avail < 450*mi {
				t.Errorf("decided at %v with %d MiB left", at, avail/mi)
			}
			return
		}
		at += st.period
	}
	t.Fatal("never decided")
}
