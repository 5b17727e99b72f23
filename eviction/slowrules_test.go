package eviction

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// One kill at a time, memory first: a disk waits for it, and then goes on.
func TestDiskWaitsForAKillForMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		hog := r.add(testPod{uid: "hog", request: mi, usage: 2 * gi})
		r.add(testPod{uid: "writer", request: gi, usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		f.frees("writer", 30*gi, time.Second)
		hog.immortal = true
		defer r.start()()
		pass(5 * time.Second)
		f.fill(16 * gi)
		r.node.setAvailable(300 * mi)
		pass(3 * time.Second)
		if _, held := r.hold("writer"); held || killsOf(hog) == 0 {
			t.Errorf("writer held %v, %d kills of the hog", held, killsOf(hog))
		}
		if why := r.signalNow(ImageFsAvailable).NotActing; !strings.Contains(why, "kill is in flight") && !strings.Contains(why, "acted on first") {
			t.Errorf("not acting because %q", why)
		}
		hog.change(func(c *fakeCgroup) { c.immortal = false })
		pass(20 * time.Second)
		got := slices.DeleteFunc(r.outcomes(), func(o string) bool { return o == "noVictim -" }) // for memory, while the hog is dying
		if !slices.Equal(got, []string{"evicted hog", "evicted writer"}) {
			t.Errorf("decisions %q", r.outcomes())
		}
	})
}

// What all pods together have cannot make up for the shortage: one at most, as
// long as it stays so.
func TestDiskPressureFromOutside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		for uid, n := range map[string]uint64{"writer": 2 * gi, "other": gi} {
			r.add(testPod{uid: uid, usage: 100 * mi})
			f.has(uid, 1, n, 10)
			f.frees(uid, n, time.Second)
		}
		defer r.start()()
		pass(5 * time.Second)
		f.fill(gi)
		pass(5 * time.Minute)
		if r.evictions() != 1 || r.outcomes()[0] != "evicted writer" {
			t.Errorf("%q: want one victim", r.outcomes())
		}
	})
}

// Protected pods are nobody's victims, whatever they have, and neither are those
// that are being deleted: what they have comes back by itself.
func TestWhoIsNoVictimForADisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.add(testPod{namespace: "kube-system", uid: "system", usage: 100 * mi})
		r.add(testPod{uid: "critical", priority: 2_000_000_000, usage: 100 * mi})
		r.add(testPod{uid: "static", static: true, usage: 100 * mi})
		r.add(testPod{uid: "ending", usage: 100 * mi})
		r.add(testPod{uid: "small", usage: 100 * mi})
		for _, uid := range []string{"system", "critical", "static"} {
			f.has(uid, 1, 30*gi, 10)
		}
		f.has("ending", 1, 3*gi, 10)
		f.has("small", 1, 2*gi, 10)
		r.facts.endsBy["ending"] = time.Now().Add(30 * time.Second)
		defer r.start()()
		pass(5 * time.Second)
		f.set("/img", 16*gi) // the ending pod's 3 GiB are enough
		pass(8 * time.Second)
		r.wantOutcomes()
		f.set("/img", 13*gi) // and not for this
		pass(8 * time.Second)
		r.wantOutcomes("evicted small")
	})
}

// A pod that a soft eviction for memory is stopping is not stopped again.
func TestSoftDiskTakesAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.hooks = &fakeHooks{annotations: map[string]map[string]string{}}
		r.set.Soft = []SoftThreshold{{Signal: MemoryAvailable, Amount: gi, Grace: 5 * time.Second}}
		r.set.MaxPodGrace = 2 * time.Minute
		r.set.Slow = append(r.set.Slow, SlowThreshold{Signal: NodeFsAvailable, Value: threshold(t, "30%"), Grace: 5 * time.Second})
		r.add(testPod{uid: "p1", request: mi, usage: gi})
		r.add(testPod{uid: "writer", request: gi, usage: 100 * mi})
		r.annotate("p1", "120", "")
		r.annotate("writer", "2", "")
		r.ignoreTerm("p1", 2*time.Minute)
		f.has("p1", 1, 10*gi, 10)
		f.has("writer", 1, 9*gi, 10)
		defer r.start()()
		pass(3 * time.Second)
		r.node.setAvailable(900 * mi)
		pass(12 * time.Second)
		r.wantOutcomes("evicting p1")
		f.fill(20*gi + 1) // what p1 has is enough
		pass(15 * time.Second)
		r.wantOutcomes("evicting p1")
		f.fill(20*gi - 1) // and here is not
		pass(15 * time.Second)
		r.wantOutcomes("evicting p1", "evicted writer")
	})
}

