package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/golden"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// A soft decision is printed with all its inputs, also one that ended nobody.
func TestSoftOutputForPeople(t *testing.T) {
	x := explained()
	at := time.Date(2026, 11, 29, 18, 30, 0, 0, time.UTC)
	hour := time.Hour
	shortened := x.Decisions[0]
	x.Soft = []eviction.SoftNow{
		{Signal: eviction.MemoryAvailable, Threshold: 1 << 30, MinReclaim: 200 * mi, Grace: 90 * time.Second, Available: 900 * mi, Known: true, MetSince: at, Due: at.Add(90 * time.Second), Waiting: "its grace of 1m30s is over in 12s"},
		{Signal: eviction.AllocatableMemoryAvailable, Threshold: 1 << 30, Grace: 90 * time.Second, Unarmed: true},
	}
	shortened.Outcome, shortened.Kill = eviction.OutcomeEvicted, &eviction.KillReport{Direct: true, Tries: 1}
	shortened.Soft = &eviction.SoftReport{
		Grace: 90 * time.Second, MinReclaim: 200 * mi, MetSince: at, Shortage: 324 * mi, MaxPodGrace: 30 * time.Second, PodGrace: 30 * time.Second, PodAsked: &hour,
		Reclaim:   &eviction.ReclaimReport{Asked: 128 * mi, Returned: 64 * mi, Took: 50 * time.Millisecond, Available: 900 * mi, After: 950 * mi, Pods: []inventory.Ref{*x.Next}},
		Hooks:     []eviction.HookReport{{Container: "c1", Kind: "exec", Took: 2 * time.Second, Error: "exit code 1"}},
		Shortened: &eviction.Shortened{Time: at, Signal: eviction.MemoryAvailable, Memory: pressed()},
	}
	escalated := x.Decisions[1]
	escalated.Soft = &eviction.SoftReport{Grace: 90 * time.Second, PodGrace: 2 * time.Second, Escalated: "container c1 had 2s: context deadline exceeded"}
	graceful := x.Decisions[1]
	graceful.Soft = &eviction.SoftReport{Grace: 90 * time.Second, PodGrace: 2 * time.Second}
	x.Decisions = []eviction.Report{shortened, escalated, graceful, {
		ID: 5, Time: at, Outcome: eviction.OutcomeReclaimed, Summary: "the kernel took back 64Mi", Memory: pressed(), Soft: &eviction.SoftReport{Grace: 90 * time.Second, MetSince: at},
	}}
	status := admin.Status{Version: "v1", PID: 42, Engine: eviction.State{
		Mode: "enforce", Started: time.Now(), Soft: x.Soft,
		Conditions: eviction.ConditionsNow{MemoryPressure: true, PIDPressure: true, Since: at, Error: "disk full"},
	}}
	var out bytes.Buffer
	printExplanation(&out, &x)
	golden.Check(t, "explain-soft.txt", []byte(withoutTimes(out.String())))
	out.Reset()
	printStatus(&out, &status)
	golden.Check(t, "status-soft.txt", []byte(withoutTimes(out.String())))
}
