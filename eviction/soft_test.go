package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// The whole way of a soft eviction: 30 s of grace for the threshold, the hold,
// SIGTERM with the pod's grace, the sandbox, the record.
func TestSoftEviction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", request: 100 * mi, usage: 2 * gi})
		calm := r.add(testPod{uid: "calm", request: 3 * gi, usage: 2 * gi})
		r.annotate("hog", "20", "")
		r.ignoreTerm("hog", 7*time.Second)
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(29 * time.Second)
		r.wantOutcomes()
		pass(3500 * time.Millisecond) // a round for memory.reclaim, which is not there
		r.wantOutcomes("evicting hog")
		if got := r.state("hog"); got != "intent" {
			t.Errorf("hold %s while it is being stopped", got)
		}
		if h, _ := r.hold("hog"); !h.Soft || h.Signal != "memory.available" || h.Threshold != gi || h.Available != 900*mi || h.Usage != 2*gi || h.Request != 100*mi {
			t.Errorf("record %+v", h)
		}
		if killsOf(hog) != 0 {
			t.Error("killed instead of stopped")
		}
		pass(8 * time.Second)
		r.wantOutcomes("evicted hog")
		if got := r.state("hog"); got != "killed" {
			t.Errorf("hold %s", got)
		}
		if got := r.graces(); !slices.Equal(got, []string{"c-hog 20s"}) {
			t.Errorf("graces %q", got)
		}
		rep := r.newest()
		if s := rep.Soft; s == nil || s.Grace != 30*time.Second || s.MinReclaim != 200*mi || s.Shortage != gi+200*mi-900*mi || s.MetSince.IsZero() ||
			s.PodGrace != 20*time.Second || s.PodAsked == nil || *s.PodAsked != 20*time.Second || s.MaxPodGrace != 30*time.Second || s.Escalated != "" || s.Asked.IsZero() {
			t.Errorf("report %+v", rep.Soft)
		}
		if rep.Signal != MemoryAvailable || rep.Memory.Threshold != gi || rep.Memory.Available != 900*mi || !rep.Memory.Met || len(rep.Candidates) != 2 || rep.Kill == nil {
			t.Errorf("report %+v", rep)
		}
		if !strings.HasPrefix(rep.Summary, "soft threshold 1Gi, met for longer than 30s: available 900Mi is below 1Gi") {
			t.Errorf("summary %q", rep.Summary)
		}
		if killsOf(calm) != 0 || r.state("calm") != "none" {
			t.Error("the pod inside its request was touched")
		}
	})
}

// Only pods over their request; the decision not to act is reported once.
func TestSoftSparesPodsInsideTheirRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "a", request: 3 * gi, usage: 2 * gi})
		r.add(testPod{uid: "b", request: 2 * gi, usage: 2 * gi})
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(2 * time.Minute)
		r.wantOutcomes("noVictim -")
		rep := r.newest()
		if rep.Soft == nil || rep.Memory.Threshold != gi || len(rep.Candidates) != 2 || !strings.Contains(rep.Summary, "inside its request") {
			t.Errorf("report %+v", rep)
		}
		if n := len(r.runtime.stopped()); n != 0 {
			t.Errorf("%d stops", n)
		}
	})
}

func TestSoftThresholdClearInBetween(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(20 * time.Second)
		r.node.setAvailable(2 * gi)
		pass(1500 * time.Millisecond)
		r.node.setAvailable(900 * mi)
		pass(25 * time.Second)
		r.wantOutcomes()
		pass(9 * time.Second)
		r.wantOutcomes("evicted hog")
	})
}

