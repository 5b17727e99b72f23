package eviction

import (
	"errors"
	"testing"
	"time"
)

var errKilled = errors.New("kill -9")

// bugs.md B42: kill -9 between intent and kill, and 50 ms after the kill while
// its memory has not come back yet. Started again the hold stands, so that u1 is
// refused, and there is no second victim for the same breach.
func TestCaseB42(t *testing.T) {
	for _, tt := range []struct {
		name    string
		between bool
		// the number right after the restart, until a second later
		available uint64
		want      []string
	}{
		{"between intent and kill", true, 200 * mi, []string{"resumed u1"}},
		{"50 ms after the kill", false, 300 * mi, []string{"resumed u1"}},
		{"50 ms after the kill, just above half", false, 250 * mi, []string{"resumed u1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.add(testPod{uid: "u1", usage: 2 * gi})
				other := r.add(testPod{uid: "u2", usage: gi})
				if tt.between {
					r.between = func() { panic(errKilled) }
				}
				e := r.build()
				if err := e.syncer.Refresh(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				e.publishPlan()
				r.node.setAvailable(tt.available)
				e.sampler.tick()
				time.Sleep(alarm)
				e.sampler.tick()
				func() {
					defer func() {
						if got := recover(); tt.between && got != errKilled {
							t.Fatalf("ended with %v", got)
						}
					}()
					e.killer.carryOut(<-e.orders)
				}()
				time.Sleep(50 * time.Millisecond) // and it is gone
				e.planner.closeAll()
				if got := r.state("u1"); got != "intent" {
					t.Fatalf("left behind: %s", got)
				}
				r.between = nil
				if !tt.between {
					r.node.setAvailable(tt.available) // on per-CPU lists still
				}
				stop := r.start()
				defer stop()
				if _, held := openReader(t, r.dir).Held("u1"); !held {
					t.Error("not held at the restart")
				}
				pass(time.Second)
				if !tt.between {
					r.node.setAvailable(tt.available + 2*gi)
				}
				pass(5 * time.Second)
				if got := r.state("u1"); got != "killed" {
					t.Errorf("hold %s", got)
				}
				if killsOf(other) != 0 {
					t.Error("a second victim for the same breach")
				}
				r.wantOutcomes(tt.want...)
			})
		})
	}
}

// What an earlier process killed is waited for like a kill of one's own: not for
// ever, not below half the threshold, and not twice.
func TestReleasesOfAnEarlierProcess(t *testing.T) {
	for _, tt := range []struct {
		name      string
		ago       time.Duration
		available uint64
		want      []string
	}{
		{"killed just now", 2 * time.Second, 300 * mi, []string{"resumed u1"}},
		{"killed long ago", pendingFor, 300 * mi, []string{"resumed u1", "evicted u2"}},
		{"below half the threshold", 2 * time.Second, 249 * mi, []string{"resumed u1", "evicted u2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.add(testPod{uid: "u1", usage: 2 * gi})
				r.add(testPod{uid: "u2", usage: gi})
				stop := r.evicted("u1")
				stop()
				h, _ := r.hold("u1")
				time.Sleep(tt.ago - time.Since(h.KilledAt))
				r.node.setAvailable(tt.available)
				defer r.start()()
				pass(5 * time.Second)
				r.wantOutcomes(tt.want...)
			})
		})
	}
}
