package eviction

import (
	"errors"
	"testing"
	"time"
)

// hardMemoryGrace gives back kubelet's 2 s: the runtime stops the victim, and
// its cgroup is killed only when that does not end it.
func TestHardMemoryGrace(t *testing.T) {
	for _, tt := range []struct {
		name      string
		grace     time.Duration
		available uint64
		runtime   error
		from, to  time.Duration // of the direct kill after the decision; 0: none
	}{
		{"it ends by itself", 2 * time.Second, 450 * mi, nil, 0, 0},
		{"the runtime does not stop it", 2 * time.Second, 450 * mi, errors.New("context deadline exceeded"), 2 * time.Second, 2500 * time.Millisecond},
		{"none below half the threshold", 2 * time.Second, 200 * mi, nil, time.Nanosecond, 50 * time.Millisecond},
		{"none by default", 0, 450 * mi, nil, time.Nanosecond, 50 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.set.HardGrace = tt.grace
				c := r.add(testPod{uid: "hog", usage: 2 * gi})
				other := r.add(testPod{uid: "other", usage: 600 * mi})
				var killed time.Time
				c.onKill = func() {
					if killed.IsZero() {
						killed = time.Now()
					}
				}
				r.runtime.failStops(tt.runtime)
				stop := r.start()
				defer stop()
				pass(2 * time.Second)
				r.node.setAvailable(tt.available)
				pass(5 * time.Second)
				rep := r.eng.History(1)
				if len(rep) != 1 || rep[0].Outcome != OutcomeEvicted {
					t.Fatalf("decisions %q", r.outcomes())
				}
				after := killed.Sub(rep[0].Time)
				if killed.IsZero() {
					after = 0
				}
				if after < tt.from-time.Nanosecond || after > tt.to || tt.from == 0 && !killed.IsZero() || tt.from != 0 && killed.IsZero() {
					t.Errorf("killed directly %v after the decision, want %v to %v", after, tt.from, tt.to)
				}
				if killsOf(other) != 0 {
					t.Error("another pod was killed meanwhile")
				}
				if h, ok := r.hold("hog"); !ok || h.State.String() != "killed" {
					t.Errorf("hold %+v", h)
				}
			})
		})
	}
}
