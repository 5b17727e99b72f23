package eviction

import (
	"slices"
	"testing"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Worked out by hand from facts/kubelet.md §3.1.
func TestKubeletRanks(t *testing.T) {
	type pod struct {
		uid            string
		usage, request uint64
		priority       int32
		static, blind  bool
		unknownRequest bool
	}
	all := []pod{
		{uid: "over-low", usage: 300, request: 100, priority: 0},
		{uid: "over-low-more", usage: 500, request: 100, priority: 0},
		{uid: "over-high", usage: 9000, request: 100, priority: 10},
		{uid: "within-low", usage: 99, request: 100, priority: -5},
		{uid: "exactly", usage: 100, request: 100, priority: -5},
		{uid: "no-numbers", blind: true, priority: 1000},
		{uid: "no-numbers-low", blind: true, priority: 1},
		{uid: "static", usage: 9000, static: true},
		{uid: "critical", usage: 9000, priority: inventory.SystemCriticalPriority},
		{uid: "best-effort", usage: 350, unknownRequest: true},
	}
	var pods []PlanPod
	var cands []Candidate
	for _, p := range all {
		pods = append(pods, PlanPod{Static: p.static, Priority: inventory.Value[int32]{Value: p.priority}})
		cands = append(cands, Candidate{UID: p.uid, Priority: p.priority, Usage: p.usage, Request: p.request, Known: !p.blind, RequestKnown: !p.unknownRequest})
	}
	want := map[string]int{
		"no-numbers-low": 1, "no-numbers": 2, "over-low-more": 3, "best-effort": 4, "over-low": 5, "over-high": 6,
		"exactly": 7, "within-low": 8, "static": 0, "critical": 0,
	}
	check := func(order string) {
		t.Helper()
		for i, rank := range kubeletRanks(pods, cands) {
			if uid := cands[i].UID; rank != want[uid] {
				t.Errorf("%s: %s is %d, want %d", order, uid, rank, want[uid])
			}
		}
	}
	check("as listed")
	slices.Reverse(pods)
	slices.Reverse(cands)
	check("reversed")
}
