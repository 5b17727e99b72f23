package tell

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

func TestBoundedAndExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.api.down = errRefused
		tell := r.start()
		defer r.stop()
		for i := range waitingMost + 5 {
			tell.Evicted(noticeOf(uint64(i+1), "p"))
		}
		pass(time.Second)
		r.want(counts{"status dropped": 5})
		if s := tell.State(); s.Queued != waitingMost {
			t.Errorf("queued %d", s.Queued)
		}
		pass(expiresAfter + time.Minute)
		r.want(counts{"status dropped": 5, "status expired": waitingMost})
		r.queue.mu.Lock()
		defer r.queue.mu.Unlock()
		if len(r.queue.kept) > doneMost+waitingMost {
			t.Errorf("%d kept", len(r.queue.kept))
		}
	})
}

// EvictionThresholdMet on the node: one event that counts, once a minute.
func TestNodeEventsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tell := r.start()
		defer r.stop()
		for range 150 {
			tell.ThresholdMet(eviction.MemoryAvailable)
			tell.ThresholdMet(eviction.AllocatableMemoryAvailable)
			pass(time.Second)
		}
		tell.ThresholdMet(eviction.NodeFsInodesFree)
		pass(time.Second)
		r.api.set(func() {
			got := map[string]int32{}
			for _, e := range r.api.events {
				got[e.Message] = e.Count
				if e.Reason != "EvictionThresholdMet" || e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != "n1" || e.Namespace != "default" {
					t.Errorf("%+v", e)
				}
			}
			if len(r.api.events) != 2 || got["Attempting to reclaim memory"] != 3 || got["Attempting to reclaim inodes"] != 1 {
				t.Errorf("%v", got)
			}
		})
	})
}

// Events on pods are limited; statuses do not wait for them.
func TestPodEventsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tell := r.start()
		defer r.stop()
		pass(0)
		for i := range 40 {
			r.api.set(func() { r.api.pods["default/p"+name(i)] = runningPod("p" + name(i)) })
			tell.Evicted(noticeOf(uint64(i+1), "p"+name(i)))
		}
		pass(0)
		r.api.set(func() {
			if len(r.api.calls) != 40 || len(r.api.events) != eventBurst {
				t.Errorf("%d statuses, %d events at once", len(r.api.calls), len(r.api.events))
			}
		})
		pass(20 * time.Second)
		r.api.set(func() {
			if len(r.api.events) != 40 {
				t.Errorf("%d events in the end", len(r.api.events))
			}
		})
	})
}
