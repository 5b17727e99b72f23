package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// reclaimFake is a cgroup with this much to take back.
type reclaimFake struct {
	fakeCgroup
	asked []uint64
	has   uint64 // bytes
	err   error
	took  func()
}

func (r *reclaimFake) Reclaim(bytes uint64) error {
	r.asked = append(r.asked, bytes)
	if r.took != nil {
		r.took()
	}
	if r.err != nil {
		return r.err
	}
	if r.has < bytes {
		r.has = 0
		return fmt.Errorf("memory.reclaim: %w", cgroupfs.ErrReclaimShort)
	}
	r.has -= bytes
	return nil
}

func targetOf(name string, excess uint64, c *reclaimFake) reclaimTarget {
	t := reclaimTarget{excess: excess, from: []reclaimer{c}}
	t.ref.Name = name
	return t
}

func TestReclaimInChunks(t *testing.T) {
	clock := newClock()
	a, b := &reclaimFake{has: 130 * mi}, &reclaimFake{has: gi}
	r, absent := reclaim([]reclaimTarget{targetOf("a", gi, a), targetOf("b", gi, b)}, 250*mi, clock.Now)
	// 128 MiB and then short from a, the rest from b
	if absent || r.Returned != 256*mi || len(a.asked) != 3 || len(b.asked) != 2 || a.asked[0] != 64*mi || len(r.Pods) != 2 || r.Error != "" {
		t.Errorf("%+v; asked %v and %v", r, a.asked, b.asked)
	}
}

func TestReclaimTakesNoMoreThanTheExcess(t *testing.T) {
	a := &reclaimFake{has: gi}
	r, _ := reclaim([]reclaimTarget{targetOf("a", 100*mi, a)}, gi, newClock().Now)
	if r.Returned != 128*mi {
		t.Errorf("%d bytes of a pod that is 100 MiB over its request", r.Returned)
	}
}

func TestReclaimEndsAtItsDeadline(t *testing.T) {
	clock := newClock()
	a := &reclaimFake{has: 64 * gi}
	a.took = func() { clock.advance(20 * time.Millisecond) }
	r, _ := reclaim([]reclaimTarget{targetOf("a", 64*gi, a), targetOf("b", gi, &reclaimFake{})}, 64*gi, clock.Now)
	// begun at 0, 20 and 40 ms
	if len(a.asked) != 3 || r.Took != 60*time.Millisecond || len(r.Pods) != 1 {
		t.Errorf("%d writes, %+v", len(a.asked), r)
	}
}

func TestReclaimWithoutTheKernel(t *testing.T) {
	a := &reclaimFake{err: fmt.Errorf("memory.reclaim: %w", cgroupfs.ErrAbsent)}
	if _, absent := reclaim([]reclaimTarget{targetOf("a", gi, a), targetOf("b", gi, a)}, gi, newClock().Now); !absent || len(a.asked) != 1 {
		t.Errorf("absent %v after %d writes", absent, len(a.asked))
	}
	a = &reclaimFake{err: errors.New("input/output error")}
	if r, absent := reclaim([]reclaimTarget{targetOf("a", gi, a)}, gi, newClock().Now); absent || r.Error == "" || r.Returned != 0 {
		t.Errorf("%+v, absent %v", r, absent)
	}
}

// Those over their request, the one with the most idle page cache first, nobody
// who is protected.
func TestReclaimTargets(t *testing.T) {
	pod := func(name string, inactive uint64, barred string) PlanPod {
		p := PlanPod{InactiveFile: inactive, Barred: barred, cgroups: []Cgroup{&reclaimFake{}}}
		p.Name = name
		return p
	}
	pods := []PlanPod{pod("small", 10, ""), pod("inside", 99, ""), pod("protected", 99, "protected"), pod("large", 50, ""), pod("same", 10, "")}
	over := func(excess uint64) Candidate {
		return Candidate{Known: true, RequestKnown: true, Request: 100, Usage: 100 + excess}
	}
	cands := []Candidate{over(1), {Known: true, RequestKnown: true, Request: 100, Usage: 100}, over(5), over(1), over(7)}
	var got []string
	for _, x := range reclaimTargets(pods, cands) {
		got = append(got, x.ref.Name)
	}
	if fmt.Sprint(got) != "[large same small]" {
		t.Errorf("%v", got)
	}
	// A cgroup that cannot do it is none.
	pods[0].cgroups = []Cgroup{struct{ Cgroup }{&fakeCgroup{}}}
	if n := len(reclaimTargets(pods, cands)); n != 2 {
		t.Errorf("%d targets", n)
	}
}