// A hard threshold does not wait for the grace of a soft eviction, however much
// that will give back: it shortens it.
func TestHardDiskShortensSoft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.hooks = &fakeHooks{annotations: map[string]map[string]string{}}
		r.set.MaxPodGrace = 2 * time.Minute
		r.set.Slow = append(r.set.Slow, SlowThreshold{Signal: NodeFsAvailable, Value: threshold(t, "30%"), Grace: 5 * time.Second})
		r.add(testPod{uid: "writer", usage: 100 * mi})
		r.add(testPod{uid: "other", usage: 100 * mi})
		r.annotate("writer", "120", "")
		r.ignoreTerm("writer", 2*time.Minute)
		f.has("writer", 1, 40*gi, 10)
		f.has("other", 1, 30*gi, 10)
		f.frees("writer", 40*gi, time.Second)
		defer r.start()()
		pass(3 * time.Second)
		f.fill(29 * gi)
		pass(15 * time.Second)
		r.wantOutcomes("evicting writer")
		f.fill(11 * gi)
		pass(20 * time.Second)
		r.wantOutcomes("evicted writer")
	})
}

// The containers of a pod that was let go before its end could be seen stay.
func TestContainersOfAPodThatWasLetGoStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		defer r.start()()
		pass(5 * time.Second)
		f.fill(16 * gi)
		for range 100 {
			if h, _ := r.hold("writer"); h.State == holds.Killed {
				break
			}
			pass(100 * time.Millisecond)
		}
		if got := r.eng.ReleaseByHand("default/writer"); len(got) != 1 {
			t.Fatalf("released %+v", got)
		}
		pass(10 * time.Second)
		if got := f.removals(); got != nil {
			t.Errorf("removed %q", got)
		}
	})
}

// bugs.md B15: a write that hangs in the kernel is not waited for.
func TestCaseB15ForkBomb(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		bomb := r.add(testPod{uid: "bomb", usage: 100 * mi})
		f.podPIDs["/kubepods/burstable/podbomb"] = &fakeTasks{bomb, 100}
		release := make(chan struct{})
		defer close(release)
		bomb.onKill = func() { <-release }
		defer r.start()()
		pass(3 * time.Second)
		f.mu.Lock()
		f.podPIDs["/kubepods/burstable/podbomb"].n = 32768 - 505 - 1000
		f.mu.Unlock()
		pass(5 * time.Second)
		r.wantOutcomes("evicted bomb")
		if pidfdsOf(bomb) != 1 {
			t.Errorf("%d kills by pidfd", pidfdsOf(bomb))
		}
	})
}

// What frees space may hang: it is given up after two minutes, and a pod goes.
func TestDiskReclaimThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.slow.Reclaim = f
		release := make(chan struct{})
		defer close(release)
		f.onReclaim = func(context.Context, ReclaimWant) (ReclaimedDisk, error) {
			<-release
			return ReclaimedDisk{}, nil
		}
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		f.frees("writer", 30*gi, time.Second)
		defer r.start()()
		pass(5 * time.Second)
		f.fill(16 * gi)
		pass(time.Minute)
		r.wantOutcomes()
		pass(90 * time.Second)
		r.wantOutcomes("evicted writer")
		if got := r.newest().Resource.Reclaimed; got == nil || !strings.Contains(got.Text, "did not come back") {
			t.Errorf("reclaimed %+v", got)
		}
	})
}

// The hold has the request of what ran out, not that of memory.
func TestHoldOfADiskHasItsRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.facts.storage = map[string]int64{"writer": 7 * gi}
		r.add(testPod{uid: "writer", request: 50 * mi, usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		defer r.start()()
		pass(5 * time.Second)
		f.fill(16 * gi)
		pass(10 * time.Second)
		if h, ok := r.hold("writer"); !ok || h.Request != 7*gi || h.Usage != 30*gi || h.Threshold != 17*gi {
			t.Errorf("%+v", h)
		}
	})
}

// The kill budget of a disk is its own, and outlives a restart.
func TestDiskBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.set.KillBudget = 1
		for _, uid := range []string{"a", "b"} {
			r.add(testPod{uid: uid, usage: 100 * mi})
			f.has(uid, 1, 30*gi, 10)
			f.frees(uid, 30*gi, time.Second)
		}
		ledger := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
		defer func() { _ = ledger.Close() }()
		r.ledger = ledger
		stop := r.start()
		pass(5 * time.Second)
		f.set("/img", 16*gi)
		pass(15 * time.Second)
		r.wantOutcomes("evicted a")
		stop()
		stop = r.start()
		defer stop()
		pass(5 * time.Second)
		f.set("/img", 16*gi)
		pass(15 * time.Second)
		if got := r.outcomes(); r.evictions() != 1 || !slices.Contains(got, "wouldEvict b") {
			t.Errorf("%q", got)
		}
	})
}
