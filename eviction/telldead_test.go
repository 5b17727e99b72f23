package eviction

import (
	"testing"
	"time"
)

// Kubernetes is told when the runtime has noted the end, not before; a runtime that
// does not answer, or does not note it, keeps nothing back for long.
func TestToldWhenTheRuntimeHasNotedTheEnd(t *testing.T) {
	for _, tt := range []struct {
		what  string
		hooks *fakeHooks
		after time.Duration
	}{
		{"at once", &fakeHooks{}, 0},
		{"a while later", &fakeHooks{notes: 300 * time.Millisecond}, 300 * time.Millisecond},
		{"never", &fakeHooks{notes: time.Hour}, exitNotedWithin},
		{"the runtime is away", &fakeHooks{unknown: true}, 0},
	} {
		t.Run(tt.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.teller, r.hooks = &fakeTeller{working: true}, tt.hooks
				r.add(testPod{uid: "hog", usage: 2 * gi})
				stop := r.evicted("hog")
				defer stop()
				pass(3 * time.Second)
				rep := r.eng.History(1)[0]
				r.teller.want(t, "met memory.available", "evicted hog")
				if got := r.teller.at[1].Sub(rep.Time.Add(rep.Kill.Empty)); got < tt.after || got > tt.after+20*time.Millisecond {
					t.Errorf("told %v after no process was left, want %v", got, tt.after)
				}
			})
		})
	}
}

// Where no proxy keeps the pod from starting, kubelet has to hear of it before it
// sees the sandbox's end.
func TestToldAtOnceWithoutAProxy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.teller, r.hooks = &fakeTeller{working: true}, &fakeHooks{notes: time.Second}
		r.unheld = true
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		hog.change(func(c *fakeCgroup) { c.immortal = true }) // still dying
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(breach)
		pass(1200 * time.Millisecond)
		if len(r.teller.notices) != 1 || killsOf(hog) == 0 {
			t.Errorf("told %d times, %d kills, while it dies", len(r.teller.notices), killsOf(hog))
		}
	})
}
