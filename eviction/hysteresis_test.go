package eviction

import (
	"testing"
	"time"
)

// A hard threshold that a pod was taken for stays met until its minimum reclaim
// is there as well; before that the minimum reclaim plays no part. Found by
// test/kubeletdiff.
func TestHardGoesOnToItsMinimumReclaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.set.Rules.MinReclaim = 200 * mi
		for _, p := range []testPod{{uid: "a", usage: 110 * mi}, {uid: "b", usage: 105 * mi}, {uid: "c", usage: 100 * mi}, {uid: "d", usage: 95 * mi}} {
			r.add(p)
		}
		defer r.start()()
		pass(2 * time.Second)
		r.node.setAvailable(600 * mi)
		pass(10 * time.Second)
		r.wantOutcomes()
		r.node.setAvailable(450 * mi)
		pass(20 * time.Second)
		r.wantOutcomes("evicted a", "evicted b", "evicted c")
		if rep := r.eng.History(1)[0]; rep.Summary != "available 665Mi is below 700Mi; default/c uses 100Mi, its request is 0" {
			t.Errorf("summary %q", rep.Summary)
		}
		r.node.setAvailable(600 * mi) // it was clear
		pass(10 * time.Second)
		r.wantOutcomes("evicted a", "evicted b", "evicted c")
	})
}
