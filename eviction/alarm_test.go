package eviction

import (
	"testing"
	"time"
)

// The alarm is on while the hard memory threshold is met, and not longer.
func TestAlarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		defer r.start()()
		for i, want := range []bool{false, true, false} {
			r.node.setAvailable([]uint64{8 * gi, 200 * mi, 8 * gi}[i])
			pass(5 * time.Second)
			if got := r.eng.Alarm(); got != want {
				t.Errorf("step %d: alarm %v", i, got)
			}
		}
	})
}
