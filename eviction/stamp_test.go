package eviction

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStampsGoWithTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stamps{base: time.Now()}
		time.Sleep(3 * time.Second)
		n := s.of(time.Now())
		time.Sleep(2 * time.Second)
		if age := time.Since(s.time(n)); age != 2*time.Second {
			t.Errorf("%s old, want 2s", age)
		}
		// As when somebody has set the clock: the wall time of base is another one's.
		moved := stamps{base: s.base}
		if got := moved.time(moved.of(s.base.Add(time.Hour))); got.Sub(s.base) != time.Hour {
			t.Errorf("%s", got)
		}
	})
	for _, s := range []stamps{{}, {base: time.Unix(1e9, 5)}} {
		at := time.Unix(2e9, 77)
		if n := s.of(at); n != at.UnixNano() || !s.time(n).Equal(at) {
			t.Errorf("without a monotonic reading %d is %s", n, s.time(n))
		}
	}
}
