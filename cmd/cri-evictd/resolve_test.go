package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// The hard thresholds in force, with kubelet's configuration and without, and
// where they come from.
func TestResolveHard(t *testing.T) {
	const kind = "kind: KubeletConfiguration\n"
	for name, tt := range map[string]struct {
		ours, kubelet     string
		amount, floor     uint64
		from              string
		all, allFloor     uint64
		allFrom           string
		reclaim, allRecl  uint64
		limit             string // of the pods; 10Gi when empty
		kubeletUnreadable bool
	}{
		"auto": {amount: 500 * mib, floor: 100 * mib, from: "auto", all: 500 * mib, allFloor: 100 * mib, allFrom: "as memory.available: auto"},
		"auto, kubelet's is lower": {kubelet: kind + "evictionHard: {memory.available: 200Mi}\n", amount: 500 * mib, floor: 200 * mib, from: "auto",
			all: 500 * mib, allFloor: 200 * mib, allFrom: "as memory.available: auto"},
		"auto, kubelet's is not clearly lower": {kubelet: kind + "evictionHard: {memory.available: 450Mi}\n", amount: 550 * mib, floor: 450 * mib,
			from: "auto, raised above kubelet's 450Mi", all: 550 * mib, allFloor: 450 * mib, allFrom: "as memory.available: auto, raised above kubelet's 450Mi"},
		"auto, kubelet's is a share": {kubelet: kind + "evictionHard: {memory.available: \"10%\"}\n", amount: 1802 * mib, floor: 1638 * mib,
			from: "auto, raised above kubelet's", allFloor: 1024 * mib, all: 1802 * mib, allFrom: "as memory.available: auto"},
		"quantity":              {ours: "evictionHard: {memory.available: 300Mi}\n", amount: 300 * mib, floor: 100 * mib, from: "300Mi", all: 300 * mib, allFloor: 100 * mib, allFrom: "as memory.available: 300Mi"},
		"share":                 {ours: "evictionHard: {memory.available: \"5%\"}\n", amount: 800 * mib, floor: 100 * mib, from: "5%", all: 512 * mib, allFloor: 100 * mib, allFrom: "as memory.available: 5%"},
		"share, no limit":       {ours: "evictionHard: {memory.available: \"5%\"}\n", limit: "max", amount: 800 * mib, floor: 100 * mib, from: "5%", all: 800 * mib, allFloor: 100 * mib, allFrom: "as memory.available: 5%"},
		"off":                   {ours: "evictionHard: {memory.available: \"0%\"}\n", floor: 100 * mib, from: "turned off", allFloor: 100 * mib, allFrom: "turned off with memory.available"},
		"off, allocatable on":   {ours: "evictionHard: {memory.available: \"0%\", allocatableMemory.available: 1Gi}\n", floor: 100 * mib, from: "turned off", all: gib, allFloor: 100 * mib, allFrom: "1Gi"},
		"allocatable off":       {ours: "evictionHard: {allocatableMemory.available: \"0%\"}\n", amount: 500 * mib, floor: 100 * mib, from: "auto", allFloor: 100 * mib, allFrom: "turned off"},
		"allocatable's own":     {ours: "evictionHard: {allocatableMemory.available: \"10%\"}\n", amount: 500 * mib, floor: 100 * mib, from: "auto", all: gib, allFloor: 100 * mib, allFrom: "10%"},
		"kubelet limits no pod": {kubelet: kind + "enforceNodeAllocatable: [none]\n", amount: 500 * mib, floor: 100 * mib, from: "auto", allFloor: 100 * mib, allFrom: "kubelet does not limit the pods together (enforceNodeAllocatable)"},
		"kubelet is unreadable": {kubeletUnreadable: true, amount: 500 * mib, floor: 100 * mib, from: "auto", all: 500 * mib, allFloor: 100 * mib, allFrom: "as memory.available: auto"},
		"minimum reclaim": {ours: "evictionMinimumReclaim: {memory.available: \"1%\"}\n", amount: 500 * mib, floor: 100 * mib, from: "auto", all: 500 * mib, allFloor: 100 * mib,
			allFrom: "as memory.available: auto", reclaim: 160 * mib, allRecl: 102 * mib},
		"minimum reclaim of its own": {ours: "evictionHard: {allocatableMemory.available: 1Gi}\nevictionMinimumReclaim: {memory.available: 1Gi, allocatableMemory.available: 200Mi}\n",
			amount: 500 * mib, floor: 100 * mib, from: "auto", all: gib, allFloor: 100 * mib, allFrom: "1Gi", reclaim: gib, allRecl: 200 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, v2Tree, fakecri.Options{})
			n.memory(16<<20, 8<<20, 67584)
			if tt.limit == "" {
				tt.limit = fmt.Sprint(10 * gib)
			}
			n.edit("cgroup/kubepods.slice/memory.max", tt.limit+"\n")
			text := tt.ours
			if tt.kubelet != "" {
				text += "kubeletConfig: " + n.write("kubelet.yaml", tt.kubelet) + "\n"
			}
			if tt.kubeletUnreadable {
				text += "kubeletConfig: /nowhere\n"
			}
			r := resolve(configOf(t, text), machineOf(t, n))
			close := func(got, want uint64) bool { return max(got, want)-min(got, want) <= 40*mib }
			s := &r.set
			if !close(s.Rules.Amount, tt.amount) || !close(s.Rules.Floor, tt.floor) || !strings.HasPrefix(r.memoryFrom, tt.from) || !close(s.Rules.MinReclaim, tt.reclaim) {
				t.Errorf("memory.available %d, floor %d, reclaim %d, from %q", s.Rules.Amount, s.Rules.Floor, s.Rules.MinReclaim, r.memoryFrom)
			}
			if !close(s.Allocatable.Amount, tt.all) || !close(s.Allocatable.Floor, tt.allFloor) || !strings.HasPrefix(r.allocatableFrom, tt.allFrom) || !close(s.Allocatable.MinReclaim, tt.allRecl) {
				t.Errorf("allocatable %d, floor %d, reclaim %d, from %q", s.Allocatable.Amount, s.Allocatable.Floor, s.Allocatable.MinReclaim, r.allocatableFrom)
			}
			if (r.kubeletErr != nil) != tt.kubeletUnreadable {
				t.Error(r.kubeletErr)
			}
		})
	}
}

