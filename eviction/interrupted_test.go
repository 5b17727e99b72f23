package eviction

import (
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// What the process before kept of a decision is not written anew.
func TestKeptDecisionStaysAsItIs(t *testing.T) {
	var h history
	h.put(Report{ID: 7, Outcome: OutcomeEvicted, Victim: &inventory.Ref{UID: "u1"}})
	h.put(Report{ID: 8, Outcome: OutcomeEvicting, Victim: &inventory.Ref{UID: "u2"}})
	h.put(Report{ID: 9, Outcome: OutcomeNoVictim})
	for _, tt := range []struct {
		id   uint64
		uid  string
		want bool
	}{{7, "u1", true}, {7, "u2", false}, {8, "u2", false}, {9, "u1", false}, {10, "u1", false}} {
		if got := h.ended(tt.id, tt.uid); got != tt.want {
			t.Errorf("decision %d about %s: ended %v", tt.id, tt.uid, got)
		}
	}
}

// A kill that outlived the process that sent it is explained by the next one, with
// the numbers of its record (an evictor that handed over between kill and report).
func TestInterruptedKillIsExplained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "u1", usage: 2 * gi})
		r.node.setAvailable(noBreach)
		decided := time.Now().Add(-time.Second)
		r.left(holds.Record{
			ID: 7, State: holds.Intent, UID: "u1", Namespace: "default", Name: "u1", SandboxID: "s-u1", Cgroup: c.path, CgroupInode: c.inode,
			Signal: string(MemoryAvailable), Available: 300 * mi, Threshold: 500 * mi, Usage: 2 * gi, Decided: decided,
		})
		_, _ = c.die()
		defer r.start()()
		pass(time.Second)
		all := r.eng.History(10)
		if len(all) != 1 {
			t.Fatalf("%d decisions", len(all))
		}
		got := all[0]
		if got.ID != 7 || got.Outcome != OutcomeResumed || got.Signal != MemoryAvailable || !got.Time.Equal(decided) ||
			got.Memory.Available != 300*mi || got.Memory.Threshold != 500*mi || got.Kill == nil || len(got.Candidates) != 1 || got.Candidates[0].Usage != 2*gi {
			t.Errorf("%+v", got)
		}
	})
}
