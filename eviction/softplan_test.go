package eviction

import (
	"testing"
	"time"
)

// A hard breach keeps new pods out from its first sample on, not from the next
// round of the slow half on (bugs.md B40).
func TestConditionFromTheFirstSample(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "calm", namespace: "kube-system", usage: 2 * gi})
		r.node.setAvailable(gi) // sampled every 100 ms
		defer r.start()()
		pass(3050 * time.Millisecond) // just after a round
		r.node.setAvailable(300 * mi)
		pass(150 * time.Millisecond)
		if !openReader(t, r.dir).Conditions().Memory {
			t.Error("no condition 150 ms after the breach")
		}
	})
}

// A soft decision is made by a list of the last 10 s, and does not wait for one:
// it is asked for ahead.
func TestSoftDecidesByAFreshList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.set.Rules.Amount = 200 * mi // far off
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(20 * time.Second)
		if age := time.Since(r.eng.store.Snapshot().ListedAt); age < listAge {
			t.Fatalf("listed %s ago without a need", age)
		}
		pass(8 * time.Second)
		if age := time.Since(r.eng.store.Snapshot().ListedAt); age > listAge/2+time.Second {
			t.Errorf("listed %s ago right before the decision", age)
		}
	})
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.startSoft()()
		r.runtime.mu.Lock()
		r.runtime.listErr = errNoHook // any
		r.runtime.mu.Unlock()
		r.node.setAvailable(900 * mi)
		pass(time.Minute)
		r.wantOutcomes()
		if s := r.eng.softNow()[0]; s.Waiting != "the runtime's lists are too old and are being read anew" {
			t.Errorf("waiting: %q", s.Waiting)
		}
		r.runtime.mu.Lock()
		r.runtime.listErr = nil
		r.runtime.mu.Unlock()
		pass(10 * time.Second)
		r.wantOutcomes("evicted hog")
	})
}

// A report that was handed out does not change with the decision.
func TestReportsAreCopies(t *testing.T) {
	e := &Engine{counters: newCounters(), persist: make(chan Report, 1)}
	asked := time.Second
	r := &Report{ID: 1, Soft: &SoftReport{Reclaim: &ReclaimReport{Returned: 1}, Hooks: []HookReport{{Container: "a"}}, PodAsked: &asked}}
	e.keep(r)
	r.Soft.Reclaim.Returned, r.Soft.Hooks[0].Container, r.Soft.Escalated = 2, "b", "late"
	for _, got := range []Report{e.history.newest(1)[0], <-e.persist} {
		if s := got.Soft; s.Reclaim.Returned != 1 || s.Hooks[0].Container != "a" || s.Escalated != "" {
			t.Errorf("%+v", s)
		}
	}
}

// The memory of a soft victim that is still coming back counts for the fast
// half.
func TestSoftVictimsMemoryIsExpected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		r.ignoreTerm("hog", time.Hour)
		defer r.startSoft()()
		r.over("hog")
		pass(29 * time.Second)
		hog.change(func(c *fakeCgroup) { c.immortal = true }) // its memory stays for now
		stopSandbox(r, hog)
		pass(3 * time.Second)
		if got := r.eng.sampler.latest.coming.Load(); got != 2*gi {
			t.Errorf("%d MiB are expected, want 2 GiB", got/mi)
		}
	})
}

// stopSandbox lets the pod's processes end while its memory is not back yet.
func stopSandbox(r *rig, c *fakeCgroup) {
	r.t.Helper()
	time.AfterFunc(time.Second+50*time.Millisecond, func() { c.change(func(c *fakeCgroup) { c.procs = false }) })
}