// After one eviction the threshold is met until its minimum reclaim is there,
// and the second waits until the first had time to show.
func TestSoftGoesOnToItsMinimumReclaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "big", usage: 150 * mi})
		r.add(testPod{uid: "next", usage: 140 * mi})
		r.add(testPod{uid: "last", usage: 130 * mi})
		defer r.startSoft()()
		r.node.setAvailable(930 * mi)
		pass(33500 * time.Millisecond)
		r.wantOutcomes("evicted big") // 1080 of 1224 MiB
		pass(8 * time.Second)
		r.wantOutcomes("evicted big")
		pass(4 * time.Second)
		r.wantOutcomes("evicted big", "evicted next") // 1220 MiB
		r.node.setAvailable(1300 * mi)
		pass(time.Minute)
		r.wantOutcomes("evicted big", "evicted next")
	})
}

// The threshold was met when it was loaded: it waits until it was clear once.
func TestSoftUnarmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.armed = &fakeArmed{}
		r.add(testPod{uid: "hog", usage: 2 * gi})
		r.node.setAvailable(900 * mi)
		defer r.startSoft()()
		pass(2 * time.Minute)
		r.wantOutcomes()
		if r.published().Memory {
			t.Error("a condition of a threshold that is not acted on")
		}
		r.node.setAvailable(2 * gi)
		pass(2 * time.Second)
		r.node.setAvailable(900 * mi)
		pass(33 * time.Second)
		r.wantOutcomes("evicted hog")
	})
}

func TestSoftObserve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.set.Rules.Observe = true
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(33 * time.Second)
		r.wantOutcomes("wouldEvict hog")
		if rep := r.newest(); rep.Soft == nil || rep.Soft.Grace != 30*time.Second {
			t.Errorf("report %+v", rep)
		}
		pass(30 * time.Second)
		r.wantOutcomes("wouldEvict hog")
		pass(35 * time.Second)
		r.wantOutcomes("wouldEvict hog", "wouldEvict hog") // a line a minute
		if len(r.runtime.stopped()) != 0 || killsOf(hog) != 0 || r.state("hog") != "none" || r.published() != (holds.Conditions{}) {
			t.Error("something was done")
		}
	})
}

// bugs.md B40: the condition stands from the first breached sample on, soft ones
// before their grace, and for the transition period.
func TestCaseB40Conditions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "calm", request: 3 * gi, usage: 2 * gi})
		defer r.startSoft()()
		if r.published() != (holds.Conditions{}) {
			t.Fatal("a condition in calm times")
		}
		met := time.Now()
		r.node.setAvailable(900 * mi)
		pass(2200 * time.Millisecond) // a sample and a round
		c := r.published()
		if !c.Memory || c.Disk || c.PID || c.Since.Sub(met) > 1100*time.Millisecond {
			t.Fatalf("%+v", c)
		}
		pass(20 * time.Second) // longer than one publication holds
		if !r.published().Memory {
			t.Error("not renewed")
		}
		r.node.setAvailable(4 * gi)
		pass(28 * time.Second)
		if !r.published().Memory {
			t.Error("over before the transition period")
		}
		pass(4 * time.Second)
		if r.published() != (holds.Conditions{}) {
			t.Error("not taken back")
		}
	})
}

// A hold ends only when the soft threshold is clear as well, minimum reclaim
// included.
func TestReleaseWaitsForTheSoftThreshold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "hog", usage: 300 * mi})
		r.add(testPod{uid: "calm", request: 3 * gi, usage: 2 * gi})
		defer r.evicted("hog")() // hard, at 300 MiB
		r.node.setAvailable(gi + 100*mi)
		pass(3 * time.Minute)
		if got := r.state("hog"); got != "killed" {
			t.Errorf("%s below the soft threshold + minimum reclaim", got)
		}
		r.node.setAvailable(gi + 400*mi) // clear, but not with the pod
		pass(time.Minute)
		if got := r.state("hog"); got != "killed" {
			t.Errorf("%s although it does not fit above the soft threshold", got)
		}
		r.node.setAvailable(2 * gi)
		pass(12 * time.Second)
		if got := r.state("hog"); got != "released pressure-over" {
			t.Errorf("%s", got)
		}
	})
}