func TestResolveSoftAndTheRest(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.memory(16<<20, 8<<20, 67584)
	n.edit("cgroup/kubepods.slice/memory.max", fmt.Sprintln(10*gib))
	r := resolve(configOf(t, `mode: observe
memoryAvailableFrom: kernel
evictionSoft: {allocatableMemory.available: "10%", memory.available: "10%", nodefs.available: 20%}
evictionSoftGracePeriod: {allocatableMemory.available: 30s, memory.available: 1m, nodefs.available: 1s}
evictionMinimumReclaim: {memory.available: 100Mi}
evictionMaxPodGracePeriod: 60
hardMemoryGrace: 2s
killBudget: 7
holdMaximum: 2h
evictionPressureTransitionPeriod: 1m
`), machineOf(t, n))
	want := []eviction.SoftThreshold{
		{Signal: eviction.MemoryAvailable, Amount: 16 * gib / 10, MinReclaim: 100 * mib, Grace: time.Minute},
		{Signal: eviction.AllocatableMemoryAvailable, Amount: gib, Grace: 30 * time.Second},
	}
	if !slices.Equal(r.set.Soft, want) {
		t.Errorf("soft %+v", r.set.Soft)
	}
	s := &r.set
	if s.MaxPodGrace != time.Minute || s.HardGrace != 2*time.Second || s.KillBudget != 7 || s.HoldMaximum != 2*time.Hour || s.Transition != time.Minute {
		t.Errorf("%+v", s)
	}
	for _, rules := range []eviction.Rules{s.Rules, s.Allocatable} {
		if !rules.Observe || rules.From != eviction.FromKernel || !rules.SmallGainLast || rules.Paused {
			t.Errorf("%+v", rules)
		}
	}
	if len(r.warnings) != 0 {
		t.Errorf("%q", r.warnings)
	}
}

