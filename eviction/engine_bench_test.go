package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// benchSnapshot has n Burstable pods with one container each, and their cgroups.
func benchSnapshot(b testing.TB, n int) (*inventory.Store, *fakeCgroups) {
	b.Helper()
	cgroups := newCgroups(newNode(8 * gi))
	store := inventory.NewStore(inventory.Options{MemTotal: 16 * gi})
	l := inventory.Listing{Started: t0, Finished: t0}
	adj, limit := int64(950), int64(0)
	for i := range n {
		uid := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
		path := "/kubepods/burstable/pod" + uid
		cgroups.make(path, uint64(i+2)*mi)
		l.Sandboxes = append(l.Sandboxes, inventory.ListedSandbox{
			Sandbox: inventory.Sandbox{ID: "s" + uid, Ready: true, Created: t0, CgroupParent: path},
			Pod:     inventory.Ref{Namespace: "default", Name: "pod-" + uid, UID: uid},
		})
		l.Containers = append(l.Containers, inventory.Container{
			ID: "c" + uid, SandboxID: "s" + uid, Name: "main", Running: true, Created: t0, OOMScoreAdj: &adj, MemoryLimit: &limit,
		})
	}
	store.ApplyListing(l)
	return store, cgroups
}

// One plan of the slow half, without the reads of real files (cgroupfs has
// those).
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{30, 110, 500} {
		b.Run(fmt.Sprint(n, " pods"), func(b *testing.B) {
			store, cgroups := benchSnapshot(b, n)
			log, _ := quietLog()
			pl := newPlanner(cgroups, Protection{}, log)
			in := planInput{now: t0, snapshot: store.Snapshot()}
			b.ReportAllocs()
			for b.Loop() {
				pl.build(in)
			}
		})
	}
}

// One deciding tick of the fast half: measure every pod, rank, choose.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{30, 110, 500} {
		b.Run(fmt.Sprint(n, " pods"), func(b *testing.B) {
			store, cgroups := benchSnapshot(b, n)
			log, _ := quietLog()
			plan := newPlanner(cgroups, Protection{}, log).build(planInput{now: t0, snapshot: store.Snapshot()})
			decision := plan.decision
			orders := make(chan *Decision, 1)
			s := newSampler(newNode(50*mi), nil, 0, func() time.Time { return t0 }, orders, orders, orders)
			s.armed.always.Store(true)
			rules := Rules{Amount: 500 * mi, Floor: 100 * mi, SmallGainLast: true}
			s.plan.Store(plan)
			m := sample(0, 50*mi, 50*mi) // below the floor: everybody can be it
			st := step{verdict: judge(Verified, &m, rules.Amount, false), action: decide}
			b.ReportAllocs()
			for b.Loop() {
				plan.decision, s.inflight, s.breaker = decision, nil, breaker{}
				s.decide(&s.hard, &m, &st, &rules)
				<-orders
			}
		})
	}
}
