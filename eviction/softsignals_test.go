package eviction

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// livePods is a pods' cgroup that changes while it is read.
type livePods struct {
	fakePods
	used atomic.Uint64
}

func (f *livePods) Usage() (uint64, error) { return f.used.Load(), nil }

// left changes what the pods have left, in bytes.
func (f *livePods) left(n uint64) { f.used.Store(f.limit - n) }

// withPods gives the rig a pods' cgroup of 29 GiB with this much left, and a soft
// threshold of 1 GiB, met for 10 s, for it.
func (r *rig) withPods(left uint64) *livePods {
	f := &livePods{fakePods: fakePods{limit: 29 * gi}}
	f.left(left)
	r.openPods = func() (PodsMemory, error) { return f, nil }
	r.set.Soft = append(r.set.Soft, SoftThreshold{Signal: AllocatableMemoryAvailable, Amount: gi, Grace: 10 * time.Second})
	return f
}

// bugs.md B104: a soft victim is busy with its grace, and another signal
// breaches: it is acted on without a delay, unless what is coming is enough.
func TestCaseB104(t *testing.T) {
	for _, tt := range []struct {
		name     string
		left     uint64 // to the pods
		outcomes []string
	}{
		{"p1's 2 GiB are not enough", 0, []string{"evicting p1", "evicted p2"}},
		{"they are", 500 * mi, []string{"evicting p1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				pods := r.withPods(8 * gi)
				r.set.Soft[1].Amount = 2*gi + 300*mi
				r.add(testPod{uid: "p1", usage: 2 * gi})
				r.add(testPod{uid: "p2", usage: gi})
				r.annotate("p1", "3600", "")
				r.ignoreTerm("p1", time.Hour)
				r.set.MaxPodGrace = 5 * time.Minute
				defer r.startSoft()()
				r.over("p1")
				pass(time.Second)
				pods.left(tt.left)
				pass(14 * time.Second)
				r.wantOutcomes(tt.outcomes...)
				if tt.left == 0 {
					if rep := r.newest(); rep.Signal != AllocatableMemoryAvailable || rep.Memory.Capacity != 29*gi || rep.Memory.Available != 0 || !strings.Contains(rep.Summary, "allocatableMemory.available") {
						t.Errorf("report %+v", rep)
					}
					if h, _ := r.hold("p2"); h.Signal != string(AllocatableMemoryAvailable) {
						t.Errorf("hold for %s", h.Signal)
					}
				}
				if got := r.state("p1"); got != "intent" {
					t.Errorf("p1: %s", got)
				}
			})
		})
	}
}

// A pod outside of kubepods is no victim for what the pods have used up.
func TestSoftAllocatableIsAboutKubepods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		pods := r.withPods(8 * gi)
		r.add(testPod{uid: "out", usage: 4 * gi, parent: "/other"})
		r.cgroups.make("/other/c-out", 4*gi)
		r.add(testPod{uid: "in", usage: 2 * gi})
		r.node.setAvailable(8 * gi)
		defer r.startSoft()()
		pods.left(900 * mi)
		pass(15 * time.Second)
		r.wantOutcomes("evicted in")
	})
}

// A signal the kernel does not have keeps nobody held.
func TestAbsentSignalHoldsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.set.Allocatable = Rules{Amount: gi}
		r.set.Soft = append(r.set.Soft, SoftThreshold{Signal: AllocatableMemoryAvailable, Amount: gi, Grace: 10 * time.Second})
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		r.node.setAvailable(8 * gi)
		for range 5 {
			r.wanted("hog")
			pass(9 * time.Second)
		}
		if got := r.state("hog"); got != "released pressure-over" {
			t.Errorf("hold %s", got)
		}
		if r.published() != (holds.Conditions{}) {
			t.Error("a condition for a signal that is absent")
		}
	})
}

// A hold waits for allocatableMemory.available too.
func TestReleaseWaitsForAllocatable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		pods := r.withPods(8 * gi)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		r.node.setAvailable(8 * gi)
		pods.left(2 * gi) // clear, but not with the pod
		for range 10 {
			r.wanted("hog")
			pass(9 * time.Second)
		}
		if got := r.state("hog"); got != "killed" {
			t.Errorf("%s although the pods have no room for it", got)
		}
		pods.left(9 * gi)
		pass(12 * time.Second)
		if got := r.state("hog"); got != "released pressure-over" {
			t.Errorf("hold %s", got)
		}
	})
}

