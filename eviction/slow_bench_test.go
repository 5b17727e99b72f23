package eviction

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// slowCounts are the calls of decisions to anybody outside.
type slowCounts struct{ tasks, runtime int }

// knownUsage is what pods have on disk, always the same.
type knownUsage map[string]*PodUsage

func (k knownUsage) PodUsage() map[string]*PodUsage { return k }
func (k knownUsage) Near([]uint64)                  {}

// countedRuntime is a runtime whose calls are counted.
type countedRuntime struct{ counts *slowCounts }

func (c countedRuntime) RemoveContainer(context.Context, string) error {
	c.counts.runtime++
	return nil
}

func (c countedRuntime) paths(context.Context) (string, string, error) {
	c.counts.runtime++
	return "/img", "", nil
}

// slowBench is an engine with n pods of 3 containers, a plan of them and what each
// has on the disk, and a threshold that is met. It has no connection to a runtime
// but the one that is counted.
func slowBench(tb testing.TB, n int, s Signal) (*Engine, *softWatch, *slowCounts) {
	tb.Helper()
	store, cgroups := benchSnapshot(tb, n)
	log, _ := quietLog()
	usage, counts := knownUsage{}, &slowCounts{}
	for _, p := range store.Snapshot().Pods {
		u := &PodUsage{}
		for i := range 3 {
			u.Parts = append(u.Parts,
				UsagePart{What: PartWritableLayer, Device: 1, Freed: FreedByRemoval, Bytes: UsageNumber{Value: gi + uint64(i), Known: true}, Inodes: UsageNumber{Value: 100, Known: true}},
				UsagePart{What: PartLogs, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: mi, Known: true}})
		}
		usage[p.UID] = u
	}
	tasks := func(path string) (uint64, error) {
		counts.tasks++
		if path == "" {
			return 0, cgroupfs.ErrGone
		}
		return 30, nil
	}
	runtime := countedRuntime{counts}
	set := Settings{Slow: []SlowThreshold{
		{Signal: NodeFsAvailable, Value: Threshold{Text: "12Gi", Quantity: 12 * gi}, Hard: true},
		{Signal: PIDAvailable, Value: Threshold{Text: "3000", Quantity: 3000}, Hard: true},
	}, HoldMaximum: time.Hour}
	e := &Engine{store: store, log: log, clock: func() time.Time { return t0 }, soft: newSoftHalf()}
	e.sampler = newSampler(newNode(8*gi), nil, 0, e.clock, nil, nil, nil)
	e.set.Store(&set)
	e.slow = newSlowReader(SlowParts{Usage: usage, Remove: runtime, ImagePaths: runtime.paths, CgroupPIDs: tasks}, e.clock, e.slowValues, make(chan struct{}, 1))
	e.slow.take(s, Reading{At: t0, Available: 100, Capacity: 100 * gi, Device: 1, Path: "/kubelet"})
	e.sampler.plan.Store(newPlanner(cgroups, Protection{}, log).build(planInput{now: t0, snapshot: store.Snapshot()}))
	w := &softWatch{key: watchKey{SoftThreshold: SoftThreshold{Signal: s, Amount: 12 * gi}, hard: true, slow: true}}
	if s == PIDAvailable {
		w.key.Amount = 3000
	}
	w.last = observation{At: t0, Available: 100, Device: 1}
	return e, w, counts
}

// One decision of the slow half, without the reads of real files (cgroupfs has
// those): measure every pod, rank, choose.
func BenchmarkDecideSlow(b *testing.B) {
	for _, s := range []Signal{NodeFsAvailable, PIDAvailable} {
		for _, n := range []int{125, 250, 500, 1000} {
			b.Run(fmt.Sprintf("%s/%d pods", s, n), func(b *testing.B) {
				e, w, counts := slowBench(b, n, s)
				b.ReportAllocs()
				for b.Loop() {
					if d, why := e.chooseSlow(e.settings(), w, t0); d == nil {
						b.Fatal(why)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/pod")
				b.ReportMetric(float64(counts.runtime)/float64(b.N), "runtime-calls/op")
			})
		}
	}
}
