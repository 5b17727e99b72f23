package eviction

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// podsOfRig is the cgroup of all pods of a rig.
type podsOfRig struct {
	r     *rig
	limit uint64
}

func (p podsOfRig) Path() string                    { return "/kubepods" }
func (p podsOfRig) Limit() (uint64, error)          { return p.limit, nil }
func (p podsOfRig) Stat(*cgroupfs.MemoryStat) error { return nil }
func (p podsOfRig) Close() error                    { return nil }
func (p podsOfRig) Usage() (uint64, error) {
	p.r.node.mu.Lock()
	defer p.r.node.mu.Unlock()
	return p.r.node.used() - p.r.node.system, nil
}

// allocatableMemory.available from the sampler to the hold.
func TestAllocatableEviction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.set.Allocatable = Rules{Amount: 500 * mi, Floor: 100 * mi, SmallGainLast: true}
		r.openPods = func() (PodsMemory, error) { return podsOfRig{r, 7 * gi}, nil }
		r.add(testPod{uid: "quiet", usage: gi, request: 2 * gi})
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		// The largest is none of the pods that the limit is for.
		r.cgroups.make("/k8s.io/c-outside", 3*gi)
		r.add(testPod{uid: "outside", parent: "/k8s.io"})
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		if s := r.eng.State(); s.LastDecision != nil {
			t.Fatalf("decided too early: %+v", s.LastDecision)
		}
		hog.change(func(c *fakeCgroup) { c.current += gi - 401*mi })
		pass(2 * time.Second)
		rep := r.eng.History(1)
		if len(rep) != 1 || rep[0].Outcome != OutcomeEvicted || rep[0].Signal != AllocatableMemoryAvailable {
			t.Fatalf("decisions %q", r.outcomes())
		}
		if !strings.HasPrefix(rep[0].Summary, "allocatableMemory.available 4") || rep[0].Memory.Capacity != 7*gi {
			t.Errorf("summary %q of %d", rep[0].Summary, rep[0].Memory.Capacity)
		}
		if h, ok := r.hold("hog"); !ok || h.Signal != string(AllocatableMemoryAvailable) || h.State.String() != "killed" {
			t.Errorf("hold %+v", h)
		}
		r.wantOutcomes("evicted hog")
	})
}

// Design §8, from end to end: the first victim does not die, the number passes
// half the threshold, and the second is dead within milliseconds.
func TestEmergencyInTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		first := r.add(testPod{uid: "first", usage: 400 * mi})
		first.change(func(c *fakeCgroup) { c.immortal = true })
		second := r.add(testPod{uid: "second", usage: 350 * mi})
		var killed time.Time
		second.onKill = func() { killed = time.Now() }
		r.runtime.failStops(errors.New("context deadline exceeded"))
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(450 * mi)
		pass(1200 * time.Millisecond)
		if killsOf(first) == 0 || killsOf(second) != 0 {
			t.Fatalf("%d and %d kills", killsOf(first), killsOf(second))
		}
		crossed := time.Now()
		r.node.setAvailable(200 * mi)
		pass(100 * time.Millisecond)
		if killed.IsZero() || killed.Sub(crossed) > 10*time.Millisecond {
			t.Errorf("the second was killed %v after half the threshold was passed", killed.Sub(crossed))
		}
		first.change(func(c *fakeCgroup) { c.immortal = false })
		r.runtime.failStops(nil)
		pass(10 * time.Second)
		got := r.outcomes()
		slices.Sort(got)
		if want := []string{"evicted first", "evicted second"}; !slices.Equal(got, want) {
			t.Errorf("decisions %q, want %q", got, want)
		}
	})
}

// The cascade breaker, from end to end: two victims, then a report that says who
// has the memory, and nobody for a minute.
func TestCascadeInTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.topLevel = []Consumer{{"/system.slice", 12 * gi}, {"/kubepods", 3 * gi}, {"/user.slice", gi}, {"/init.scope", mi}}
		for _, uid := range []string{"a", "b", "c", "d"} {
			c := r.add(testPod{uid: uid, usage: gi})
			// what it gives back is taken before anybody sees it
			c.onKill = func() {
				r.node.mu.Lock()
				r.node.system += gi
				r.node.mu.Unlock()
			}
		}
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(90 * mi)
		pass(30 * time.Second)
		r.wantOutcomes("evicted a", "evicted b", "noVictim -")
		rep := r.eng.History(1)[0]
		if !strings.Contains(rep.Summary, "most memory is in system.slice 12Gi, kubepods 3Gi, user.slice 1Gi") || len(rep.Consumers) != 4 {
			t.Errorf("summary %q", rep.Summary)
		}
		if s := r.eng.State(); !strings.Contains(s.Waiting, "the last two kills") {
			t.Errorf("waiting for %q", s.Waiting)
		}
		pass(70 * time.Second)
		r.wantOutcomes("evicted a", "evicted b", "noVictim -", "evicted c", "evicted d", "noVictim -")
	})
}

// A restart is no new kill budget.
func TestBudgetOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.set.KillBudget = 1
		r.add(testPod{uid: "a", usage: 2 * gi})
		r.add(testPod{uid: "b", usage: gi})
		ledger := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
		defer func() { _ = ledger.Close() }()
		r.ledger = ledger
		stop := r.evicted("a")
		stop()
		time.Sleep(pendingFor) // its memory has come back
		stop = r.start()
		defer stop()
		r.node.setAvailable(400 * mi)
		pass(10 * time.Second)
		r.wantOutcomes("evicted a", "wouldEvict b", "noVictim -")
		for _, rep := range r.eng.History(2) {
			if !strings.Contains(rep.Summary, "killBudget is used up") {
				t.Errorf("%s: %q", rep.Outcome, rep.Summary)
			}
		}
		if lines := r.lines.at(logrus.ErrorLevel); len(lines) != 1 || !strings.Contains(lines[0], "killBudget") {
			t.Errorf("errors %q, want one loud alarm", lines)
		}
	})
}
