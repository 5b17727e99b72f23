package eviction

import (
	"sync"
	"testing"
	"time"
)

// bugs.md B15: the write to cgroup.kill hangs for 5 s. After 100 ms the pidfd
// fallback kills, the hold is there by then, the sampler never misses a beat,
// and the victim is verified and recorded without the thread that hangs.
func TestCaseB15(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "hog", usage: 4 * gi})
		var began, fell time.Time
		visible := false
		reader := openReader(t, r.dir)
		c.onKill = func() { began = time.Now(); time.Sleep(5 * time.Second) }
		c.onPidfd = func() {
			if fell.IsZero() {
				fell = time.Now()
				_, visible = reader.Held("hog")
			}
		}
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(450 * mi)
		pass(2 * time.Second)
		if began.IsZero() || fell.IsZero() {
			t.Fatalf("kill began %v, fallback %v", began, fell)
		}
		if d := fell.Sub(began); d < killWatchdog || d > killWatchdog+20*time.Millisecond {
			t.Errorf("the fallback came after %v, want 100 ms", d)
		}
		if !visible {
			t.Error("the fallback killed before the hold could be read")
		}
		// Two seconds after the kill began the thread still hangs.
		r.wantOutcomes("evicted hog")
		if h, _ := r.hold("hog"); h.State.String() != "killed" {
			t.Errorf("hold %v, want killed", h.State)
		}
		if rep := r.eng.History(1); len(rep) != 1 || !rep[0].Kill.Fallback || rep[0].Kill.Settled > time.Second {
			t.Errorf("report %+v", rep)
		}
		pass(10 * time.Second)
		r.wantOutcomes("evicted hog")
		if n := killsOf(c); n != 1 {
			t.Errorf("%d writes to cgroup.kill, want no second one that hangs too", n)
		}
		stop()
		// gaps of the breach: from the decision on
		for i, g := range r.gaps {
			if g > time.Second+alarm {
				t.Errorf("tick %d came %v after the one before", i, g)
			}
		}
	})
}

// bugs.md B15, the ticks of the breach itself: with a kill that hangs, no gap over 20 ms.
func TestCaseB15SamplerGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSamplerRig(t, hardRules, 200*mi)
		s.Sampler.clock = time.Now
		w, _ := openHolds(t)
		done := make(chan *Decision, 8)
		k := &killer{holds: w, clock: time.Now, done: done}
		p, c := hog(t, "u1", 4*gi)
		c.immortal = true
		c.onKill = func() { time.Sleep(5 * time.Second) }
		s.plan.Store(newPlan(1, time.Now(), []PlanPod{p}))
		var wg sync.WaitGroup
		wg.Go(func() { k.run(s.orders) })
		wg.Go(func() { k.takeOver(s.stuck) })
		for begin := time.Now(); time.Since(begin) < 6*time.Second; {
			last := time.Now()
			wait := s.tick()
			if gap := time.Since(last) + wait; gap > 20*time.Millisecond {
				t.Fatalf("the next sample comes after %v", gap)
			}
			time.Sleep(wait)
		}
		close(s.orders)
		close(s.stuck)
		wg.Wait()
		if pidfdsOf(c) != 1 {
			t.Errorf("%d calls of the fallback, want 1", pidfdsOf(c))
		}
		if len(done) != 1 {
			t.Errorf("handed over %d times, want once", len(done))
		}
	})
}

// A killer thread that never comes back must not keep later victims alive: the
// fallback writes their holds and kills them.
func TestVictimsBehindAStuckKillAreTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		forever := make(chan struct{})
		first := r.add(testPod{uid: "a-first", usage: 4 * gi})
		first.change(func(c *fakeCgroup) {
			c.immortal = true
			c.onKill = func() { <-forever }
		})
		var pods []*fakeCgroup
		for _, uid := range []string{"b", "c", "d", "e", "f", "g", "h"} {
			c := r.add(testPod{uid: uid, usage: 300 * mi})
			reader := openReader(t, r.dir)
			c.onPidfd = func() {
				if _, ok := reader.Held(uid); !ok {
					t.Errorf("%s was killed before its hold could be read", uid)
				}
			}
			pods = append(pods, c)
		}
		stop := r.start()
		defer stop()
		defer close(forever)
		pass(2 * time.Second)
		r.node.setAvailable(50 * mi)
		// The rest of the system takes whatever is freed.
		for range 70 {
			pass(time.Second)
			r.node.setAvailable(50 * mi)
		}
		// Its kill is verified without that thread, and without another write
		// that would hang as well.
		if n := killsOf(first); n != 1 {
			t.Errorf("%d writes to the cgroup.kill that hangs", n)
		}
		if got := r.state("a-first"); got != "released kill-failed" {
			t.Errorf("the victim whose kill hangs: %s after a minute", got)
		}
		for _, c := range pods {
			if pidfdsOf(c) == 0 {
				t.Errorf("%s lives on behind a kill that hangs", c.path)
			}
			if killsOf(c) != 0 {
				t.Errorf("%s was killed by the thread that hangs", c.path)
			}
		}
	})
}
