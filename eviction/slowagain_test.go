package eviction

import (
	"context"
	"slices"
	"testing"
	"time"
)

// Two thresholds on one device: space is freed for one at a time, and what the
// other read before says nothing any more.
func TestReclaimIsOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.slow.Reclaim = f
		f.onReclaim = func(ctx context.Context, _ ReclaimWant) (ReclaimedDisk, error) {
			time.Sleep(3 * time.Second)
			f.fill(60 * gi)
			return ReclaimedDisk{Images: 1}, nil
		}
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		defer r.start()()
		pass(5 * time.Second)
		f.fill(10 * gi) // nodefs 12 %, imagefs 17 %
		pass(20 * time.Second)
		if len(f.reclaims) != 1 {
			t.Errorf("asked %d times, want once", len(f.reclaims))
		}
		r.wantOutcomes("reclaimed -")
	})
}

// Two soft thresholds whose graces are over in the same round do not take the same
// pod twice.
func TestSoftThresholdsTakeAPodOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.set.Rules.AsKubelet = AsKubelet{FreesNothing: true, NoBreakers: true}
		r.set.Slow = nil
		for _, s := range []Signal{NodeFsInodesFree, ImageFsInodesFree} {
			r.set.Slow = append(r.set.Slow, SlowThreshold{Signal: s, Value: threshold(t, "20%"), Grace: 5 * time.Second})
		}
		r.add(testPod{uid: "nothing", usage: 100 * mi})
		f.has("nothing", 1, 0, 0)
		defer r.start()()
		pass(5 * time.Second)
		for _, path := range []string{"/kubelet", "/img"} {
			f.setInodes(path, 100_000)
		}
		pass(30 * time.Second)
		got := slices.DeleteFunc(r.outcomes(), func(o string) bool { return o == "noVictim -" })
		if !slices.Equal(got, []string{"evicted nothing"}) {
			t.Errorf("decisions %q", got)
		}
	})
}

// What a pod that is being evicted for one signal gives back of another counts
// there, too: one eviction is enough where kubelet's next look would find both
// clear.
func TestEvictionCountsForOtherSignals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.set.Slow = nil
		for _, s := range []Signal{NodeFsAvailable, NodeFsInodesFree} {
			r.set.Slow = append(r.set.Slow, SlowThreshold{Signal: s, Value: threshold(t, "20%"), Grace: 5 * time.Second})
		}
		for _, uid := range []string{"a", "b"} {
			r.add(testPod{uid: uid, usage: 100 * mi})
			f.has(uid, 1, 30*gi, 300_000)
		}
		f.frees("a", 30*gi, time.Second)
		f.frees("b", 30*gi, time.Second)
		before := f.onRemove
		f.onRemove = func(id string) {
			before(id)
			f.fs["/kubelet"].InodesFree += 300_000
		}
		defer r.start()()
		pass(5 * time.Second)
		f.fill(10 * gi)
		f.setInodes("/kubelet", 100_000)
		pass(time.Minute)
		r.wantOutcomes("evicted a")
	})
}
