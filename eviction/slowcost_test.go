package eviction

import (
	"testing"
)

// A decision asks no runtime, reads each pod's tasks once and nothing else, and
// allocates for the pods as a whole, not for each.
func TestDecideSlowCosts(t *testing.T) {
	for _, s := range []Signal{NodeFsAvailable, PIDAvailable} {
		var allocs [2]float64
		for i, n := range []int{125, 1000} {
			e, w, counts := slowBench(t, n, s)
			d, why := e.chooseSlow(e.settings(), w, t0)
			if d == nil || len(d.Candidates) != n {
				t.Fatalf("%s, %d pods: %s", s, n, why)
			}
			reads := 0
			if s == PIDAvailable {
				reads = n
			}
			if counts.tasks != reads || counts.runtime != 0 {
				t.Errorf("%s, %d pods: %d readings of tasks, %d calls to the runtime; want %d, 0", s, n, counts.tasks, counts.runtime, reads)
			}
			allocs[i] = testing.AllocsPerRun(10, func() { e.chooseSlow(e.settings(), w, t0) })
		}
		if allocs[1] > allocs[0]+2 || allocs[1] > 40 {
			t.Errorf("%s: %.0f allocations for 125 pods, %.0f for 1000", s, allocs[0], allocs[1])
		}
	}
}
