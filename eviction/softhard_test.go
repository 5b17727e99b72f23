package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Hard never waits for a soft eviction in progress: it shortens it, under the
// same decision and hold.
func TestHardShortensSoft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.set.HardGrace = 5 * time.Second // it had its grace
		hog := r.add(testPod{uid: "hog", request: 100 * mi, usage: 2 * gi})
		other := r.add(testPod{uid: "other", request: 100 * mi, usage: 3 * gi, priority: 100})
		r.annotate("hog", "3600", "")
		r.ignoreTerm("hog", time.Hour)
		defer r.startSoft()()
		r.over("hog")
		pass(2 * time.Second)
		r.wantOutcomes("evicting hog")
		first, _ := r.hold("hog")
		r.node.setAvailable(300 * mi)
		pass(300 * time.Millisecond)
		if killsOf(hog) != 1 || killsOf(other) != 0 {
			t.Fatalf("%d kills of the pod that was ending, %d of another", killsOf(hog), killsOf(other))
		}
		pass(time.Second)
		r.wantOutcomes("evicted hog")
		if h, _ := r.hold("hog"); h.State.String() != "killed" || h.ID != first.ID || h.Soft {
			t.Errorf("hold %+v", h)
		}
		if n := len(r.writer.Records()); n != 1 {
			t.Errorf("%d records", n)
		}
		rep := r.newest()
		if s := rep.Soft; s == nil || s.Shortened == nil || s.Shortened.Memory.Available != 300*mi || s.Shortened.Memory.Threshold != 500*mi || len(s.Shortened.Candidates) != 2 {
			t.Fatalf("report %+v", rep.Soft)
		}
		if rep.ID != first.ID || rep.Memory.Available != 900*mi || rep.Kill == nil || rep.Kill.Signalled != 1 {
			t.Errorf("report %+v, kill %+v", rep, rep.Kill)
		}
		// And the fast half is free for the next one.
		r.node.setAvailable(300 * mi)
		pass(12 * time.Second)
		r.wantOutcomes("evicted hog", "evicted other")
	})
}

// While a hard threshold is met, nothing soft is begun.
func TestNothingSoftWhileHardIsMet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "calm", request: 3 * gi, usage: 2 * gi})
		hog := r.add(testPod{namespace: "kube-system", uid: "system", usage: 2 * gi})
		defer r.startSoft()()
		r.node.setAvailable(300 * mi)
		pass(40 * time.Second)
		r.wantOutcomes("noVictim -") // the hard one's
		if s := r.eng.softNow(); len(s) != 1 || s[0].Waiting != "a hard threshold is met and is acted on" {
			t.Errorf("%+v", s)
		}
		if killsOf(hog) != 0 || len(r.runtime.stopped()) != 0 {
			t.Error("somebody was stopped")
		}
	})
}

// bugs.md B07: reclaim comes before a soft kill, and saves it.
func TestCaseB07Soft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.hooks = &fakeHooks{}
		r.node.capacity, r.node.swapTotal, r.node.swapFree = 8*gi, 8*gi, 7*gi+900*mi
		r.node.system = 8*gi - 4*gi
		r.set.Rules.Amount = 200 * mi
		r.set.Soft = []SoftThreshold{{Signal: MemoryAvailable, Amount: 500 * mi, Grace: 30 * time.Second}}
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		hog.change(func(c *fakeCgroup) {
			c.onReclaim = func(uint64) error {
				time.AfterFunc(30*time.Millisecond, func() { r.node.setAvailable(900 * mi) })
				return nil
			}
		})
		defer r.startSoft()()
		r.node.setAvailable(450 * mi)
		pass(2 * time.Minute)
		if n := see(hog, func(c *fakeCgroup) int { return c.reclaims }); n != 1 {
			t.Errorf("%d reclaims, want 1", n)
		}
		r.wantOutcomes("reclaimed -")
		if rep := r.newest(); rep.Soft == nil || rep.Soft.Reclaim == nil || rep.Soft.Reclaim.Returned != 64*mi || rep.Soft.Reclaim.Available != 450*mi || rep.Soft.Reclaim.After != 900*mi {
			t.Errorf("report %+v", rep.Soft)
		}
		if killsOf(hog) != 0 || len(r.runtime.stopped()) != 0 {
			t.Error("stopped all the same")
		}
	})
}

// bugs.md B07, the hard variant: a kill within 100 ms, no reclaim before it.
func TestCaseB07HardHasNoReclaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		hog.change(func(c *fakeCgroup) { c.onReclaim = func(uint64) error { return nil } })
		defer r.evicted("hog")()
		if n := see(hog, func(c *fakeCgroup) int { return c.reclaims }); n != 0 {
			t.Errorf("%d reclaims before a hard kill", n)
		}
		if k := r.newest().Kill; k.Sent > 100*time.Millisecond {
			t.Errorf("sent after %s", k.Sent)
		}
	})
}

// Reclaim that is not enough costs one round, and is in the report.
func TestReclaimThatIsNotEnough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		hog.change(func(c *fakeCgroup) { c.onReclaim = func(uint64) error { return nil } })
		defer r.startSoft()()
		r.over("hog")
		pass(3 * time.Second)
		r.wantOutcomes("evicted hog")
		s := r.newest().Soft
		// 324 MiB are missing
		if s.Reclaim == nil || s.Reclaim.Returned != 6*64*mi || s.Reclaim.After != 900*mi || !slices.ContainsFunc(s.Reclaim.Pods, func(p inventory.Ref) bool { return p.UID == "hog" }) {
			t.Errorf("report %+v", s.Reclaim)
		}
	})
}

// A write that hangs in the kernel is not waited for, and keeps nobody from
// ending.
func TestReclaimThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		release := make(chan struct{})
		defer close(release)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		hog.change(func(c *fakeCgroup) { c.onReclaim = func(uint64) error { <-release; return nil } })
		stop := r.startSoft()
		r.over("hog")
		pass(3 * time.Second)
		r.wantOutcomes("evicted hog")
		if s := r.newest().Soft; s.Reclaim == nil || s.Reclaim.Error == "" {
			t.Errorf("report %+v", s.Reclaim)
		}
		stop()
	})
}
