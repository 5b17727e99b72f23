package eviction

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/holds"
)

// A writer fills the disk: it is stopped with 2 s of grace and held, its
// container is removed after kubelet could see its end, and its neighbours live.
func TestDiskWriterIsEvicted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.add(testPod{uid: "writer", usage: 100 * mi})
		r.add(testPod{uid: "neighbour", usage: 900 * mi})
		f.has("writer", 1, 30*gi, 10)
		f.has("neighbour", 1, 2*gi, 10)
		f.frees("writer", 30*gi, time.Second)
		defer r.start()()
		pass(5 * time.Second)
		r.wantOutcomes()
		f.fill(16 * gi) // imagefs 17 % is met, nodefs 12 % is not
		pass(30 * time.Second)
		r.wantOutcomes("evicted writer")
		got := r.newest()
		if got.Signal != ImageFsAvailable || got.Resource == nil || got.Resource.Layout != LayoutSingle || got.Memory.Threshold != 17*gi {
			t.Errorf("%s, %+v, %+v", got.Signal, got.Resource, got.Memory)
		}
		for _, want := range []string{"imagefs.available 16Gi is below 17Gi", "default/writer has 30Gi there", "a stop gives back 30Gi"} {
			if !strings.Contains(got.Summary, want) {
				t.Errorf("summary %q lacks %q", got.Summary, want)
			}
		}
		if g := r.graces(); !slices.Equal(g, []string{"c-writer 2s"}) {
			t.Errorf("graces %q, want 2 s for the writer", g)
		}
		if got := f.removals(); !slices.Equal(got, []string{"c-writer"}) {
			t.Errorf("removed %q", got)
		}
		if h, _ := r.hold("writer"); f.removedAt.Sub(h.KilledAt) < observedEnds {
			t.Errorf("removed %s after its end", f.removedAt.Sub(h.KilledAt))
		}
		if h, ok := r.hold("writer"); !ok || h.State != holds.Killed || h.Soft || Signal(h.Signal) != ImageFsAvailable {
			t.Errorf("hold %+v, %v", h, ok)
		}
		if c := r.published(); !c.Disk || c.Memory || c.PID {
			t.Errorf("conditions %+v, want disk alone", c)
		}
	})
}

// The inodes have an order of their own.
func TestInodeEaterIsEvicted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.add(testPod{uid: "eater", usage: mi * 100})
		r.add(testPod{uid: "big", usage: mi * 100})
		f.has("eater", 1, 100*mi, 800_000)
		f.has("big", 1, 40*gi, 10)
		defer r.start()()
		pass(5 * time.Second)
		f.setInodes("/kubelet", 59_999)
		pass(10 * time.Second)
		r.wantOutcomes("evicted eater")
		if got := r.newest(); got.Signal != NodeFsInodesFree || got.Resource.Unit != Inodes {
			t.Errorf("%s %+v", got.Signal, got.Resource)
		}
	})
}

// A fork bomb: StopContainer(2 s) as long as half the threshold is left, the
// cgroup at once below that.
func TestForkBombIsEvicted(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  uint64
		grace []string
		kills int
	}{
		{"above half", 3000, []string{"c-bomb 2s"}, 0},
		{"below half", 1000, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, f := slowRig(t)
				bomb := r.add(testPod{uid: "bomb", usage: 100 * mi})
				other := r.add(testPod{uid: "other", usage: 900 * mi, priority: -1})
				f.podPIDs["/kubepods/burstable/podbomb"] = &fakeTasks{bomb, 100}
				f.podPIDs["/kubepods/burstable/podother"] = &fakeTasks{other, 5}
				defer r.start()()
				pass(3 * time.Second)
				r.wantOutcomes()
				f.mu.Lock()
				f.podPIDs["/kubepods/burstable/podbomb"].n = 32768 - 505 - c.left
				f.mu.Unlock()
				pass(4 * time.Second)
				r.wantOutcomes("evicted bomb")
				if g := r.graces(); !slices.Equal(g, c.grace) {
					t.Errorf("graces %q, want %q", g, c.grace)
				}
				if bomb.kills != c.kills || other.kills != 0 {
					t.Errorf("%d direct kills of the bomb, %d of the other; want %d, 0", bomb.kills, other.kills, c.kills)
				}
				pass(6 * time.Second)
				if got := f.removals(); got != nil {
					t.Errorf("removed %q: that gives no task back", got)
				}
			})
		})
	}
}

