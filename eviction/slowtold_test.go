package eviction

import (
	"testing"
	"time"
)

// Where Kubernetes is told, what only kubelet deletes counts, and the request that
// is told is that of what ran out.
func TestDiskWhileKubernetesIsTold(t *testing.T) {
	for _, working := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r, f := slowRig(t)
			r.teller = &fakeTeller{working: working}
			r.facts.storage = map[string]int64{"volumes": 4 * gi}
			r.add(testPod{uid: "volumes", request: 50 * mi, usage: 100 * mi})
			f.part("volumes", UsagePart{What: PartEmptyDir, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 60 * gi, Known: true, Exact: true}})
			defer r.start()()
			pass(5 * time.Second)
			f.set("/img", 5*gi)
			pass(10 * time.Second)
			if !working {
				r.wantOutcomes("noVictim -")
				return
			}
			r.wantOutcomes("evicted volumes")
			r.teller.mu.Lock()
			defer r.teller.mu.Unlock()
			if len(r.teller.notices) != 1 {
				t.Fatalf("told %+v", r.teller.notices)
			}
			n := r.teller.notices[0]
			if n.Signal != ImageFsAvailable || n.Request != 4*gi || !n.RequestKnown || n.Usage != 60*gi || !n.UsageKnown || n.Threshold != 17*gi || n.Available != 5*gi {
				t.Errorf("%+v", n)
			}
		})
	}
}
