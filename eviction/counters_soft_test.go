package eviction

import (
	"errors"
	"testing"
	"time"
)

// soft returns how many soft decisions ended with this outcome and reason, and
// how many soft kills reached each stage.
func (r *rig) softCounts(outcome, reason string) (decisions uint64, stages map[string]uint64) {
	c := r.eng.Counts()
	for _, d := range c.Decisions {
		if d.Kind == KindSoft && d.Outcome == outcome && d.Reason == reason {
			decisions = d.Count
		}
	}
	stages = map[string]uint64{}
	for _, s := range c.Stages {
		if s.Kind == KindSoft {
			stages[s.Stage] = s.Durations.Count
		}
	}
	return decisions, stages
}

// A soft eviction is one decision, counted when it is over, by how it went.
func TestSoftIsCounted(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *rig)
		then   func(r *rig)
		reason string
	}{
		{"within its grace", func(r *rig) { r.ignoreTerm("hog", 7*time.Second) }, func(*rig) {}, ReasonGrace},
		{"the runtime is away", func(r *rig) { r.annotate("hog", "5", ""); r.runtime.failStops(errors.New("away")) }, func(*rig) {}, ReasonEscalated},
		{"shortened", func(r *rig) { r.ignoreTerm("hog", time.Hour) }, func(r *rig) { r.node.setAvailable(300 * mi) }, ReasonShortened},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				r.add(testPod{uid: "hog", request: 100 * mi, usage: 2 * gi})
				tt.change(r)
				defer r.startSoft()()
				r.over("hog")
				pass(2 * time.Second)
				r.wantOutcomes("evicting hog")
				if n, stages := r.softCounts(OutcomeEvicted, tt.reason); n != 0 || len(stages) != 0 {
					t.Errorf("%d decisions, stages %v before it is over", n, stages)
				}
				tt.then(r)
				pass(20 * time.Second)
				n, stages := r.softCounts(OutcomeEvicted, tt.reason)
				if n != 1 {
					t.Errorf("%d decisions: %q", n, r.counted())
				}
				for _, stage := range KillStages() {
					if stages[stage] != 1 {
						t.Errorf("%d kills reached %s", stages[stage], stage)
					}
				}
			})
		})
	}
}

// The decision not to act is counted once per breach and reason here as well.
func TestSoftNotActingIsCountedOncePerBreach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		c := r.add(testPod{uid: "a", request: 3 * gi, usage: 2 * gi})
		resize := func(usage uint64) {
			c.change(func(c *fakeCgroup) { c.current = usage })
			r.node.setAvailable(900 * mi)
		}
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(2 * time.Minute)
		resize(1 << 10) // now it would free nothing
		pass(time.Minute)
		resize(2 * gi)
		pass(time.Minute)
		for _, reason := range []string{WithinRequest.Reason(), NothingToFree.Reason()} {
			if n, _ := r.softCounts(OutcomeNoVictim, reason); n != 1 {
				t.Errorf("%s was counted %d times", reason, n)
			}
		}
		r.node.setAvailable(8 * gi)
		pass(time.Minute)
		r.node.setAvailable(900 * mi)
		pass(2 * time.Minute)
		if n, _ := r.softCounts(OutcomeNoVictim, WithinRequest.Reason()); n != 2 {
			t.Errorf("counted %d times in two breaches", n)
		}
	})
}

// Which numbers belong to soft thresholds is told.
func TestSoftSignalsNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "a", request: 3 * gi, usage: 2 * gi})
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(10 * time.Second)
		all := r.eng.State().Signals
		if len(all) != 1 || all[0].Signal != MemoryAvailable || len(all[0].Thresholds) != 2 {
			t.Fatalf("%+v", all)
		}
		hard, soft := all[0].Thresholds[0], all[0].Thresholds[1]
		if hard.Kind != KindHard || hard.Met || hard.Amount != 500*mi {
			t.Errorf("hard %+v", hard)
		}
		if soft.Kind != KindSoft || !soft.Met || soft.PastGrace || soft.Amount != gi || soft.Grace != 30*time.Second || soft.NotActing == "" || soft.Unarmed {
			t.Errorf("soft %+v", soft)
		}
		pass(30 * time.Second)
		if soft := r.eng.State().Signals[0].Thresholds[1]; !soft.PastGrace {
			t.Errorf("soft %+v", soft)
		}
	})
}

func TestReclaimedIsCounted(t *testing.T) {
	r := newRig(t)
	e := r.build()
	e.keep(&Report{ID: 1, Signal: MemoryAvailable, Outcome: OutcomeEvicting, Soft: &SoftReport{}})
	e.keep(&Report{ID: 2, Signal: MemoryAvailable, Outcome: OutcomeReclaimed, Soft: &SoftReport{}})
	if n, _ := r.softCounts(OutcomeReclaimed, ReasonReclaimed); n != 1 {
		t.Errorf("%d, %q", n, r.counted())
	}
	r.wantCounted("reclaimed reclaimed 1")
}