// A hung or missing file system makes its own signals unknown and nothing else,
// and new ones that are met when they are loaded are not acted on.
func TestUnknownDiskStopsNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		f.mount("/img", 2, 60*gi)
		f.fail("/kubelet", cgroupfs.ErrHangs)
		f.fail("/logs", cgroupfs.ErrHangs)
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 2, 30*gi, 10)
		defer r.start()()
		pass(5 * time.Second)
		f.set("/img", 5*gi)
		pass(20 * time.Second)
		r.wantOutcomes("evicted writer")
		for _, s := range r.eng.State().Signals {
			if s.Signal == NodeFsAvailable && (s.Known || s.Problem == "") {
				t.Errorf("nodefs: %+v, want unknown with a reason", s)
			}
		}
		f.fail("/img", errors.New("broken"))
		pass(20 * time.Second)
		r.wantOutcomes("evicted writer")
		if h, _ := r.hold("writer"); h.State != holds.Killed {
			t.Error("the hold ended although nobody knows whether there is room")
		}
	})
}

// What nobody's stop would free is said, with what only deletion frees.
func TestOnlyDeletionFreesIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.add(testPod{uid: "volumes", usage: 100 * mi})
		f.part("volumes", UsagePart{What: PartEmptyDir, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 60 * gi, Known: true}})
		defer r.start()()
		pass(5 * time.Second)
		f.fill(5 * gi)
		pass(20 * time.Second)
		r.wantOutcomes("noVictim -", "noVictim -") // nodefs and imagefs
		got := r.newest()
		if !strings.Contains(got.Summary, "only kubelet deletes") || len(got.Candidates) != 1 || got.Candidates[0].Deletion != 60*gi || got.Candidates[0].Gain != 0 {
			t.Errorf("%q, %+v", got.Summary, got.Candidates)
		}
	})
}

// bugs.md B17: available stands still, whatever is done: one pod per change or
// 30 s, and after two that were of no use none for a minute.
func TestCaseB17Disk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		for _, uid := range []string{"a", "b", "c", "d", "e"} {
			r.add(testPod{uid: uid, usage: 100 * mi})
			f.has(uid, 1, 30*gi, 10)
		}
		defer r.start()()
		pass(5 * time.Second)
		f.fill(10 * gi)
		pass(20 * time.Second)
		r.wantOutcomes("evicted a")
		pass(20 * time.Second)
		r.wantOutcomes("evicted a", "evicted b")
		pass(40 * time.Second)
		if r.evictions() != 2 {
			t.Errorf("%q: two were of no use", r.outcomes())
		}
	})
}

// bugs.md B52: with images on a file system of their own nobody dies for them;
// the other way round the pods' layers count.
func TestCaseB52(t *testing.T) {
	for _, c := range []struct {
		name         string
		images, node uint64
		want         []string
	}{
		{"images are short", 3 * gi, 50 * gi, []string{"noVictim -"}},
		{"the node is short", 50 * gi, 5 * gi, []string{"evicted layer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, f := slowRig(t)
				f.mount("/img", 3, 50*gi)
				f.mount("/layers", 1, 50*gi)
				f.contain = "/layers"
				r.add(testPod{uid: "layer", usage: 100 * mi})
				f.has("layer", 1, 30*gi, 10)
				defer r.start()()
				pass(8 * time.Second)
				f.set("/img", c.images)
				for _, p := range []string{"/kubelet", "/layers", "/logs"} {
					f.set(p, c.node)
				}
				pass(15 * time.Second)
				r.wantOutcomes(c.want...)
				if got := r.newest(); got.Victim == nil && !strings.Contains(got.Summary, NothingToFree.String()) {
					t.Errorf("%q", got.Summary)
				}
			})
		})
	}
}

// bugs.md B49: available is measured anew after what was removed: 4 % of the
// inodes become 9 %, and nobody has to go.
func TestCaseB49(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.slow.Reclaim = f
		f.onReclaim = func(ctx context.Context, want ReclaimWant) (ReclaimedDisk, error) {
			f.setInodes("/kubelet", 90_000)
			need, err := want.Measure(ctx)
			if need != 0 || err != nil {
				t.Errorf("still needed %d, %v", need, err)
			}
			return ReclaimedDisk{Images: 3, Freed: 50_000}, nil
		}
		r.add(testPod{uid: "eater", usage: 100 * mi})
		f.has("eater", 1, gi, 500_000)
		defer r.start()()
		pass(5 * time.Second)
		f.setInodes("/kubelet", 40_000)
		pass(20 * time.Second)
		r.wantOutcomes("reclaimed -")
		if len(f.reclaims) != 1 || f.reclaims[0].Need != 20_000 || f.reclaims[0].Device != 1 || !f.reclaims[0].Hard {
			t.Errorf("asked for %+v", f.reclaims)
		}
	})
}

