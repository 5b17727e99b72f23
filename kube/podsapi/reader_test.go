package podsapi

import (
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

func TestWatchTellsWhatChanges(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1), pod("b", 2))
	r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	r.untilPriority("b", "2")
	k.tell(pods.EventType_ADDED, pod("c", 3))
	r.untilPriority("c", "3")
	k.tell(pods.EventType_MODIFIED, pod("a", 5))
	r.untilPriority("a", "5")
	if r.said("pod facts come from kubelet's Pods API") != 1 {
		t.Errorf("lines: %v", r.lines.AllEntries())
	}
}

// DELETED means that kubelet's worker has finished: gone is who is not in the
// list either.
func TestGoneIsDeletedAndNotListed(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1), pod("b", 2), pod("c", 3))
	r.serve(k)
	r.run()
	r.untilPriority("b", "2")
	k.tell(pods.EventType_DELETED, pod("a", 0)) // and it stays in the list
	k.set(func() { delete(k.pods, "b"); delete(k.pods, "c") })
	k.tell(pods.EventType_DELETED, pod("b", 0)) // c goes without a word
	r.until("b is gone", func() bool { return r.store.Gone("b") })
	r.untilPriority("c", "unknown")
	if r.store.Gone("a") || r.store.Gone("c") {
		t.Errorf("gone: a %t (it is listed), c %t (nobody said so)", r.store.Gone("a"), r.store.Gone("c"))
	}
	r.untilPriority("a", "1")
	k.set(func() { delete(k.pods, "a") })
	r.reader.Relist()
	r.until("a is gone", func() bool { return r.store.Gone("a") })
}

// A change of the spec alone may produce no event.
func TestListsNowAndThen(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	r.reader.timing.list = 10 * time.Millisecond
	r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	k.set(func() { k.pods["a"] = pod("a", 9) })
	r.untilPriority("a", "9")
}

func TestOverflowReadsEverythingAnew(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	k.set(func() { k.pods["a"] = pod("a", 7) })
	k.overflow()
	r.untilPriority("a", "7")
	if s := r.feed.State(); !s.OK {
		t.Errorf("state %+v: being behind is no failure", s)
	}
	if n := r.said("kubelet's Pods API cannot be read"); n != 0 {
		t.Errorf("said %d times that it cannot be read", n)
	}
}

func TestKubeletRestart(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	stop := r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	stop()
	r.until("it fails", func() bool { return !r.feed.State().OK })
	if r.priority("a") != "1" {
		t.Error("what was known is forgotten while kubelet is away")
	}
	_ = os.Remove(r.socket)
	r.serve(newKubelet(pod("a", 4)))
	r.untilPriority("a", "4")
	if !r.feed.State().OK {
		t.Errorf("state %+v", r.feed.State())
	}
}

func TestAbsenceIsSaidOnce(t *testing.T) {
	r := newRig(t)
	r.run()
	r.until("it is absent", func() bool { return r.feed.State().Absent })
	// The line comes after the state.
	r.until("it is said", func() bool { return r.said("kubelet's Pods API is not there") > 0 })
	stop := r.serve(newKubelet(pod("a", 1)))
	r.untilPriority("a", "1")
	if n := r.said("kubelet's Pods API is not there"); n != 1 {
		t.Errorf("said %d times", n)
	}
	stop()
}

func TestKubeletThatStarts(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	k.watchErr = status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	r.serve(k)
	r.run()
	r.until("it was asked a few times", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.watches > 3
	})
	if _, known := r.store.Pod("a"); known {
		t.Error("a pod is known before kubelet is ready")
	}
	k.set(func() { k.watchErr = nil })
	r.untilPriority("a", "1")
	if n := r.said("kubelet is not ready"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// Another version of the API: said once, asked again now and then.
func TestUnknownVersion(t *testing.T) {
	r := newRig(t)
	stop := r.serve(nil)
	r.run()
	r.until("it is absent", func() bool { return r.feed.State().Absent })
	stop()
	_ = os.Remove(r.socket)
	r.serve(newKubelet(pod("a", 1)))
	r.untilPriority("a", "1")
	if n := r.said("kubelet's Pods API is of another version"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestListsWhereThereIsNoWatch(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	k.watchErr = status.Error(codes.Unimplemented, "unknown method WatchPods")
	r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	k.set(func() { k.pods["a"] = pod("a", 3) })
	r.untilPriority("a", "3")
}

// The rate limit holds a list up and nothing else.
func TestRateLimit(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	limited := status.Error(codes.ResourceExhausted, "rejected by rate limit")
	k.listErrs = []error{limited, limited, limited}
	r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	k.set(func() { k.pods["a"] = pod("a", 2) })
	r.reader.Relist()
	r.untilPriority("a", "2")
	k.set(func() {
		if k.lists != 4 || k.watches != 1 {
			t.Errorf("%d lists, %d watches", k.lists, k.watches)
		}
	})
}

// One ListPods carries every pod: grpc's own limit of 4 MiB is too small.
func TestLongList(t *testing.T) {
	r, k := newRig(t), newKubelet()
	k.padding = 1 << 20
	for _, uid := range []string{"a", "b", "c", "d", "e", "f"} {
		k.pods[uid] = pod(uid, 1)
	}
	k.watchErr = status.Error(codes.Unimplemented, "unknown method WatchPods")
	r.serve(k)
	r.run()
	r.untilPriority("f", "1")
}

// A watch that never says it is complete is believed after a list.
func TestWatchWithoutSync(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	k.noSync = true
	r.reader.timing.patience = 100 * time.Millisecond
	r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	k.tell(pods.EventType_MODIFIED, pod("a", 2))
	r.untilPriority("a", "2")
}

// One pod of a later version costs no other.
func TestUndecodablePod(t *testing.T) {
	r, k := newRig(t), newKubelet(pod("a", 1))
	k.garbage = true
	r.serve(k)
	r.run()
	r.untilPriority("a", "1")
	k.tell(pods.EventType(99), pod("a", 1)) // and an event of one
	<-k.list
	k.set(func() { k.pods["a"] = pod("a", 6) })
	r.reader.Relist()
	r.untilPriority("a", "6")
	if n := r.said("a pod of kubelet's Pods API cannot be read"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if n := r.said("kubelet's Pods API sends events of a kind"); n != 1 {
		t.Errorf("the event was mentioned %d times", n)
	}
}

func TestGet(t *testing.T) {
	r := newRig(t)
	r.serve(newKubelet(pod("a", 1)))
	rec, err := r.reader.Get(t.Context(), "a")
	if err != nil || rec.Priority != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
	if _, err := r.reader.Get(t.Context(), "b"); status.Code(err) != codes.NotFound {
		t.Errorf("error %v", err)
	}
}
