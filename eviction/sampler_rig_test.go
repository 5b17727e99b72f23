package eviction

import (
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// samplerRig is a sampler alone, with a passed clock.
type samplerRig struct {
	*Sampler
	t                       *testing.T
	clock                   *fakeClock
	node                    *fakeNode
	orders, observed, stuck chan *Decision
	generation              uint64
	pods                    *podsView // for every plan offered
}

func newSamplerRig(t *testing.T, r Rules, available uint64) *samplerRig {
	t.Helper()
	s := &samplerRig{
		t: t, clock: newClock(), node: newNode(available),
		orders: make(chan *Decision, 4), observed: make(chan *Decision, 4), stuck: make(chan *Decision, 4),
	}
	s.Sampler = newSampler(s.node, nil, 0, s.clock.Now, s.orders, s.observed, s.stuck)
	s.armed.always.Store(true)
	s.allocatable.armed.always.Store(true)
	s.use(&Settings{Rules: r})
	return s
}

// hog is a pod far over its request.
func hog(t testing.TB, uid string, usage uint64) (PlanPod, *fakeCgroup) {
	t.Helper()
	c := &fakeCgroup{path: "/kubepods/burstable/pod" + uid, current: usage, procs: true}
	return planPod(t, uid, c), c
}

func planPod(t testing.TB, uid string, cgroups ...*fakeCgroup) PlanPod {
	t.Helper()
	p := PlanPod{
		Ref:       inventory.Ref{Namespace: "default", Name: uid, UID: uid},
		Candidate: Candidate{UID: uid, RequestKnown: true},
		sandboxes: []string{"s-" + uid}, containers: []string{"c-" + uid}, inPods: true,
	}
	for _, c := range cgroups {
		p.cgroups = append(p.cgroups, c)
		p.CgroupPath, p.CgroupInode = c.path, c.inode
	}
	prepared, err := holds.Prepare(holds.Record{
		State: holds.Intent, UID: uid, Namespace: "default", Name: uid, Cgroup: p.CgroupPath, Signal: string(MemoryAvailable),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.prepared = prepared
	return p
}

// offer gives the sampler a fresh plan.
func (s *samplerRig) offer(pods ...PlanPod) {
	s.generation++
	p := newPlan(s.generation, s.clock.Now(), pods)
	p.pods = s.pods
	s.plan.Store(p)
}

// after lets time pass, ticks, and returns what was ordered, nil for nothing.
func (s *samplerRig) after(d time.Duration) *Decision {
	s.t.Helper()
	s.clock.advance(d)
	s.tick()
	select {
	case o := <-s.orders:
		return o
	default:
		return nil
	}
}

// quiet fails when anything is ordered within n ticks of d each.
func (s *samplerRig) quiet(n int, d time.Duration, why string) {
	s.t.Helper()
	for i := range n {
		if o := s.after(d); o != nil {
			s.t.Fatalf("a kill of %s was ordered at tick %d: %s", o.pod(), i, why)
		}
	}
}
