package gc

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The earliest of those that are newer by both signs, looked for one by one.
func TestSuccessors(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		stamps := make([]stamp, r.IntN(12))
		for i := range stamps {
			stamps[i] = stamp{noon.Add(time.Duration(r.IntN(8)) * time.Second), uint32(r.IntN(6))}
		}
		odd := func(i int) bool { return i%2 == 1 }
		for _, counts := range []func(int) bool{odd, func(int) bool { return true }} {
			got := successors(stamps, counts)
			for i, s := range stamps {
				want := -1
				for j, d := range stamps {
					if counts(j) && d.created.After(s.created) && d.attempt > s.attempt && (want < 0 || d.created.Before(stamps[want].created)) {
						want = j
					}
				}
				switch {
				case want < 0 && got[i] < 0:
				case want < 0 || got[i] < 0 || !counts(got[i]) || stamps[got[i]].attempt <= s.attempt || !stamps[got[i]].created.Equal(stamps[want].created):
					t.Fatalf("%+v: after %d comes %d, want %d", stamps, i, got[i], want)
				default:
					found++
				}
			}
		}
	}
	if found < 1000 {
		t.Errorf("%d successors were compared", found)
	}
}
