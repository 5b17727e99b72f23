package eviction

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// counted are the decisions that were counted, as "outcome reason n", in order.
func (r *rig) counted() []string {
	r.t.Helper()
	var out []string
	for _, d := range r.eng.Counts().Decisions {
		if d.Count > 0 {
			out = append(out, fmt.Sprintf("%s %s %d", d.Outcome, d.Reason, d.Count))
		}
	}
	return out
}

func (r *rig) wantCounted(want ...string) {
	r.t.Helper()
	if got := r.counted(); !slices.Equal(got, want) {
		r.t.Errorf("counted %q, want %q", got, want)
	}
}

// stages are how many kills reached each stage.
func (r *rig) stages() map[string]uint64 {
	out := map[string]uint64{}
	for _, s := range r.eng.Counts().Stages {
		out[s.Stage] += s.Durations.Count
	}
	return out
}

func TestCountsAtTheStart(t *testing.T) {
	r := newRig(t)
	c := r.build().Counts()
	if len(c.Decisions) != 6+int(noVictims)-1 || len(c.Kills) != 4 || len(c.Stages) != 4 || len(c.KillErrors) != 3 || len(c.Releases) != len(ReleaseReasons()) || len(c.Breaches) != 1 {
		t.Errorf("a series is missing: %+v", c)
	}
	for _, d := range c.Decisions {
		if d.Count != 0 || d.Signal != MemoryAvailable {
			t.Errorf("%+v", d)
		}
	}
	for i, s := range c.Stages {
		if s.Stage != KillStages()[i] || s.Durations.Count != 0 || len(s.Durations.Bounds) != len(s.Durations.Buckets) {
			t.Errorf("%+v", s)
		}
	}
}

func TestAKillIsCountedByStage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "hog", usage: 2 * gi, request: gi})
		c.immortal = true // until its memory has been given back, which takes a while
		c.onKill = func() {
			time.AfterFunc(40*time.Millisecond, func() { c.change(func(c *fakeCgroup) { c.procs, c.current = false, 0 }) })
		}
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.wantCounted()
		r.node.setAvailable(430 * mi)
		pass(2 * time.Second)
		r.wantOutcomes("evicted hog")
		r.wantCounted("evicted earlyBand 1")
		for _, stage := range KillStages() {
			if n := r.stages()[stage]; n != 1 {
				t.Errorf("%d kills reached %s", n, stage)
			}
		}
		n := r.eng.Counts()
		if n.InProgress != 0 || n.Retries != 0 || n.Fallbacks != 0 || n.Breaches[0].Count != 1 {
			t.Errorf("%+v", n)
		}
		for _, k := range n.Kills {
			want := uint64(0)
			if k.Direct && k.Dead {
				want = 1
			}
			if k.Count != want {
				t.Errorf("%+v, want %d", k, want)
			}
		}
		k := r.eng.History(1)[0].Kill
		if k.Empty < 40*time.Millisecond || k.Empty > 50*time.Millisecond || k.Settled < k.Empty+settleFor || k.Sent > k.Intent+time.Millisecond {
			t.Errorf("stages out of order: %+v", k)
		}
	})
}

func TestReasonsToAct(t *testing.T) {
	for _, tt := range []struct {
		name      string
		change    func(*rig)
		available uint64
		want      string
	}{
		{"early band", func(*rig) {}, 430 * mi, "evicted earlyBand 1"},
		{"below the floor", func(*rig) {}, 90 * mi, "evicted belowFloor 1"},
		{"at the floor", func(*rig) {}, 100 * mi, "evicted earlyBand 1"},
		{"observe", func(r *rig) { r.set.Rules.Observe = true }, 430 * mi, "wouldEvict earlyBand 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				tt.change(r)
				r.add(testPod{uid: "hog", usage: 2 * gi, request: gi})
				stop := r.start()
				defer stop()
				pass(2 * time.Second)
				r.node.setAvailable(tt.available)
				pass(2 * time.Second)
				r.wantCounted(tt.want)
			})
		})
	}
}

// resize changes what a pod uses while available stays below the threshold.
func resize(r *rig, c *fakeCgroup, usage uint64) {
	c.change(func(c *fakeCgroup) { c.current = usage })
	r.node.setAvailable(430 * mi)
}

// The decision not to act is counted once per breach and reason, also where
// the reasons take turns.
func TestNotActingIsCountedOncePerBreach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "inside", usage: gi, request: 2 * gi})
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(430 * mi)
		pass(10 * time.Second)
		r.wantCounted("noVictim withinRequest 1")
		resize(r, c, 1<<10) // now it would free nothing
		pass(5 * time.Second)
		r.wantCounted("noVictim nothingToFree 1", "noVictim withinRequest 1")
		resize(r, c, gi)
		pass(5 * time.Second)
		r.wantCounted("noVictim nothingToFree 1", "noVictim withinRequest 1")
		r.node.setAvailable(4 * gi)
		pass(5 * time.Second)
		r.node.setAvailable(430 * mi)
		pass(5 * time.Second)
		r.wantCounted("noVictim nothingToFree 1", "noVictim withinRequest 2")
		if n := r.eng.Counts().Breaches[0].Count; n != 2 {
			t.Errorf("%d breaches", n)
		}
	})
}

func TestUnarmedIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.armed = &fakeArmed{}
		r.add(testPod{uid: "hog", usage: 2 * gi, request: gi})
		r.node.setAvailable(430 * mi)
		stop := r.start()
		defer stop()
		pass(5 * time.Second)
		r.wantCounted("noVictim unarmed 1")
	})
}

// A kill that cannot be finished is counted as such, with its retries.
func TestAKillGivenUpIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "hog", usage: 2 * gi, request: gi})
		c.immortal = true
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(430 * mi)
		pass(killGiveUp + 10*time.Second)
		got := r.counted()
		if len(got) == 0 || got[0] != "failed earlyBand 1" {
			t.Fatalf("counted %q", got)
		}
		st := r.stages()
		if st[StageSent] != 1 || st[StageEmpty] != 0 || st[StageSettled] != 0 || r.eng.Counts().Retries < 9 {
			t.Errorf("%v, %d retries", st, r.eng.Counts().Retries)
		}
		for _, rel := range r.eng.Counts().Releases {
			if want := map[string]uint64{ReleasedKillFailed: 1}[rel.Reason]; rel.Count != want {
				t.Errorf("%+v, want %d", rel, want)
			}
		}
	})
}

// A report is kept again when the runtime has the last word; it is one decision.
func TestAReportIsCountedOnce(t *testing.T) {
	r := newRig(t)
	e := r.build()
	rep := &Report{ID: 1, Signal: MemoryAvailable, Outcome: OutcomeEvicted, Kill: &KillReport{Direct: true, Tries: 3, Fallback: true, HoldError: "x", KillError: "y"}}
	e.keep(rep)
	e.keep(rep)
	e.keep(&Report{ID: 2, Signal: MemoryAvailable, Outcome: OutcomeNoVictim}) // the episodes'
	r.wantCounted("evicted earlyBand 1")
	c := e.Counts()
	if c.Retries != 2 || c.Fallbacks != 1 {
		t.Errorf("%+v", c)
	}
	for _, k := range c.KillErrors {
		if want := map[string]uint64{stepHold: 1, stepKill: 1}[k.Reason]; k.Count != want {
			t.Errorf("%+v, want %d", k, want)
		}
	}
}

func TestResumedKillIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "hog", usage: 2 * gi, request: gi})
		r.left(holds.Record{ID: 7, State: holds.Intent, UID: "hog", SandboxID: "s-hog", Cgroup: c.path, CgroupInode: c.inode})
		r.node.setAvailable(430 * mi)
		stop := r.start()
		defer stop()
		pass(5 * time.Second)
		got := r.counted()
		if len(got) == 0 || got[0] != "resumed resumed 1" {
			t.Errorf("counted %q", got)
		}
		if st := r.stages(); st[StageIntent] != 0 || st[StageSettled] != 1 {
			t.Errorf("%v", st)
		}
	})
}

func TestDurations(t *testing.T) {
	var d Durations
	for _, x := range []time.Duration{-time.Second, 50 * time.Microsecond, 100 * time.Microsecond, 101 * time.Microsecond, 60 * time.Second, time.Hour} {
		d.add(x)
	}
	if d.Count != 6 || d.Sum != time.Hour+60*time.Second+251*time.Microsecond {
		t.Errorf("%d, %s", d.Count, d.Sum)
	}
	if d.Buckets[0] != 3 || d.Buckets[1] != 4 || d.Buckets[len(d.Buckets)-1] != 5 || !slices.IsSorted(d.Buckets) || !slices.IsSorted(d.Bounds) {
		t.Errorf("%v", d.Buckets)
	}
	c := d.copy()
	d.add(0)
	if c.Buckets[0] != 3 || c.Count != 6 {
		t.Error("a copy changes with what it is of")
	}
}

func TestEpisodes(t *testing.T) {
	var e episodes
	e.note(WithinRequest) // an odd one out of any breach counts once as well
	for range 2 {
		e.sample(true)
		for range 3 {
			e.sample(true)
			e.note(Chosen)
			e.note(AllBarred)
			e.note(NoVictim(200))
		}
		e.sample(false)
	}
	if e.breaches.Load() != 2 || e.notActing[AllBarred].Load() != 2 || e.notActing[Chosen].Load() != 0 || e.notActing[WithinRequest].Load() != 1 {
		t.Errorf("%d breaches, %d, %d, %d", e.breaches.Load(), e.notActing[AllBarred].Load(), e.notActing[Chosen].Load(), e.notActing[WithinRequest].Load())
	}
}

func TestRuntimeThatCannotBeToldIsCounted(t *testing.T) {
	r := newRig(t)
	e := r.build()
	e.counters.runtimeFailed()
	for _, k := range e.Counts().KillErrors {
		if want := map[string]uint64{stepRuntime: 1}[k.Reason]; k.Count != want {
			t.Errorf("%+v", k)
		}
	}
}
