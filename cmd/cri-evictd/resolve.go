package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// resolved is the configuration as amounts for this machine, and where they
// come from.
type resolved struct {
	set eviction.Settings
	// kubelet is its own configuration, nil when it is not known; kubeletErr
	// then says why, nil when it was not asked for.
	kubelet    *config.Kubelet
	kubeletErr error
	// podsLimit is what all pods together may use, in bytes; 0 without a limit.
	// podsUsed is what they use of it without page cache, podsAvailable the rest.
	podsLimit, podsUsed, podsAvailable uint64
	// memoryFrom and allocatableFrom say in words where the hard thresholds
	// come from.
	memoryFrom, allocatableFrom string
	allocatableWritten          bool
	// warnings are thresholds that are valid and probably not meant.
	warnings []string
}

// resolve turns the configuration into amounts. Nothing it cannot find out keeps
// it from a result.
func resolve(cfg config.Config, m *machine) resolved { return resolveWith(cfg, m, "") }

// resolveWith is resolve with kubelet's drop-in directory, empty for none.
func resolveWith(cfg config.Config, m *machine, dropIns string) resolved {
	var r resolved
	r.podsLimit, r.podsUsed = m.pods()
	r.podsAvailable = less(r.podsLimit, r.podsUsed)
	if cfg.KubeletConfig != "" {
		if k, err := config.ReadKubeletWith(cfg.KubeletConfig, dropIns); err != nil {
			r.kubeletErr = err
		} else {
			r.kubelet = &k
		}
	}
	r.set = eviction.Settings{
		Rules:       r.memory(cfg, m),
		Allocatable: eviction.Rules{From: cfg.MemoryAvailableFrom, SmallGainLast: true, Observe: cfg.Mode == config.Observe},
		Transition:  cfg.PressureTransition, HoldMaximum: cfg.HoldMaximum,
		MaxPodGrace: cfg.MaxPodGrace, HardGrace: cfg.HardMemoryGrace, KillBudget: cfg.KillBudget,
		Protection: eviction.Protection{
			Static: cfg.ProtectStatic, StaticNames: cfg.StaticNames, Namespaces: cfg.ProtectedNamespaces, Labels: cfg.ProtectedPodLabels, Trusted: cfg.TrustedNamespaces,
		},
	}
	if r.set.KubeletConfigured = cfg.KubeletConfig != ""; r.kubelet != nil {
		r.set.KubeletReadAt = time.Now()
	}
	r.allocatable(cfg, m)
	r.soft(cfg, m)
	r.slow(cfg)
	return r
}

// memory resolves the hard memory.available threshold.
func (r *resolved) memory(cfg config.Config, m *machine) eviction.Rules {
	total := m.info.MemTotal
	rules := eviction.Rules{
		From: cfg.MemoryAvailableFrom, Floor: eviction.DefaultFloor, SmallGainLast: true, Observe: cfg.Mode == config.Observe,
	}
	var theirs uint64
	if r.kubelet != nil {
		if theirs = r.kubelet.HardMemory.Resolve(total); theirs > 0 {
			rules.Floor = theirs
		}
	}
	hard := cfg.EvictionHard[eviction.MemoryAvailable]
	switch {
	case hard.Off:
		r.memoryFrom = "turned off"
	case hard.Auto:
		rules.Amount = eviction.AutoMemory(total, m.minFree, theirs)
		r.memoryFrom = "auto"
		if rules.Amount > eviction.AutoMemory(total, m.minFree, 0) {
			r.memoryFrom = "auto, raised above kubelet's " + bytesText(theirs)
		}
	default:
		rules.Amount = hard.Resolve(total)
		r.memoryFrom = hard.Text
	}
	reclaim := cfg.EvictionMinimumReclaim[eviction.MemoryAvailable]
	rules.MinReclaim = reclaim.Resolve(total)
	return rules
}

// allocatable resolves the hard allocatableMemory.available threshold. Unless it
// is written it is memory.available's, value and minimum reclaim, as kubelet's
// addAllocatableThresholds has it (Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go): only with a hard memory.available, and only
// where kubelet limits the pods together. A percentage is one of their limit.
func (r *resolved) allocatable(cfg config.Config, m *machine) {
	rules := &r.set.Allocatable
	capacity := r.podsCapacity(m)
	// kubelet's own allocatable threshold is the same clone of its own.
	rules.Floor = eviction.DefaultFloor
	if r.kubelet != nil {
		if theirs := r.kubelet.HardMemory.Resolve(capacity); theirs > 0 {
			rules.Floor = theirs
		}
	}
	if written, ok := cfg.EvictionHard[eviction.AllocatableMemoryAvailable]; ok {
		rules.Amount = written.Resolve(capacity)
		rules.MinReclaim = r.reclaim(cfg, eviction.AllocatableMemoryAvailable, capacity)
		r.allocatableFrom, r.allocatableWritten = written.Text, true
		if written.Off {
			r.allocatableFrom = "turned off"
		}
		return
	}
	hard := cfg.EvictionHard[eviction.MemoryAvailable]
	switch {
	case r.set.Rules.Amount == 0:
		r.allocatableFrom = "turned off with memory.available"
		return
	case r.kubelet != nil && !r.kubelet.EnforcesPods:
		r.allocatableFrom = "kubelet does not limit the pods together (enforceNodeAllocatable)"
		return
	case hard.Auto:
		rules.Amount = r.set.Rules.Amount
	default:
		rules.Amount = hard.Resolve(capacity)
	}
	rules.MinReclaim = r.reclaim(cfg, eviction.MemoryAvailable, capacity)
	r.allocatableFrom = "as memory.available: " + r.memoryFrom
}

