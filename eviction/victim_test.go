package eviction

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Nothing but memory knows of the kill when the hold could not be written: the
// victim is not taken a second time while it dies.
func TestDyingVictimIsNotTakenAgainWithoutAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.broken = &brokenHolds{write: errors.New("no space left on tmpfs")}
		c := r.add(testPod{uid: "dying", usage: 4 * gi})
		c.immortal = true
		r.runtime.failStops(errors.New("connection refused"))
		r.add(testPod{uid: "next", usage: 2 * gi})
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(300 * mi)
		pass(5 * time.Second)
		c.change(func(c *fakeCgroup) { c.immortal = false })
		pass(10 * time.Second)
		r.runtime.failStops(nil)
		pass(10 * time.Second)
		got := r.outcomes()
		slices.Sort(got) // that of the slower one is told later
		if want := []string{"evicted dying", "evicted next"}; !slices.Equal(got, want) {
			t.Errorf("decisions %q, want %q", got, want)
		}
		for _, rep := range r.eng.History(2) {
			if rep.Kill.HoldError != "no space left on tmpfs" {
				t.Errorf("%s: hold error %q", rep.Victim, rep.Kill.HoldError)
			}
		}
		if n := strings.Count(strings.Join(r.lines.all(), "\n"), "the hold could not be written: kubelet may start this pod again at once: no space"); n != 2 {
			t.Errorf("said %d times that there is no hold", n)
		}
	})
}

// Between the killer thread and the slow half only the intent tells that a kill
// is under way: its descriptors stay open although the pod leaves the inventory.
func TestIntentKeepsDescriptorsOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "hog", usage: 4 * gi})
		e := r.build()
		if err := e.syncer.Refresh(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		e.publishPlan()
		r.node.setAvailable(200 * mi)
		e.sampler.tick()
		e.killer.carryOut(<-e.orders)
		r.runtime.mu.Lock()
		clear(r.runtime.sandboxes)
		r.runtime.mu.Unlock()
		if err := e.syncer.Refresh(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		e.publishPlan()
		if c.closes != 0 {
			t.Fatal("closed before the slow half took over")
		}
		e.start(t.Context(), <-e.decided, OutcomeEvicted)
		pass(time.Second)
		if got := r.state("hog"); got != "killed" {
			t.Errorf("hold %s", got)
		}
		e.publishPlan()
		if c.closes != 1 {
			t.Errorf("closed %d times after it", c.closes)
		}
	})
}

// A pod that is held and cannot be stopped is no victim again: nobody is
// evicted twice for one breach.
func TestHeldPodIsNoVictimAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "hog", usage: 4 * gi})
		defer r.evicted("hog")()
		r.runtime.failStops(errors.New("context deadline exceeded"))
		c.change(func(c *fakeCgroup) { c.procs, c.current = true, 4*gi })
		r.sandbox(testPod{namespace: "default", name: "hog", uid: "hog"}, 1, c.path, c)
		r.eng.syncer.MarkDirty()
		pass(time.Second)
		r.node.setAvailable(50 * mi)
		pass(5 * time.Second)
		r.wantOutcomes("evicted hog", "noVictim -")
		if n := len(r.writer.Records()); n != 1 {
			t.Errorf("%d records", n)
		}
	})
}
