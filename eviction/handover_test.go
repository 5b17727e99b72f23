package eviction

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

func TestHandsOver(t *testing.T) {
	for _, tt := range []struct {
		static, visible, unheld bool
		grace                   time.Duration
		want                    bool
	}{
		{false, true, false, 30 * time.Second, true},
		{false, true, false, leastGrace, false}, // kubelet would give the pod its own, which is longer
		{false, true, true, leastGrace, true},
		{true, true, true, 30 * time.Second, false},
		{false, false, true, 30 * time.Second, false},
	} {
		if got := handsOver(tt.static, tt.visible, tt.unheld, tt.grace); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

func TestJudgeHanded(t *testing.T) {
	told := time.Unix(1000, 0)
	for _, tt := range []struct {
		populated, begun bool
		after            time.Duration
		want             handed
	}{
		{true, false, 2999 * time.Millisecond, handedWait},
		{true, false, 3 * time.Second, handedUnseen},
		{true, true, 3 * time.Second, handedWait},
		{true, true, 31999 * time.Millisecond, handedWait},
		{true, true, 32 * time.Second, handedLate},
		{false, false, time.Hour, handedEnded},
		{false, true, 0, handedEnded},
	} {
		if got := judgeHanded(tt.populated, tt.begun, told, told.Add(tt.after), 30*time.Second); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt, got, tt.want)
		}
	}
}

// kubeletEnds is a kubelet that begins a while after it was told, and whose pod
// has ended a while after that; 0: never.
func (r *rig) kubeletEnds(c *fakeCgroup, begins, ends time.Duration) {
	var begun atomic.Bool
	r.teller = &fakeTeller{working: true, ending: func(uint64) bool { return begun.Load() }}
	r.teller.told = func(n Notice) {
		if n.Grace == 0 || begins == 0 {
			return
		}
		time.AfterFunc(begins, func() { begun.Store(true) })
		if ends > 0 {
			time.AfterFunc(begins+ends, func() { _, _ = c.die() })
		}
	}
}

// handedRig is a soft rig with a hog that has a hook and 20 s.
func handedRig(t *testing.T) (*rig, *fakeCgroup) {
	t.Helper()
	r := softRig(t)
	hog := r.add(testPod{uid: "hog", usage: 2 * gi})
	r.annotate("hog", "20", `{"exec":{"command":["drain"]}}`)
	return r, hog
}

// Where Kubernetes can be told, kubelet ends the pod: we run no hook and stop
// nothing while it does.
func TestKubeletEndsASoftEviction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, hog := handedRig(t)
		r.kubeletEnds(hog, 500*time.Millisecond, 12*time.Second)
		defer r.startSoft()()
		begun := r.over("hog")
		pass(time.Until(begun.Add(12 * time.Second)))
		if got, hooks := r.graces(), r.hooks.ran(); len(got)+len(hooks)+killsOf(hog)+len(r.runtime.stopped()) != 0 {
			t.Fatalf("while kubelet ends it: stopped %q, hooks %q, %d kills", got, hooks, killsOf(hog))
		}
		pass(2 * time.Second)
		r.wantOutcomes("evicted hog")
		s := r.newest().Soft
		if !s.ByKubelet || s.Escalated != "" || s.PodGrace != 20*time.Second || *s.PodAsked != 20*time.Second || s.Asked.IsZero() {
			t.Errorf("report %+v", s)
		}
		r.teller.want(t, "met memory.available", "evicted hog", "evicted hog") // the second is ignored
		if n := r.teller.notices[0]; n.Grace != 20*time.Second || n.Usage != 2*gi {
			t.Errorf("told %+v", n)
		}
		if killsOf(hog) != 0 {
			t.Error("killed although it had ended")
		}
	})
}

