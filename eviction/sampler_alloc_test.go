package eviction

import (
	"testing"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/holds"
)

// fakeScan is a ScanSource.
type fakeScan struct{ pages uint64 }

func (f *fakeScan) Read(v *cgroupfs.VMStat) error {
	f.pages += 10
	v.PgscanDirect = f.pages
	return nil
}

// countedScan is a ScanSource that says what it is told.
type countedScan struct{ pages uint64 }

func (f *countedScan) Read(v *cgroupfs.VMStat) error {
	v.PgscanDirect = f.pages
	return nil
}

// infoOf is a machine of 16 GiB whose two readings disagree: the kernel has this
// much, kubelet 6 GiB.
func infoOf(kernel uint64) cgroupfs.Meminfo {
	return cgroupfs.Meminfo{MemTotal: 16 * gi, MemAvailable: kernel, AnonPages: 10 * gi, HasAvailable: true, HasKubelet: true}
}

func TestTickDoesNotAllocate(t *testing.T) {
	const runs = 200
	pods := func(t *testing.T) []PlanPod {
		var out []PlanPod
		for i := range 200 {
			p, _ := hog(t, string(rune('A'+i)), uint64(i+1)*10*mi)
			out = append(out, p)
		}
		return out
	}
	for _, tt := range []struct {
		name      string
		available uint64
		action    action
	}{
		{"calm", 8 * gi, calm},
		{"near", 900 * mi, calm},
		{"no plan left", 200 * mi, waiting},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSamplerRig(t, hardRules, tt.available)
			s.scan = &fakeScan{}
			if n := testing.AllocsPerRun(runs, func() { s.clock.advance(alarm); s.tick() }); n != 0 {
				t.Errorf("%v allocations per tick", n)
			}
			if got := action(s.latest.action.Load()); got != tt.action {
				t.Errorf("action %d, want %d", got, tt.action)
			}
		})
	}
	t.Run("nobody to take", func(t *testing.T) {
		s := newSamplerRig(t, hardRules, 200*mi)
		all := pods(t)
		for i := range all {
			all[i].Barred = "protected"
		}
		s.offer(all...)
		if n := testing.AllocsPerRun(runs, func() { s.clock.advance(alarm); s.tick() }); n != 0 {
			t.Errorf("%v allocations per tick", n)
		}
	})
	t.Run("deciding", func(t *testing.T) {
		s := newSamplerRig(t, hardRules, 200*mi)
		s.scan = &fakeScan{}
		orders := make(chan *Decision, runs+1)
		s.Sampler.orders = orders
		shared := pods(t)
		var plans []*Plan
		for i := range runs + 1 {
			plans = append(plans, newPlan(uint64(i), t0, shared))
		}
		i := 0
		n := testing.AllocsPerRun(runs, func() {
			s.clock.advance(alarm)
			s.inflight = nil
			s.plan.Store(plans[i])
			i++
			s.tick()
		})
		if n != 0 {
			t.Errorf("%v allocations per decision", n)
		}
		if len(orders) != runs+1 {
			t.Errorf("%d decisions in %d ticks", len(orders), runs+1)
		}
		if d := <-orders; d.pod().Candidate.UID != string(rune('A'+199)) {
			t.Errorf("victim %s, want the largest", d.pod())
		}
	})
	t.Run("waiting for a kill", func(t *testing.T) {
		s := newSamplerRig(t, hardRules, 200*mi)
		p, c := hog(t, "u1", 8*gi)
		s.offer(p)
		if s.after(alarm) == nil {
			t.Fatal("no decision")
		}
		n := testing.AllocsPerRun(runs, func() {
			c.change(func(c *fakeCgroup) { c.current -= 2 * mi })
			s.clock.advance(alarm)
			s.tick()
		})
		if n != 0 {
			t.Errorf("%v allocations per tick", n)
		}
	})
}

// With both signals and kubelet's own sources, through a decision and an
// emergency.
func TestEmergencyDoesNotAllocate(t *testing.T) {
	const runs = 100
	s := newSamplerRig(t, hardRules, 450*mi)
	s.view(&fakePods{limit: 29 * gi, usage: 28 * gi, inactive: gi})
	s.use(&Settings{
		Rules: Rules{From: FromKubelet, Amount: 500 * mi}, Allocatable: Rules{Amount: 500 * mi}, KillBudget: 1000,
	})
	s.root, s.scan = v2Root(t, 16*gi-450*mi, gi, gi), &fakeScan{}
	orders := make(chan *Decision, 4*runs)
	s.Sampler.orders = orders
	p, _ := hog(t, "a", 200*mi)
	q, _ := hog(t, "b", 100*mi)
	var plans []*Plan
	for i := range runs + 1 {
		plan := newPlan(uint64(i), t0, []PlanPod{p, q})
		plan.pods = s.pods
		plans = append(plans, plan)
	}
	low := v2Root(t, 16*gi-100*mi, gi, gi)
	high := s.root
	i := 0
	n := testing.AllocsPerRun(runs, func() {
		s.inflight, s.second, s.breaker = nil, nil, breaker{}
		s.plan.Store(plans[i])
		i++
		s.root = high
		for range 2 {
			s.clock.advance(alarm)
			s.tick()
		}
		s.root = low
		s.clock.advance(alarm)
		s.tick()
	})
	if n != 0 {
		t.Errorf("%v allocations per round", n)
	}
	if len(orders) != 2*(runs+1) {
		t.Errorf("%d kills ordered in %d rounds, want two each", len(orders), runs+1)
	}
}

// From the order to the signal nothing is allocated either.
func TestKillDoesNotAllocate(t *testing.T) {
	const runs = 50
	w, _ := openHolds(t)
	clock := newClock()
	done := make(chan *Decision, runs+1)
	k := &killer{holds: w, clock: clock.Now, done: done}
	var ds []*Decision
	var slots []*holds.Slot
	for range runs + 1 {
		slot, err := w.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, &slot)
		p, _ := hog(t, "u1", gi)
		plan := newPlan(1, t0, []PlanPod{p})
		plan.decision.Victim, plan.decision.At = 0, t0
		ds = append(ds, plan.decision)
	}
	i := 0
	if n := testing.AllocsPerRun(runs, func() { k.ready.Store(slots[i]); k.carryOut(ds[i]); i++ }); n != 0 {
		t.Errorf("%v allocations per kill", n)
	}
	for _, d := range ds {
		if d.kill.intentErr != nil {
			t.Fatal(d.kill.intentErr)
		}
	}
}
