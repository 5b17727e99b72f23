package eviction

import (
	"strings"
	"testing"
	"time"
)

// bugs.md B10: what is in a memory volume is charged to the pod and to no running
// container. The pod counts as a whole; its files are not what a stop gives back
// until kubelet unmounts the volume, which it does once Kubernetes is told of the
// eviction (design §8).
func TestCaseB10(t *testing.T) {
	r := newPlanRig(t)
	c := r.cgroups.make(ownPath, 2147483648)
	c.shmem = 2040109466
	r.cgroups.make(ownPath+"/c-u1", 125829120)
	r.cgroups.volumes["u1"] = 2040109466
	for told, gain := range map[bool]uint64{false: 107374182, true: 2147483648} {
		r.in.told = told
		var m Candidate
		r.only(r.plan(0, inventoryPod("u1", ownPath, true))).measure(&m)
		if m.Usage != 2147483648 || m.Gain != gain {
			t.Errorf("told %v: usage %d, gain %d; want 2 GiB and %d", told, m.Usage, m.Gain, gain)
		}
	}
}

// bugs.md B20: the first by rank has ended, its sandbox is not ready and its
// cgroup empty. It costs the decision no time.
func TestCaseB20(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		dead := r.add(testPod{uid: "dead", usage: 4 * gi})
		dead.change(func(c *fakeCgroup) { c.procs = false })
		r.runtime.mu.Lock()
		s := r.runtime.sandboxes["s-dead"]
		s.Sandbox.Ready = false
		r.runtime.sandboxes["s-dead"] = s
		r.runtime.mu.Unlock()
		next := r.add(testPod{uid: "next", usage: gi})
		var killed time.Time
		next.onKill = func() { killed = time.Now() }
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(450 * mi)
		crossed := time.Now()
		pass(1200 * time.Millisecond)
		r.wantOutcomes("evicted next")
		// the calm period, two samples, and nothing for the dead
		if after := killed.Sub(crossed); after > time.Second+2*alarm {
			t.Errorf("killed %v after the crossing", after)
		}
		if killsOf(dead) != 0 {
			t.Error("killed what is dead")
		}
	})
}

// bugs.md B23: the runtime says RUNNING, the cgroup is empty and holds 20Mi. The
// ranking goes by the cgroup: it is not chosen, and reported as inconsistent.
func TestCaseB23(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		dead := r.add(testPod{uid: "dead", usage: 20 * mi, priority: -10})
		dead.change(func(c *fakeCgroup) { c.procs = false })
		r.add(testPod{uid: "next", usage: gi, request: 2 * gi})
		r.node.setAvailable(8 * gi)
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(90 * mi) // below the floor, where everybody can be taken
		pass(1200 * time.Millisecond)
		r.wantOutcomes("evicted next")
		if killsOf(dead) != 0 {
			t.Error("killed what is dead")
		}
		found := false
		for _, c := range r.eng.History(1)[0].Candidates {
			if c.UID == "dead" {
				found = c.Barred == "no process of it is left, whatever the runtime says"
			}
		}
		if !found {
			t.Error("that they disagree is not reported")
		}
	})
}

// bugs.md B24, the evictor's part: a line of the log and a decision for every kill.
// (The status that kubelet reads is TestCaseB24 of package proxy.)
func TestCaseB24(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "u1", usage: 2 * gi})
		r.add(testPod{uid: "u2", usage: gi})
		defer r.evicted("u1")()
		said := 0
		for _, l := range r.lines.all() {
			if strings.Contains(l, "evicting: ") && strings.Contains(l, "default/u1 uses 2Gi") {
				said++
			}
		}
		if said != 1 {
			t.Errorf("said %d times:\n%s", said, strings.Join(r.lines.all(), "\n"))
		}
		r.wantOutcomes("evicted u1")
		rep := r.eng.History(1)[0]
		if rep.Kill == nil || rep.Kill.Signalled != 1 || rep.Kill.Settled == 0 || !strings.Contains(rep.Summary, "below 500Mi") {
			t.Errorf("report %+v", rep)
		}
	})
}

// bugs.md B100: the system stalls and memory is there: MemAvailable is 55 %, and
// one pod is at its own limit, which is its own business. Stall averages and
// events only make the sampler look, and scanning is no shortage.
func TestCaseB100(t *testing.T) {
	s := newSamplerRig(t, hardRules, 16*gi*55/100)
	scan := &countedScan{}
	s.scan = scan
	p, _ := hog(t, "u1", 2*gi) // as much as its memory.max
	for range 5000 {
		scan.pages += 5000
		s.offer(p)
		s.quiet(1, leastWait, "more than half of the memory is available")
	}
}

// bugs.md B106: no swap, 2 GiB go in 0.4 s, and nothing stalls until the end.
// The amount does by itself, whenever the sampler looked last.
func TestCaseB106(t *testing.T) {
	for phase, rest := time.Duration(0), time.Second; phase <= rest; phase += 7 * time.Millisecond {
		s := newSamplerRig(t, hardRules, 2*gi)
		p, _ := hog(t, "u1", 4*gi)
		s.offer(p)
		for range 5 {
			rest = s.tick() // at rest, with its own pace
			s.clock.advance(rest)
		}
		ordered := false
		begin := s.clock.Now().Add(-phase)
		for !ordered {
			at := s.clock.Now().Sub(begin)
			if at >= 400*time.Millisecond {
				t.Fatalf("phase %v: nothing is left, and no kill was ordered", phase)
			}
			left := uint64(2*gi) - uint64(max(at, 0))*2*gi/uint64(400*time.Millisecond)
			s.node.setAvailable(left)
			wait := s.tick()
			select {
			case <-s.orders:
				ordered = true
				if left < 250*mi {
					t.Errorf("phase %v: ordered with %d MiB left", phase, left/mi)
				}
			default:
				s.clock.advance(wait)
			}
		}
	}
}

// bugs.md B06: an idle node that looks nearly full at its root: no condition, no
// decision. (That check warns of the removed cgroups is TestCaseB06 of cmd.)
func TestCaseB06Condition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.node.capacity, r.node.system, r.node.cache = 8*gi, 8*gi-6963*mi-300*mi, 6863*mi
		r.add(testPod{uid: "u1", usage: 300 * mi})
		defer r.start()()
		pass(2 * time.Minute)
		if m := r.eng.State().Memory; m.AvailableKernel != 6963*mi || m.AvailableKubelet != 100*mi {
			t.Errorf("%d MiB by the kernel, %d MiB by kubelet; want 6963 and 100", m.AvailableKernel/mi, m.AvailableKubelet/mi)
		}
		if r.published().Any() {
			t.Error("a condition on an idle node")
		}
		r.wantOutcomes()
	})
}