// A kubelet that does not begin costs three seconds: the pod is then asked to end
// as without it, within the same grace.
func TestKubeletDoesNotBegin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, hog := handedRig(t)
		r.kubeletEnds(hog, 0, 0)
		defer r.startSoft()()
		begun := r.over("hog")
		pass(time.Until(begun.Add(2900 * time.Millisecond)))
		if got := r.hooks.ran(); len(got) != 0 {
			t.Fatalf("hooks %q before kubelet had its time", got)
		}
		pass(time.Second)
		if got := r.hooks.ran(); !slices.Equal(got, []string{"c-hog drain 20s"}) {
			t.Errorf("hooks %q", got)
		}
		if got := r.graces(); !slices.Equal(got, []string{"c-hog 17s"}) {
			t.Errorf("graces %q", got)
		}
		pass(2 * time.Second)
		r.wantOutcomes("evicted hog")
		if s := r.newest().Soft; s.ByKubelet || s.NotByKubelet == "" {
			t.Errorf("report %+v", s)
		}
	})
}

// Whoever has not ended when its grace is over is killed, whoever was ending it.
func TestKubeletIsTooSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, hog := handedRig(t)
		r.kubeletEnds(hog, time.Second, 0)
		defer r.startSoft()()
		begun := r.over("hog")
		pass(time.Until(begun.Add(21900 * time.Millisecond)))
		if killsOf(hog) != 0 {
			t.Fatal("killed within its grace")
		}
		pass(500 * time.Millisecond)
		if killsOf(hog) == 0 {
			t.Fatal("not killed when its grace was over")
		}
		pass(time.Second)
		r.wantOutcomes("evicted hog")
		if s := r.newest().Soft; s.Escalated == "" {
			t.Errorf("report %+v", s)
		}
	})
}

// A hard threshold does not wait for kubelet.
func TestHardShortensWhatKubeletEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, hog := handedRig(t)
		r.kubeletEnds(hog, 500*time.Millisecond, 0)
		defer r.startSoft()()
		r.over("hog")
		pass(2 * time.Second)
		r.node.setAvailable(breach)
		pass(time.Second)
		if killsOf(hog) == 0 {
			t.Fatal("not killed")
		}
		r.wantOutcomes("evicted hog")
		if s := r.newest().Soft; s.Shortened == nil {
			t.Errorf("report %+v", s)
		}
	})
}

// What a previous process handed over is kubelet's after a restart too: no hook
// runs, and the grace goes on where it was.
func TestHandedOverBeforeARestart(t *testing.T) {
	for _, begun := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r, hog := handedRig(t)
			r.teller = &fakeTeller{working: true, ending: func(uint64) bool { return begun }}
			r.node.setAvailable(900 * mi)
			r.left(holds.Record{
				ID: 7, State: holds.Intent, Soft: true, UID: "hog", Signal: string(MemoryAvailable), SandboxID: "s-hog", Threshold: gi, Usage: 2 * gi,
				Cgroup: "/kubepods/burstable/podhog", CgroupInode: hog.inode, Decided: time.Now().Add(-5 * time.Second),
			})
			stop := r.start()
			defer stop()
			pass(10 * time.Second)
			stopped := len(r.runtime.stopped()) > 0
			if stopped == begun {
				t.Errorf("kubelet had begun: %t; stopped %q", begun, r.runtime.stopped())
			}
			pass(8 * time.Second)
			if (killsOf(hog) > 0) != begun {
				t.Errorf("kubelet had begun: %t; %d kills when the rest of the grace was over", begun, killsOf(hog))
			}
		})
	}
}

// How far Kubernetes is told stands beside the decision.
func TestTellingOfADecision(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.teller = &fakeTeller{working: true}
		r.add(testPod{uid: "hog", usage: 2 * gi})
		stop := r.evicted("hog")
		defer stop()
		id := r.eng.History(1)[0].ID
		r.teller.telling = map[uint64]Telling{id: {Way: "status", Outcome: "told", Requests: 2}}
		state := r.eng.State()
		for what, got := range map[string]*Telling{
			"history": r.eng.History(1)[0].Telling, "explain": r.eng.Explain(1).Decisions[0].Telling, "status": state.LastDecision.Telling,
		} {
			if got == nil || fmt.Sprint(*got) != fmt.Sprint(r.teller.telling[id]) {
				t.Errorf("%s: %+v", what, got)
			}
		}
		if r.eng.Explain(1).Decisions[0].ID != id {
			t.Error("another decision")
		}
	})
}
