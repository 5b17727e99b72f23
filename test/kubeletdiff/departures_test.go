package kubeletdiff

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// Each departure that is switched off for the comparison is one: with it on, some
// scenario differs.
func TestEverySwitchIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name string
		on   func(*eviction.Settings)
	}{
		{"UnmeasuredFirst", func(s *eviction.Settings) { s.Rules.AsKubelet.UnmeasuredFirst = false }},
		{"WithinRequest", func(s *eviction.Settings) { s.Rules.AsKubelet.WithinRequest = false }},
		{"FreesNothing", func(s *eviction.Settings) { s.Rules.AsKubelet.FreesNothing = false }},
		{"NoBreakers", func(s *eviction.Settings) { s.Rules.AsKubelet.NoBreakers = false }},
		{"GraceBelowHalf", func(s *eviction.Settings) { s.Rules.AsKubelet.GraceBelowHalf = false }},
		{"InodesLessRequest", func(s *eviction.Settings) { s.Rules.AsKubelet.InodesLessRequest = false }},
		{"SmallGainLast", func(s *eviction.Settings) { s.Rules.SmallGainLast = true }},
		{"HardGrace", func(s *eviction.Settings) { s.HardGrace = 0 }},
		{"memoryAvailableFrom", func(s *eviction.Settings) { s.Rules.From = eviction.FromKernel }},
		{"protectStatic", func(s *eviction.Settings) { s.Protection.Static = false }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, file := policy(), openHolds(t)
			tt.on(&p)
			for seed := range uint64(3000) {
				sc := scenario(seed)
				if diff, _ := playOne(t, sc, p, file, func(cell) {}); diff != nil {
					t.Logf("seed %d, %s, %s: %s", seed, sc.Focus, sc.Layout, diff)
					return
				}
			}
			t.Error("3000 scenarios show no difference")
		})
	}
}

// byHand is a scenario with one step, 60 s long, that is calm but for some signals.
func byHand(focus eviction.Signal, pods []Pod, uses []Use, available map[eviction.Signal]uint64) *Scenario {
	sc := &Scenario{
		Focus: focus, Layout: SingleFs, MaxPodGrace: 20, Transition: time.Minute,
		Hard: map[string]string{}, Soft: map[string]string{}, SoftGrace: map[string]string{}, MinReclaim: map[string]string{}, Pods: pods,
	}
	st := Step{Available: map[eviction.Signal]uint64{}, Pods: uses, Lasts: time.Minute}
	for _, sig := range eviction.Signals() {
		st.Available[sig] = capacityOf(sig)
	}
	for sig, n := range available {
		st.Available[sig] = n
	}
	sc.Steps = []Step{st}
	return sc
}

// two are pods that differ in all they use; the first has more.
func two() ([]Pod, []Use) {
	use := func(n uint64) Use {
		f := Files{Bytes: n << 30, Inodes: n * 10_000}
		return Use{Measured: true, Memory: n << 30, Layer: f, Logs: f, Volume: f, Processes: n * 100}
	}
	grace := ptr(int64(30))
	return []Pod{{Name: "more", Containers: []int64{0}, Grace: grace}, {Name: "less", Containers: []int64{0}, Grace: grace}}, []Use{use(2), use(1)}
}

// The departures that have no switch, each with what it changes: the text of the
// first difference, or the outcome that stands for it.
func TestDeparturesWithoutASwitch(t *testing.T) {
	const gi = 1 << 30
	pods, uses := two()
	for _, tt := range []struct {
		name     string
		scenario func() *Scenario
		outcome  Outcome  // that is counted; there is no difference then
		texts    []string // of the difference
	}{
		{
			// kubelet tells hard from soft by the grace alone.
			name: "a soft threshold with no grace is soft",
			scenario: func() *Scenario {
				sc := byHand(eviction.MemoryAvailable, pods, uses, map[eviction.Signal]uint64{eviction.MemoryAvailable: gi / 2})
				sc.Soft["memory.available"], sc.SoftGrace["memory.available"] = "1Gi", "0s"
				return sc
			},
			texts: []string{"ours takes more for memory.available, soft", "kubelet takes more with 1 s"},
		},
		{
			name: "a written allocatable threshold replaces the clone of memory's",
			scenario: func() *Scenario {
				sc := byHand(eviction.AllocatableMemoryAvailable, pods, uses, map[eviction.Signal]uint64{eviction.AllocatableMemoryAvailable: gi * 3 / 2})
				sc.Hard["memory.available"], sc.Hard["allocatableMemory.available"], sc.EnforcePods = "2Gi", "1Gi", true
				return sc
			},
			texts: []string{"kubelet takes more with 1 s", "Threshold quantity: 2Gi", "ours does not take a pod"},
		},
		{
			// 3 % of 4,000,000 is 119,999 with kubelet's float32.
			name: "percentages are exact",
			scenario: func() *Scenario {
				sc := byHand(eviction.NodeFsInodesFree, pods, uses, map[eviction.Signal]uint64{eviction.NodeFsInodesFree: 119_999})
				sc.Hard["nodefs.inodesFree"] = "3%"
				return sc
			},
			texts: []string{"ours collects garbage for nodefs.inodesFree, hard, kubelet does nothing"},
		},
		{
			name: "nobody is taken for what is solved",
			scenario: func() *Scenario {
				sc := byHand(eviction.NodeFsAvailable, pods, uses, map[eviction.Signal]uint64{eviction.NodeFsAvailable: gi / 2, eviction.MemoryAvailable: gi / 2})
				sc.Hard["nodefs.available"], sc.Soft["memory.available"], sc.SoftGrace["memory.available"] = "1Gi", "1Gi", "1h"
				sc.Steps[0].Garbage.Images.Bytes = 2 * gi
				return sc
			},
			outcome: AllThresholdsClear,
		},
		{
			name: "a signal acts beside memory",
			scenario: func() *Scenario {
				sc := byHand(eviction.NodeFsAvailable, pods, uses, map[eviction.Signal]uint64{eviction.NodeFsAvailable: 1, eviction.MemoryAvailable: gi / 2})
				sc.Hard["nodefs.available"], sc.Soft["memory.available"], sc.SoftGrace["memory.available"] = "10Gi", "4Gi", "500ms"
				return sc
			},
			outcome: SignalsOnTheirOwn,
		},
		{
			name: "a source that fails stops its own signals only",
			scenario: func() *Scenario {
				sc := byHand(eviction.MemoryAvailable, pods, uses, map[eviction.Signal]uint64{eviction.MemoryAvailable: gi / 2})
				sc.Hard["memory.available"], sc.Hard["imagefs.available"], sc.NoImageFs = "1Gi", "15%", true
				return sc
			},
			texts: []string{"ours takes more for memory.available, hard, kubelet does nothing"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCounts()
			diff, trace := playOne(t, tt.scenario(), policy(), openHolds(t), c.add)
			all := fmt.Sprint(diff, "\n", strings.Join(trace, "\n"))
			if tt.outcome != "" {
				if diff != nil || c.n[cell{outcome: tt.outcome}] == 0 {
					t.Errorf("want no difference and %q\n%s", tt.outcome, all)
				}
				return
			}
			if diff == nil {
				t.Fatalf("no difference\n%s", all)
			}
			for _, text := range tt.texts {
				if !strings.Contains(diff.String(), text) {
					t.Errorf("want %q\n%s", text, all)
				}
			}
		})
	}
}
