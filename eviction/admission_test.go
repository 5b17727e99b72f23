package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// A refused pod is listed until it is here or has not asked for long.
func TestNotAdmittedPodsAreListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		first := time.Now().UTC()
		for range 3 {
			r.eng.NotAdmitted(inventory.Ref{Namespace: "default", Name: "a", UID: "a"}, "DiskPressure")
			pass(time.Minute)
		}
		r.eng.NotAdmitted(inventory.Ref{Namespace: "default", Name: "b", UID: "b"}, "MemoryPressure")
		r.eng.NotAdmitted(inventory.Ref{Namespace: "default", Name: "nobody"}, "MemoryPressure")
		got := r.eng.State().NotAdmitted
		if len(got) != 2 || got[0].Pod.UID != "a" || got[0].Times != 3 || got[0].Condition != "DiskPressure" || !got[0].First.Equal(first) ||
			!got[0].Last.Equal(first.Add(2*time.Minute)) || got[1].Pod.UID != "b" || got[1].Times != 1 {
			t.Errorf("%+v", got)
		}
		r.add(testPod{uid: "a", usage: gi})
		r.eng.syncer.MarkDirty()
		pass(5 * time.Second)
		if got = r.eng.State().NotAdmitted; len(got) != 1 || got[0].Pod.UID != "b" {
			t.Errorf("a is here: %+v", got)
		}
		pass(10 * time.Minute)
		if got = r.eng.State().NotAdmitted; len(got) != 0 {
			t.Errorf("nobody asked any more: %+v", got)
		}
	})
}

func TestNotAdmittedIsBounded(t *testing.T) {
	var w waitingPods
	for i := range 2 * notAdmittedMost {
		w.add(inventory.Ref{UID: fmt.Sprint(i)}, "x", t0)
	}
	if len(w.pods) != notAdmittedMost {
		t.Errorf("%d remembered", len(w.pods))
	}
	w.add(inventory.Ref{UID: "late"}, "x", t0.Add(notAdmittedFor))
	if len(w.pods) != 1 {
		t.Errorf("%d remembered after all were forgotten", len(w.pods))
	}
}
