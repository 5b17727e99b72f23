package eviction

import (
	"fmt"
	"testing"
	"time"
)

// slowBench is an engine with n pods of 3 containers, a plan of them and what each
// has on the disk, and a threshold that is met.
func slowBench(b *testing.B, n int, s Signal) (*Engine, *softWatch) {
	b.Helper()
	store, cgroups := benchSnapshot(b, n)
	log, _ := quietLog()
	f := newDisks()
	for _, p := range store.Snapshot().Pods {
		u := &PodUsage{}
		for i := range 3 {
			u.Parts = append(u.Parts,
				UsagePart{What: PartWritableLayer, Device: 1, Freed: FreedByRemoval, Bytes: UsageNumber{Value: gi + uint64(i), Known: true}, Inodes: UsageNumber{Value: 100, Known: true}},
				UsagePart{What: PartLogs, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: mi, Known: true}})
		}
		f.usage[p.UID] = u
		f.podPIDs[p.Cgroup] = &fakeTasks{n: 30}
	}
	set := Settings{Slow: []SlowThreshold{{Signal: NodeFsAvailable, Hard: true}, {Signal: PIDAvailable, Hard: true}}, HoldMaximum: time.Hour}
	e := &Engine{store: store, log: log, clock: func() time.Time { return t0 }, soft: newSoftHalf()}
	e.sampler = newSampler(newNode(8*gi), nil, 0, e.clock, nil, nil, nil)
	e.set.Store(&set)
	e.slow = newSlowReader(SlowParts{Usage: f, Remove: f, CgroupPIDs: f.cgroupPIDs}, e.clock, e.slowValues, make(chan struct{}, 1))
	e.slow.take(s, Reading{At: t0, Available: 100, Capacity: 100 * gi, Device: 1, Path: "/kubelet"})
	e.sampler.plan.Store(newPlanner(cgroups, Protection{}, log).build(planInput{now: t0, snapshot: store.Snapshot()}))
	w := &softWatch{key: watchKey{SoftThreshold: SoftThreshold{Signal: s, Amount: 12 * gi}, hard: true, slow: true}}
	w.last = observation{At: t0, Available: 100, Device: 1}
	return e, w
}

// One decision of the slow half, without the reads of real files: measure every
// pod, rank, choose.
func BenchmarkDecideSlow(b *testing.B) {
	for _, s := range []Signal{NodeFsAvailable, PIDAvailable} {
		for _, n := range []int{125, 250, 500, 1000} {
			b.Run(fmt.Sprintf("%s/%d pods", s, n), func(b *testing.B) {
				e, w := slowBench(b, n, s)
				b.ReportAllocs()
				for b.Loop() {
					if d, why := e.chooseSlow(e.settings(), w, t0); d == nil {
						b.Fatal(why)
					}
				}
			})
		}
	}
}