// A breach for which nobody can be taken: what nobody needs is looked for again
// each minute, and where nothing was found nothing is said to have been reclaimed.
func TestReclaimIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.slow.Reclaim = f
		f.onReclaim = func(context.Context, ReclaimWant) (ReclaimedDisk, error) { return ReclaimedDisk{Text: "nothing"}, nil }
		defer r.start()()
		pass(5 * time.Second)
		f.setInodes("/kubelet", 40_000)
		pass(150 * time.Second)
		if n := len(f.reclaims); n != 3 {
			t.Errorf("asked %d times in two and a half minutes", n)
		}
		f.setInodes("/kubelet", 500_000)
		pass(20 * time.Second)
		r.wantOutcomes("noVictim -")
	})
}

// bugs.md B104: a soft eviction for memory in its grace keeps no disk waiting.
func TestCaseB104Disk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.hooks = &fakeHooks{annotations: map[string]map[string]string{}}
		r.set.Soft = []SoftThreshold{{Signal: MemoryAvailable, Amount: gi, Grace: 5 * time.Second}}
		r.set.MaxPodGrace = 2 * time.Minute
		r.add(testPod{uid: "p1", request: mi, usage: gi})
		r.add(testPod{uid: "writer", request: gi, usage: 100 * mi})
		r.annotate("p1", "120", "")
		r.ignoreTerm("p1", 2*time.Minute)
		f.has("writer", 1, 30*gi, 10)
		defer r.start()()
		pass(3 * time.Second)
		r.node.setAvailable(900 * mi)
		pass(12 * time.Second)
		r.wantOutcomes("evicting p1")
		f.fill(5 * gi)
		pass(10 * time.Second)
		r.wantOutcomes("evicting p1", "evicted writer")
	})
}

// Memory takes a pod that is being stopped for the disk, and nobody else; its
// hold stays one.
func TestMemoryShortensDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		hog := r.add(testPod{uid: "writer", request: mi, usage: 2 * gi})
		other := r.add(testPod{uid: "other", request: mi, usage: 3 * gi})
		r.ignoreTerm("writer", time.Hour)
		f.has("writer", 1, 30*gi, 10)
		defer r.start()()
		pass(5 * time.Second)
		f.fill(5 * gi)
		for range 40 { // until it is being stopped
			if _, held := r.hold("writer"); held {
				break
			}
			pass(100 * time.Millisecond)
		}
		pass(1100 * time.Millisecond)
		r.node.setAvailable(50 * mi)
		pass(300 * time.Millisecond)
		if hog.kills == 0 || other.kills != 0 {
			t.Errorf("%d kills of the pod that is being stopped, %d of the other", hog.kills, other.kills)
		}
		pass(10 * time.Second)
		r.wantOutcomes("evicted writer")
	})
}

// mode observe reports and touches nobody.
func TestDiskObserve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.set.Rules.Observe, r.set.Allocatable.Observe = true, true
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		defer r.start()()
		pass(5 * time.Second)
		f.fill(14 * gi)
		pass(30 * time.Second)
		r.wantOutcomes("wouldEvict writer")
		if len(r.runtime.stopped()) != 0 || r.published().Disk {
			t.Errorf("stopped %q, conditions %+v", r.runtime.stopped(), r.published())
		}
	})
}

// A soft threshold waits for its grace and gives the pod its own.
func TestSoftDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.hooks = &fakeHooks{annotations: map[string]map[string]string{}}
		r.set.MaxPodGrace = 30 * time.Second
		r.set.Slow = append(r.set.Slow, SlowThreshold{Signal: NodeFsAvailable, Value: threshold(t, "30%"), MinReclaim: threshold(t, "5Gi"), Grace: time.Minute})
		r.add(testPod{uid: "writer", usage: 100 * mi})
		r.annotate("writer", "20", "")
		f.has("writer", 1, 30*gi, 10)
		f.frees("writer", 30*gi, time.Second)
		defer r.start()()
		pass(5 * time.Second)
		f.fill(29 * gi)
		pass(10 * time.Second)
		if !r.published().Disk {
			t.Error("the condition begins before the grace is over")
		}
		pass(45 * time.Second)
		r.wantOutcomes()
		pass(20 * time.Second)
		r.wantOutcomes("evicted writer")
		if g := r.graces(); !slices.Equal(g, []string{"c-writer 20s"}) {
			t.Errorf("graces %q", g)
		}
	})
}