func (r *resolved) reclaim(cfg config.Config, s eviction.Signal, capacity uint64) uint64 {
	t := cfg.EvictionMinimumReclaim[s]
	return t.Resolve(capacity)
}

// limitEvery is how often the pods' limit is looked at.
const limitEvery = 10 * time.Second

// followLimit calls changed whenever the pods' limit is another one than limit
// says, until ctx ends: kubelet makes and changes it while we run, and
// percentages are of it.
func (m *machine) followLimit(ctx context.Context, limit func() uint64, changed func()) {
	tick := time.NewTicker(limitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now, _ := m.pods(); now != limit() {
			changed()
		}
	}
}

// podsCapacity is what a percentage of allocatableMemory.available is one of.
// Before kubelet made the pods' cgroup, as at boot, the machine stands in.
func (r *resolved) podsCapacity(m *machine) uint64 {
	if r.podsLimit > 0 {
		return r.podsLimit
	}
	return m.info.MemTotal
}

// soft resolves the soft thresholds of memory.
func (r *resolved) soft(cfg config.Config, m *machine) {
	for _, s := range []eviction.Signal{eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable} {
		t, ok := cfg.EvictionSoft[s]
		if !ok || t.Off {
			continue
		}
		capacity, hard := m.info.MemTotal, &r.set.Rules
		if s == eviction.AllocatableMemoryAvailable {
			capacity, hard = r.podsCapacity(m), &r.set.Allocatable
		}
		soft := eviction.SoftThreshold{Signal: s, Amount: t.Resolve(capacity), MinReclaim: r.reclaim(cfg, s, capacity), Grace: cfg.EvictionSoftGrace[s]}
		r.set.Soft = append(r.set.Soft, soft)
		if hard.Amount > 0 && soft.Amount <= hard.Amount {
			r.warnings = append(r.warnings, fmt.Sprintf("evictionSoft[%q]: %s = %s is not above the hard threshold %s: it never acts first",
				s, t.Text, bytesText(soft.Amount), bytesText(hard.Amount)))
		}
	}
}

// announce says once what will be acted on.
func (r *resolved) announce(log logrus.FieldLogger, m *machine) {
	rules := &r.set.Rules
	log.WithFields(logrus.Fields{
		"cgroups": m.fs.Mode().String(), "threshold": rules.Amount, "floor": rules.Floor,
		"from": rules.From.String(), "observe": rules.Observe, "transition": r.set.Transition,
		"allocatable": r.set.Allocatable.Amount, "soft": len(r.set.Soft), "diskAndPIDs": slowText(r.set.Slow),
	}).Info("watching memory.available")
	if rules.Amount == 0 {
		log.Warn("memory.available is turned off: it evicts nothing")
	}
	if r.kubeletErr != nil {
		log.WithError(r.kubeletErr).Error("kubelet's own threshold is unknown; its default of 100Mi is taken for the floor")
	}
	for _, w := range r.warnings {
		log.Warn(w)
	}
	for _, n := range m.notes {
		log.Warn(n)
	}
}

// pods reads what all pods together may use and do use, in bytes: 0 without a
// limit, and while there is no cgroup of pods. Page cache on the LRU lists is
// not counted: the kernel takes it back before it fails an allocation.
func (m *machine) pods() (limit, used uint64) {
	p, err := m.fs.OpenPodsMemory()
	if err != nil {
		return 0, 0
	}
	defer func() { _ = p.Close() }() // read only; nothing can be lost
	limit, err = p.Limit()
	if err != nil || limit > m.info.MemTotal {
		limit = 0
	}
	usage, err := p.Usage()
	var stat cgroupfs.MemoryStat
	if statErr := p.Stat(&stat); err != nil || statErr != nil && !errors.Is(statErr, cgroupfs.ErrAbsent) {
		return limit, 0
	}
	return limit, less(usage, stat.InactiveFile, stat.ActiveFile)
}