// Two soft evictions of no use, and the threshold stands still for a minute.
func TestSoftCascade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		for _, uid := range []string{"a", "b", "c", "d"} {
			r.add(testPod{uid: uid, usage: gi})
		}
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		for range 115 { // each time what comes back is clear for a moment
			pass(time.Second)
			r.node.setAvailable(900*mi + uint64(time.Now().Second())) // whoever else takes it
		}
		r.wantOutcomes("evicted a", "evicted b", "noVictim -")
		if rep := r.newest(); !strings.Contains(rep.Summary, "did not give back half") || rep.Soft == nil {
			t.Errorf("report %+v", rep)
		}
		for range 70 {
			pass(time.Second)
			r.node.setAvailable(900*mi + uint64(time.Now().Second()))
		}
		if got := r.outcomes(); len(got) < 4 || got[3] != "evicted c" {
			t.Errorf("decisions %q after the pause", got)
		}
	})
}

// bugs.md B14, soft: the pods cannot help. One goes at most.
func TestSoftPressureFromOutside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.topLevel = []Consumer{{"/system.slice", 7 * gi}}
		r.add(testPod{uid: "a", usage: 40 * mi})
		r.add(testPod{uid: "b", usage: 30 * mi})
		defer r.startSoft()()
		r.node.setAvailable(300*mi + 500*mi)
		pass(3 * time.Minute)
		r.wantOutcomes("evicted a", "noVictim -")
		rep := r.eng.History(2)[1]
		if !strings.Contains(rep.Summary, "system.slice 7Gi") || len(rep.Consumers) != 1 {
			t.Errorf("report %+v", rep)
		}
	})
}

// killBudget: from then on it only reports.
func TestSoftKillBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.set.KillBudget = 1
		r.add(testPod{uid: "a", usage: 150 * mi})
		r.add(testPod{uid: "b", usage: 149 * mi})
		r.add(testPod{uid: "c", usage: 140 * mi})
		defer r.startSoft()()
		r.node.setAvailable(930 * mi)
		pass(50 * time.Second)
		r.wantOutcomes("evicted a", "noVictim -", "wouldEvict b")
		if r.state("b") != "none" {
			t.Error("the budget was overdrawn")
		}
	})
}

// A pause by hand: decisions are reported, nobody is ended, conditions are taken
// back; what is under way goes on.
func TestSoftPaused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(10 * time.Second)
		if !r.published().Memory {
			t.Fatal("no condition")
		}
		r.eng.Pause(time.Minute)
		pass(1500 * time.Millisecond)
		if r.published() != (holds.Conditions{}) {
			t.Error("a condition in a pause")
		}
		pass(25 * time.Second)
		r.wantOutcomes("wouldEvict hog")
		if rep := r.newest(); rep.Mode != "paused" {
			t.Errorf("mode %s", rep.Mode)
		}
		pass(40 * time.Second)
		if got := r.outcomes(); got[len(got)-1] != "evicted hog" {
			t.Errorf("decisions %q after the pause", got)
		}
	})
}

// Another amount after a reload is another threshold: its grace begins anew, and
// it waits until it was clear once.
func TestSoftReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.armed = &fakeArmed{}
		r.add(testPod{uid: "hog", usage: 2 * gi})
		r.node.setAvailable(2 * gi)
		defer r.startSoft()()
		set := r.set
		set.Soft = []SoftThreshold{{Signal: MemoryAvailable, Amount: 3 * gi, Grace: 10 * time.Second}}
		if err := r.eng.Reload(set); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		r.wantOutcomes()
		if s := r.eng.State(); len(s.Soft) != 1 || s.Soft[0].Threshold != 3*gi || !s.Soft[0].Unarmed || s.Soft[0].Waiting == "" || s.Conditions.MemoryPressure {
			t.Errorf("%+v", s)
		}
		r.eng.Arm()
		pass(4 * time.Second)
		r.wantOutcomes("evicted hog")
	})
}