// A soft threshold that is not above the hard one never acts first: a warning,
// as kubelet takes it.
func TestSoftBelowHardIsAWarning(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	for soft, want := range map[string]string{
		"memory.available: 500Mi":            `evictionSoft["memory.available"]: 500Mi = 500Mi is not above the hard threshold 500Mi: it never acts first`,
		"memory.available: \"1%\"":           `evictionSoft["memory.available"]: 1% = 160Mi is not above the hard threshold 500Mi`,
		"memory.available: 501Mi":            "",
		"memory.available: \"0%\"":           "",
		"allocatableMemory.available: 400Mi": `evictionSoft["allocatableMemory.available"]: 400Mi = 400Mi is not above the hard threshold 500Mi`,
	} {
		signal, _, _ := strings.Cut(soft, ":")
		code, fs := n.check(n.config("evictionSoft: {" + soft + "}\nevictionSoftGracePeriod: {" + signal + ": 90s}\n"))
		if code != exitOK {
			t.Errorf("%s: exit %d", soft, code)
		}
		if want == "" {
			mentions(t, fs, "thresholds", "never acts first")
			continue
		}
		expect(t, n, fs, levelWarning, "thresholds", want)
	}
}

func TestCheckOfSoftThresholds(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	code, fs := n.check(n.config("evictionSoft: {memory.available: 15000Mi, allocatableMemory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 90s, allocatableMemory.available: 0s}\n" +
		"evictionMaxPodGracePeriod: 30\nevictionMinimumReclaim: {memory.available: 200Mi}\nevictionHard: {nodefs.available: 5%}\n"))
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	expect(t, n, fs, levelOK, "soft memory.available", "threshold 15000Mi for 1m30s, minimum reclaim 200Mi, grace at most 30s")
	expect(t, n, fs, levelWarning, "soft memory.available", "the threshold is met now (14668Mi available): pods above their request are evicted after 1m30s")
	expect(t, n, fs, levelOK, "soft allocatableMemory.available", "threshold 1Gi for 0s, grace at most 30s")
	expect(t, n, fs, levelWarning, "configuration", `evictionSoftGracePeriod["allocatableMemory.available"]: 0s: the soft threshold acts as soon as it is met`)
	expect(t, n, fs, levelOK, "nodefs.available", "threshold 5%")
}

// kubelet makes the pods' cgroup after we started, and limits it anew when its
// reservations change: percentages follow.
func TestPercentagesFollowThePodsLimit(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	m := machineOf(t, n)
	var limit atomic.Uint64
	limit.Store(12 * gib) // the tree's
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		go m.followLimit(ctx, limit.Load, func() {
			calls++
			now, _ := m.pods()
			limit.Store(now)
		})
		step := func(text string, want int) {
			t.Helper()
			n.edit("cgroup/kubepods.slice/memory.max", text+"\n")
			time.Sleep(3 * limitEvery)
			synctest.Wait()
			if calls != want {
				t.Errorf("%s: %d changes, want %d", text, calls, want)
			}
		}
		step(fmt.Sprint(12*gib), 0)
		step(fmt.Sprint(10*gib), 1)
		step("max", 2)
		step(fmt.Sprint(10*gib), 3)
		cancel()
		synctest.Wait()
	})
	if r := resolve(configOf(t, "evictionHard: {memory.available: \"5%\"}\n"), m); r.set.Allocatable.Amount != 512*mib {
		t.Errorf("%d", r.set.Allocatable.Amount)
	}
}

// What is applied again goes to every half.
func TestAgain(t *testing.T) {
	l := newLive(configOf(t, ""))
	calls := 0
	for range 2 {
		if _, err := l.attach(func(config.Config) error { calls++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	refuse := errors.New("no")
	ready := false
	if _, err := l.attach(func(config.Config) error {
		if ready {
			return refuse
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ready, calls = true, 0
	if err := l.again(); !errors.Is(err, refuse) || calls != 2 {
		t.Errorf("%v, %d calls", err, calls)
	}
}
