package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// offerConditions says whether kubelet reports the pressure that we act on, and else
// by which settings it would. A node may not taint itself, and kubelet writes its
// conditions anew every 10 s; its soft thresholds set them at once and evict nobody
// before their grace is over (Kubernetes 1.37,
// pkg/kubelet/eviction/eviction_manager.go synchronize).
func offerConditions(f *findings, cfg config.Config, ours *resolved, k *config.KubeletSettings, capacity map[eviction.Signal]uint64) {
	const what = "node pressure"
	var soft, grace, silent []string
	for _, s := range eviction.Signals() {
		switch s {
		case eviction.AllocatableMemoryAvailable, eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree:
			continue // their conditions are those of others
		}
		of := cmp.Or(capacity[s], unknownCapacity)
		our, _ := ours.hardOf(s, cfg, of)
		if our == 0 {
			continue
		}
		text := cfg.EvictionHard[s].Text
		if s == eviction.MemoryAvailable {
			text = amountText(our, s.Unit()) // ours may be auto
		}
		soft = append(soft, fmt.Sprintf("%s: %q", s, text))
		grace = append(grace, fmt.Sprintf("%s: %s", s, foreverText))
		theirs, has := k.Soft[s]
		differ := of == unknownCapacity && (theirs.Share != nil) != (cfg.EvictionHard[s].Share != nil) // cannot be compared
		if !has || differ || k.Grace[s] < neverAsGrace || theirs.Resolve(of) < our {
			silent = append(silent, string(s))
		}
	}
	switch {
	case len(soft) == 0:
	case len(silent) == 0:
		f.add(levelOK, what, "kubelet reports it at our thresholds and evicts nobody for it: the node is tainted while we are short")
	default:
		f.add(levelOK, what, "kubelet does not report ours for %s: the scheduler goes on sending pods; kubelet would report, and evict nobody, with evictionSoft: {%s}, evictionSoftGracePeriod: {%s} in its configuration",
			strings.Join(silent, ", "), strings.Join(soft, ", "), strings.Join(grace, ", "))
	}
}

// foreverText is a soft grace period that is never over.
const foreverText = "87600h"
