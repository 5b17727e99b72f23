package admin

import (
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

// signalsNow are signals with one of everything.
func signalsNow() []eviction.SignalNow {
	in := 90 * time.Second
	m := memory()
	return []eviction.SignalNow{
		{
			Signal: eviction.MemoryAvailable, Known: true, Capacity: m.Capacity, Available: m.Available, AvailableKernel: m.AvailableKernel,
			AvailableKubelet: m.AvailableKubelet, Floor: m.Floor, NotActing: "a kill is in flight, or its memory is still coming back",
			Thresholds: []eviction.ThresholdNow{{Kind: eviction.KindHard, Amount: m.Threshold, MinReclaim: 100 << 20, Met: true, MetSince: moment}, {
				Kind: eviction.KindSoft, Amount: 1 << 30, Grace: 90 * time.Second, Met: true, MetSince: moment, NotActing: "its grace of 1m30s is over in 12s",
			}},
		},
		{
			Signal: eviction.AllocatableMemoryAvailable, Known: true, Capacity: 15 << 30, Available: 2 << 30, AvailableKernel: 2 << 30,
			AvailableKubelet: 1900 << 20, Floor: m.Floor, TimeToThreshold: &in, Unarmed: true, Breaker: eviction.OutsidePressure.Reason(), BreakerUntil: moment,
			Thresholds: []eviction.ThresholdNow{{Kind: eviction.KindHard, Amount: m.Threshold}},
		},
		{
			Signal: eviction.NodeFsInodesFree, Unit: eviction.Inodes, Known: true, Capacity: 1_000_000, Available: 59_000, AvailableKernel: 59_000,
			AvailableKubelet: 59_000, Path: "/var/lib/kubelet", Device: "8:1",
			Thresholds: []eviction.ThresholdNow{{Kind: eviction.KindHard, Amount: 60_000, Met: true, MetSince: moment}},
		},
	}
}

func sourcesNow() []eviction.SourceNow {
	return []eviction.SourceNow{
		{Name: eviction.SourceMemory, OK: true, At: moment, Age: 3 * time.Millisecond},
		{Name: eviction.SourceInventory, OK: false, At: moment.Add(-time.Minute), Age: time.Minute},
		{Name: eviction.SourceKubelet},
	}
}

// garbageNow is what garbage collection did, with one of everything.
func garbageNow() gc.Counts {
	return gc.Counts{
		Removed: []gc.Count{
			{Kind: gc.KindContainer, Why: gc.ForPressure, Count: 12}, {Kind: gc.KindImage, Why: gc.ForWatermark, Count: 3},
			{Kind: gc.KindImage, Why: gc.ForPressure, Failed: true, Count: 1},
		},
		GaveUp: 2, Unused: 5, Needed: 7,
	}
}

// countsNow is what happened, with one of everything.
func countsNow() eviction.Counts {
	d := eviction.Durations{Bounds: []float64{0.001, 1}, Buckets: []uint64{1, 2}, Count: 3, Sum: 2500 * time.Millisecond}
	return eviction.Counts{
		Decisions: []eviction.DecisionCount{
			{Signal: eviction.MemoryAvailable, Kind: eviction.KindHard, Outcome: eviction.OutcomeEvicted, Reason: eviction.ReasonEarlyBand, Count: 2},
			{Signal: eviction.MemoryAvailable, Kind: eviction.KindSoft, Outcome: eviction.OutcomeNoVictim, Reason: eviction.WithinRequest.Reason(), Count: 1},
		},
		Breaches: []eviction.SignalCount{{Signal: eviction.MemoryAvailable, Count: 3}},
		Kills: []eviction.KillCount{
			{Signal: eviction.MemoryAvailable, Kind: eviction.KindHard, Direct: true, Dead: true, Count: 2},
			{Signal: eviction.MemoryAvailable, Kind: eviction.KindSoft, Direct: false, Dead: false, Count: 1},
		},
		Stages:     []eviction.StageCount{{Signal: eviction.MemoryAvailable, Kind: eviction.KindHard, Stage: eviction.StageSent, Durations: d}},
		KillErrors: []eviction.ReasonCount{{Reason: "runtime", Count: 4}},
		Retries:    5, Fallbacks: 6, InProgress: 1,
		Releases: []eviction.ReasonCount{{Reason: eviction.ReleasedPressureOver, Count: 7}},
	}
}
