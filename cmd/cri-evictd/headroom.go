package main

import (
	"fmt"
	"time"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// headroom is what stays available on a node whose pods use all they were
// promised (bugs.md B47). All amounts are bytes.
type headroom struct {
	total uint64
	// kube and system are kubelet's reservations; when its configuration is not
	// known, limit − what the pods may use together − stands in.
	kubelet *config.Kubelet
	limit   uint64
	// theirs is kubelet's hard memory.available threshold, which it keeps from
	// pods as well.
	theirs uint64
	// available is the number that is compared with thresholds, pods what the
	// pods use of the rest.
	available, pods  uint64
	threshold, floor uint64
}

// allocatable is what the scheduler hands out; false when it is not known.
func (h *headroom) allocatable() (uint64, bool) {
	switch {
	case h.kubelet != nil:
		return less(h.total, h.kubelet.KubeReserved, h.kubelet.SystemReserved, h.theirs), true
	case h.limit > 0 && h.limit <= h.total:
		return less(h.limit, h.theirs), true
	}
	return 0, false
}

// less subtracts and stops at 0.
func less(n uint64, from ...uint64) uint64 {
	for _, f := range from {
		n -= min(n, f)
	}
	return n
}

// report adds the sum and what follows from it.
func (h *headroom) report(f *findings) {
	const what = "head-room"
	all, known := h.allocatable()
	if !known {
		f.add(levelOK, what, "Allocatable is not known: kubeletConfig is not set and kubelet does not limit the pods together")
		return
	}
	if k := h.kubelet; k != nil {
		f.add(levelOK, what, "%s RAM - %s kubeReserved - %s systemReserved - %s kubelet's evictionHard = %s Allocatable",
			bytesText(h.total), bytesText(k.KubeReserved), bytesText(k.SystemReserved), bytesText(h.theirs), bytesText(all))
		// A page or two of rounding is no difference.
		if want := less(h.total, k.KubeReserved, k.SystemReserved); h.limit > 0 && max(want, h.limit)-min(want, h.limit) > 1<<20 {
			f.add(levelWarning, what, "kubelet's configuration leaves the pods %s, their cgroup is limited to %s: does kubelet run with flags or with another file?", bytesText(want), bytesText(h.limit))
		}
	} else {
		f.add(levelOK, what, "%s RAM, of which pods together may use %s, - %s kubelet's evictionHard (its default) = %s Allocatable",
			bytesText(h.total), bytesText(h.limit), bytesText(h.theirs), bytesText(all))
	}
	outside := less(h.total, h.available, h.pods)
	left := less(h.total, all, outside)
	text := fmt.Sprintf("all but pods takes %s now; with pods using all of Allocatable %s would stay available: ", bytesText(outside), bytesText(left))
	switch {
	case h.threshold == 0 || left >= h.threshold:
		f.add(levelOK, what, "%sabove the threshold %s", text, bytesText(h.threshold))
	case left >= h.floor:
		f.add(levelOK, what, "%sbelow the threshold %s, not below the floor %s: only pods above their request can be evicted", text, bytesText(h.threshold), bytesText(h.floor))
	default:
		f.add(levelWarning, what, "%sbelow the floor %s: pods inside their requests are evicted, by kubelet too; reserve %s more (kubeReserved, systemReserved)",
			text, bytesText(h.floor), bytesText(h.floor-left))
	}
}

// checkThresholds prints what is acted on, where it comes from, and whether it
// is met now.
func checkThresholds(f *findings, m *machine, res *resolved) {
	r := &res.set.Rules
	kernel, kubelet := m.info.KernelAvailable(), m.info.KubeletAvailable()
	available := m.available(r.From)
	f.add(levelOK, "memory", "capacity %s, available %s by the kernel, %s by kubelet's formula, min_free %s, swap %s",
		bytesText(m.info.MemTotal), bytesText(kernel), bytesText(kubelet), bytesText(m.minFree), bytesText(m.info.SwapTotal))
	if r.Amount == 0 {
		f.add(levelWarning, "memory.available", "turned off: it evicts nothing")
	} else {
		f.add(levelOK, "memory.available", "threshold %s (%s), floor %s, reading %s%s", bytesText(r.Amount), res.memoryFrom, bytesText(r.Floor), r.From, andReclaim(r.MinReclaim))
		checkAmount(f, string(eviction.MemoryAvailable), r.Amount, m.info.MemTotal, available, unarmed)
		if need := m.minFree + m.minFree/2 + 256<<20; r.Amount < need {
			f.add(levelWarning, "memory.available", "the threshold %s is below 1.5 x min_free_kbytes + 256Mi = %s: the kernel reclaims and stalls before it is reached", bytesText(r.Amount), bytesText(need))
		}
	}
	checkAllocatable(f, m, res)
	for _, s := range res.set.Soft {
		what := "soft " + string(s.Signal)
		capacity, now := m.info.MemTotal, available
		if s.Signal == eviction.AllocatableMemoryAvailable {
			capacity, now = res.podsLimit, res.podsAvailable
		}
		f.add(levelOK, what, "threshold %s for %s%s, grace at most %s", bytesText(s.Amount), s.Grace, andReclaim(s.MinReclaim), max(res.set.MaxPodGrace, leastGrace))
		if capacity > 0 {
			checkAmount(f, what, s.Amount, capacity, now, fmt.Sprintf("pods above their request are evicted after %s", s.Grace))
		}
	}
	for _, w := range res.warnings {
		f.add(levelWarning, "thresholds", "%s", w)
	}
}

func andReclaim(n uint64) string {
	if n == 0 {
		return ""
	}
	return ", minimum reclaim " + bytesText(n)
}

// unarmed is what becomes of a hard threshold that is new and met.
const unarmed = "if it is new it is acted on once it was clear, or after `cri-evictd arm`"

// leastGrace is the least that a soft eviction gives a pod (design §9).
const leastGrace = 2 * time.Second

// checkAmount compares a threshold with the capacity and with now; then says
// what comes of it being met.
func checkAmount(f *findings, what string, amount, capacity, available uint64, then string) {
	if amount >= capacity {
		f.add(levelError, what, "the threshold %s is not below the capacity %s", bytesText(amount), bytesText(capacity))
	} else if eviction.Met(available, amount) {
		f.add(levelWarning, what, "the threshold is met now (%s available): %s", bytesText(available), then)
	}
}

// checkAllocatable looks at allocatableMemory.available.
func checkAllocatable(f *findings, m *machine, res *resolved) {
	const what = string(eviction.AllocatableMemoryAvailable)
	r := &res.set.Allocatable
	switch {
	case r.Amount == 0:
		f.add(levelOK, what, "%s", res.allocatableFrom)
	case res.podsLimit == 0:
		f.add(levelOK, what, "threshold %s (%s), without effect as long as the pods' cgroup has no limit", bytesText(r.Amount), res.allocatableFrom)
	default:
		f.add(levelOK, what, "threshold %s (%s), floor %s, of %s for all pods, available %s%s", bytesText(r.Amount), res.allocatableFrom, bytesText(r.Floor),
			bytesText(res.podsLimit), bytesText(res.podsAvailable), andReclaim(r.MinReclaim))
		// One that nobody wrote for this signal is nobody's error.
		if r.Amount >= res.podsLimit && !res.allocatableWritten {
			f.add(levelWarning, what, "the threshold %s is not below what all pods may use, %s: it is not acted on", bytesText(r.Amount), bytesText(res.podsLimit))
			return
		}
		checkAmount(f, what, r.Amount, res.podsLimit, res.podsAvailable, unarmed)
	}
}

// headroom is the machine's.
func (r *resolved) headroom(m *machine) headroom {
	h := headroom{
		total: m.info.MemTotal, kubelet: r.kubelet, limit: r.podsLimit, theirs: config.KubeletDefaultMemory,
		available: m.available(r.set.Rules.From),
		pods:      r.podsUsed, threshold: r.set.Rules.Amount, floor: r.set.Rules.Floor,
	}
	if r.kubelet != nil {
		h.theirs = r.kubelet.HardMemory.Resolve(h.total)
	}
	return h
}
