package eviction

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// fakeTeller notes what it is told.
type fakeTeller struct {
	working bool
	// ending says whether kubelet has begun to end a pod; nil: never.
	ending  func(id uint64) bool
	telling map[uint64]Telling
	// told is called for each eviction.
	told func(n Notice)

	mu      sync.Mutex
	notices []Notice
	calls   []string
	at      []time.Time
}

func (f *fakeTeller) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	f.at = append(f.at, time.Now())
}

func (f *fakeTeller) Evicted(n Notice) {
	f.note("evicted %s", n.Pod.Name)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, old := range f.notices {
		if old.ID == n.ID {
			return
		}
	}
	f.notices = append(f.notices, n)
	if f.told != nil {
		f.told(n)
	}
}

func (f *fakeTeller) Ending(id uint64) bool { return f.ending != nil && f.ending(id) }

func (f *fakeTeller) Telling(id uint64) (Telling, bool) {
	t, ok := f.telling[id]
	return t, ok
}

func (f *fakeTeller) Withdraw(id uint64)    { f.note("withdraw %d", id) }
func (f *fakeTeller) ThresholdMet(s Signal) { f.note("met %s", s) }
func (f *fakeTeller) Working() bool         { return f.working }
func (f *fakeTeller) State() TellingNow     { return TellingNow{Way: "status"} }

// want fails unless it was called like this.
func (f *fakeTeller) want(t *testing.T, calls ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.calls, calls) {
		t.Errorf("calls %q, want %q", f.calls, calls)
	}
}

// Kubernetes is told as soon as no process is left, before the memory is back,
// with the numbers of the decision.
func TestToldWhenTheContainersAreDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.teller = &fakeTeller{working: true}
		r.add(testPod{uid: "hog", usage: 2 * gi, request: 100 * mi})
		stop := r.evicted("hog")
		defer stop()
		r.teller.want(t, "met memory.available", "evicted hog")
		n, rep := r.teller.notices[0], r.eng.History(1)[0]
		if n.ID != rep.ID || n.Pod != *rep.Victim || !n.Time.Equal(rep.Time) || n.Signal != MemoryAvailable || n.Threshold != 500*mi ||
			n.Available != rep.Memory.Available || n.Usage != 2*gi || !n.UsageKnown || n.Request != 100*mi || !n.RequestKnown || n.Static {
			t.Errorf("%+v of %+v", n, rep)
		}
		if after := r.teller.at[1].Sub(rep.Time); after > rep.Kill.Empty+time.Millisecond || after >= rep.Kill.Settled {
			t.Errorf("told %v after the decision; empty after %v, settled after %v", after, rep.Kill.Empty, rep.Kill.Settled)
		}
		if s := r.eng.State(); s.Telling == nil || s.Telling.Way != "status" {
			t.Errorf("state %+v", s.Telling)
		}
	})
}

// A pod that may run again is not told of any more; one that is gone still is.
func TestWithdrawnWithTheHold(t *testing.T) {
	for reason, withdrawn := range map[string]bool{
		ReleasedPressureOver: true, ReleasedByHand: true, ReleasedMaximum: true, ReleasedKillFailed: true, ReleasedBreachGone: true, ReleasedObserve: true,
		ReleasedPodGone: false, ReleasedPodDeleted: false,
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			r.teller = &fakeTeller{}
			r.left(holds.Record{ID: 7, State: holds.Killed, UID: "u1", Cgroup: "/kubepods/podu1", CgroupInode: 1})
			e := r.build()
			rec, _ := r.hold("u1")
			e.release(rec, reason)
			if withdrawn {
				r.teller.want(t, "withdraw 7")
			} else {
				r.teller.want(t)
			}
		})
	}
}

// What a previous process killed and may not have told is told.
func TestRecordsOfAPreviousProcessAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.teller = &fakeTeller{}
		r.node.setAvailable(breach)
		c := r.add(testPod{uid: "u1", usage: 2 * gi})
		r.left(holds.Record{ID: 7, State: holds.Intent, UID: "u1", SandboxID: "s-u1", Cgroup: "/kubepods/burstable/podu1", CgroupInode: c.inode})
		_, _ = c.die()
		r.left(holds.Record{ID: 8, State: holds.Killed, UID: "u2", Cgroup: "/kubepods/burstable/podu2", CgroupInode: 99})
		r.left(holds.Record{ID: 9, State: holds.Released, UID: "u3"})
		stop := r.start()
		defer stop()
		pass(time.Second)
		r.teller.mu.Lock()
		defer r.teller.mu.Unlock()
		var told []string
		for _, n := range r.teller.notices {
			told = append(told, fmt.Sprintf("%d %s %d", n.ID, n.Pod.UID, n.Usage))
		}
		slices.Sort(told)
		if want := []string{fmt.Sprintf("7 u1 %d", 2*gi), fmt.Sprintf("8 u2 %d", 2*gi)}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// Files in memory emptyDirs come back only when kubelet hears of the eviction.
func TestVolumesCountWhileKubernetesIsTold(t *testing.T) {
	for _, working := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			r.teller = &fakeTeller{working: working}
			c := r.add(testPod{uid: "hog", usage: 2 * gi})
			c.change(func(c *fakeCgroup) { c.shmem = gi })
			r.cgroups.volumes["hog"] = gi
			stop := r.start()
			defer stop()
			pass(2 * time.Second)
			x := r.eng.Explain(0)
			if want := map[bool]uint64{true: 2 * gi, false: gi}[working]; len(x.Candidates) != 1 || x.Candidates[0].Gain != want {
				t.Errorf("told %v: %+v, want a gain of %d", working, x.Candidates, want)
			}
		})
	}
}
