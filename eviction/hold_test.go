package eviction

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// evicted runs the rig until its first victim is dead and the memory is back.
func (r *rig) evicted(uid string) (stop func()) {
	r.t.Helper()
	stop = r.start()
	pass(2 * time.Second)
	r.node.setAvailable(300 * mi)
	pass(1200 * time.Millisecond) // the calm period is 1 s
	r.t.Cleanup(stop)
	if h, ok := r.hold(uid); !ok || h.State.String() != "killed" {
		r.t.Fatalf("%s: hold %v, state %v", uid, ok, h.State)
	}
	return stop
}

func (r *rig) state(uid string) string {
	h, ok := r.hold(uid)
	if !ok {
		return "none"
	}
	if h.ReleaseReason != "" {
		return h.State.String() + " " + h.ReleaseReason
	}
	return h.State.String()
}

// wanted tells the inventory that kubelet asked for the pod again.
func (r *rig) wanted(uid string) {
	r.eng.syncer.Take(inventory.Event{Type: inventory.SandboxWanted, Time: time.Now(), Pod: inventory.Ref{UID: uid}})
}

// bugs.md B35: the hold stands until the pressure is over for the transition
// period and the back-off, which doubles.
func TestCaseB35(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		p := testPod{uid: "hog", usage: 2 * gi}
		c := r.add(p)
		defer r.evicted("hog")()
		for i, wait := range []time.Duration{40 * time.Second, 50 * time.Second, 70 * time.Second} {
			r.node.setAvailable(8 * gi)
			pass(wait - 3*time.Second)
			if got := r.state("hog"); got != "killed" {
				t.Fatalf("eviction %d: %s 3 s before its time", i, got)
			}
			pass(6 * time.Second)
			if got := r.state("hog"); got != "released pressure-over" {
				t.Fatalf("eviction %d: %s 3 s after its time", i, got)
			}
			// It starts again and is as greedy as before.
			c.change(func(c *fakeCgroup) { c.procs, c.current = true, 2*gi })
			r.node.setAvailable(8 * gi)
			r.sandbox(testPod{namespace: "default", name: "hog", uid: "hog"}, uint32(i+1), c.path, c)
			r.eng.syncer.MarkDirty()
			pass(2 * time.Second)
			r.node.setAvailable(300 * mi)
			pass(1200 * time.Millisecond)
			if h, _ := r.hold("hog"); h.State.String() != "killed" || h.Repeat != uint32(i+1) {
				t.Fatalf("eviction %d: state %v, repeat %d", i+1, h.State, h.Repeat)
			}
		}
	})
}

func TestHoldStandsUnderPressure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.set.HoldMaximum = 3 * time.Minute
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		for range 17 {
			r.node.setAvailable(400 * mi)
			r.wanted("hog")
			pass(10 * time.Second)
		}
		if got := r.state("hog"); got != "killed" {
			t.Fatalf("%s after 170 s of pressure", got)
		}
		pass(12 * time.Second)
		if got := r.state("hog"); got != "released maximum" {
			t.Errorf("%s after holdMaximum", got)
		}
	})
}

// bugs.md B13, its second half: numbers that are too old prove no recovery.
// (Statistics of the runtime are not used at all; the design wins.) While memory
// cannot be read nothing is let back, and the time without readings does not count
// as clear.
func TestCaseB13OldNumbers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		r.node.setAvailable(8 * gi)
		r.node.fail(errors.New("broken"))
		for range 5 {
			r.wanted("hog")
			pass(time.Minute)
		}
		if got := r.state("hog"); got != "killed" {
			t.Fatalf("%s without any reading", got)
		}
		r.node.fail(nil)
		pass(30 * time.Second)
		if got := r.state("hog"); got != "killed" {
			t.Errorf("%s 30 s after the first reading", got)
		}
		pass(15 * time.Second)
		if got := r.state("hog"); got != "released pressure-over" {
			t.Errorf("%s 45 s after it", got)
		}
	})
}

func TestHoldOfAGonePod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		r.node.setAvailable(400 * mi) // pressure stays
		r.runtime.mu.Lock()
		clear(r.runtime.sandboxes)
		clear(r.runtime.containers)
		r.runtime.mu.Unlock()
		r.eng.syncer.MarkDirty()
		pass(time.Minute)
		r.wanted("hog") // kubelet still tries
		pass(115 * time.Second)
		if got := r.state("hog"); got != "killed" {
			t.Fatalf("%s although kubelet asked for it less than 2 min ago", got)
		}
		pass(10 * time.Second)
		if got := r.state("hog"); got != "none" {
			t.Errorf("%s, want no record of a pod that is gone", got)
		}
		if n := len(r.eng.repeats); n != 0 {
			t.Errorf("%d pods remembered", n)
		}
	})
}

// A list that cannot be read proves nobody gone.
func TestUnreadableListKeepsHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		r.node.setAvailable(400 * mi)
		r.runtime.mu.Lock()
		clear(r.runtime.sandboxes)
		clear(r.runtime.containers)
		r.runtime.mu.Unlock()
		r.eng.syncer.MarkDirty()
		pass(time.Second)
		r.runtime.mu.Lock()
		r.runtime.listErr = errors.New("connection refused")
		r.runtime.mu.Unlock()
		for range 4 {
			r.eng.syncer.MarkDirty()
			pass(time.Minute)
		}
		if got := r.state("hog"); got != "killed" {
			t.Errorf("%s although nobody knows what runs", got)
		}
	})
}

func TestReleaseByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "u1", namespace: "shop", name: "cart", usage: 2 * gi})
		r.add(testPod{uid: "u2", namespace: "shop", name: "till", usage: gi})
		stop := r.evicted("u1")
		defer stop()
		r.node.setAvailable(300 * mi)
		pass(1200 * time.Millisecond)
		for _, tt := range []struct {
			name string
			want []string
		}{{"shop/none", nil}, {"cart", nil}, {"shop/cart", []string{"u1"}}, {"shop/cart", nil}, {"u2", []string{"u2"}}} {
			var got []string
			for _, rec := range r.eng.ReleaseByHand(tt.name) {
				got = append(got, rec.UID)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q released %q, want %q", tt.name, got, tt.want)
			}
		}
		for _, uid := range []string{"u1", "u2"} {
			if got := r.state(uid); got != "released by-hand" {
				t.Errorf("%s: %s", uid, got)
			}
		}
	})
}

// What comes up although it is held is stopped again: a sandbox whose
// RunPodSandbox was under way, a container created while held.
func TestHeldPodThatComesUpIsStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		before := len(r.runtime.stopped())
		p := testPod{namespace: "default", name: "hog", uid: "hog"}
		c.change(func(c *fakeCgroup) { c.procs = true })
		r.runtime.failStops(errors.New("context deadline exceeded"))
		id := r.sandbox(p, 1, c.path, c)
		r.eng.syncer.Take(inventory.Event{
			Type: inventory.SandboxStarted, Time: time.Now(), Pod: inventory.Ref{Namespace: "default", Name: "hog", UID: "hog"},
			Sandbox: inventory.Sandbox{ID: id, Attempt: 1, Ready: true, CgroupParent: c.path},
		})
		pass(100 * time.Millisecond)
		// While that stop is being repeated, a container is created in it.
		r.eng.syncer.Take(inventory.Event{
			Type: inventory.ContainerCreated, Time: time.Now(), Container: inventory.Container{ID: "late", SandboxID: id, Running: true},
		})
		pass(time.Second)
		r.runtime.failStops(nil)
		pass(10 * time.Second)
		after := r.runtime.stopped()[before:]
		for _, want := range []string{"sandbox " + id, "container late"} {
			if !slices.Contains(after, want) {
				t.Errorf("%s was not stopped: %q", want, after)
			}
		}
		if got := r.state("hog"); got != "killed" {
			t.Errorf("hold %s", got)
		}
		r.wantOutcomes("evicted hog") // it is no second decision
		n := len(r.runtime.stopped())
		pass(20 * time.Second)
		if more := len(r.runtime.stopped()) - n; more > 0 {
			t.Errorf("%d more stops of a pod that is stopped", more)
		}
	})
}

// A runtime that is dead does not delay the next decision, and is told when it
// is back.
func TestDeadRuntimeDoesNotDelaySettling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "big", usage: 2 * gi})
		r.add(testPod{uid: "next", usage: gi})
		r.runtime.failStops(errors.New("connection refused"))
		stop := r.evicted("big")
		defer stop()
		r.node.setAvailable(300 * mi)
		pass(1200 * time.Millisecond)
		r.wantOutcomes("evicted big", "evicted next")
		if rep := r.eng.History(1)[0]; rep.Kill.Settled > 200*time.Millisecond {
			t.Errorf("settled after %v", rep.Kill.Settled)
		}
		pass(30 * time.Second)
		r.runtime.failStops(nil)
		pass(10 * time.Second)
		for _, uid := range []string{"big", "next"} {
			if s := r.runtime.sandboxes["s-"+uid]; s.Ready {
				t.Errorf("the sandbox of %s was never stopped", uid)
			}
		}
	})
}

// A victim that cannot be emptied: the hold is lifted, that is recorded, and the
// next victim did not wait a minute.
func TestVictimThatCannotBeKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "stuck", usage: 4 * gi}).immortal = true
		r.add(testPod{uid: "next", usage: 2 * gi})
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(300 * mi)
		pass(1200 * time.Millisecond)
		if got := r.state("stuck"); got != "intent" {
			t.Fatalf("hold %s while it is being killed", got)
		}
		pass(4 * time.Second)
		if got := r.state("next"); got != "killed" {
			t.Errorf("next victim: %s after 4 s", got)
		}
		pass(time.Minute)
		if got := r.state("stuck"); got != "released kill-failed" {
			t.Errorf("hold %s after a minute", got)
		}
		var failed *Report
		for _, rep := range r.eng.History(10) {
			if rep.Victim.UID == "stuck" {
				failed = &rep
			}
		}
		if failed == nil || failed.Outcome != OutcomeFailed || failed.Kill == nil || failed.Kill.Tries < 10 || !strings.Contains(failed.Summary, "could not be killed in") {
			t.Errorf("report %+v", failed)
		}
	})
}
