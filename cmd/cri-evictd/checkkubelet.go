package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// neverAsGrace is from where on a soft grace period means that kubelet only
// reports the condition and evicts nobody (facts: the way to have the node
// tainted without two evictors).
const neverAsGrace = 365 * 24 * time.Hour

// unknownCapacity stands in for a capacity that is not known: shares of it can be
// compared all the same.
const unknownCapacity = 1<<62 + 1

// capacities are what a percentage of a signal is one of, 0 where that is not
// known.
func (m *machine) capacities(ctx context.Context, cfg config.Config) map[eviction.Signal]uint64 {
	out := map[eviction.Signal]uint64{eviction.MemoryAvailable: m.info.MemTotal, eviction.AllocatableMemoryAvailable: m.info.MemTotal}
	if limit, _ := m.pods(); limit > 0 {
		out[eviction.AllocatableMemoryAvailable] = limit
	}
	if p, err := m.fs.PIDs(); err == nil {
		out[eviction.PIDAvailable] = p.Max
	}
	read := func(path string, bytes, inodes eviction.Signal) {
		if at, err := m.filesystems().Read(ctx, path); err == nil {
			out[bytes], out[inodes] = at.Capacity, at.Inodes
		}
	}
	read(existing(cfg.KubeletRootDir), eviction.NodeFsAvailable, eviction.NodeFsInodesFree)
	if c, err := cri.Dial(cfg.RuntimeEndpoint); err == nil {
		if paths, err := c.ImageFilesystems(ctx); err == nil && paths.Images != "" {
			read(paths.Images, eviction.ImageFsAvailable, eviction.ImageFsInodesFree)
		}
		_ = c.Close() // asked once; nothing can be lost
	}
	return out
}

// sideBySide compares what kubelet and we do for each signal, and says which
// settings make the two fight.
func sideBySide(f *findings, cfg config.Config, ours *resolved, k *config.KubeletSettings, capacity map[eviction.Signal]uint64) {
	const what = "kubelet beside us"
	for _, s := range eviction.Signals() {
		if s == eviction.ContainerFsAvailable || s == eviction.ContainerFsInodesFree {
			continue // neither of us takes what is written there
		}
		theirs := k.Hard[s]
		if s == eviction.AllocatableMemoryAvailable && theirs.Text == "" {
			theirs = k.Hard[eviction.MemoryAvailable] // a clone, in kubelet as with us
		}
		of := capacity[s]
		if of == 0 {
			of = unknownCapacity
		}
		our, ourText := ours.hardOf(s, cfg, of)
		their := theirs.Resolve(of)
		line := fmt.Sprintf("%s: kubelet hard %s%s; we hard %s%s", s, cmp.Or(theirs.Text, "off"), asAmount(theirs, their, of, s), ourText, softOfOurs(cfg, s))
		level, verdict := levelOK, "we act first"
		switch {
		case theirs.Text == "" && our == 0:
			verdict = "nobody acts"
		case theirs.Text == "" && s.Memory():
			verdict = "only we act, and there is no backstop below ours"
		case theirs.Text == "":
			verdict = "only we act"
		case our == 0:
			verdict = "only kubelet acts, and holds nothing"
		case of == unknownCapacity && (theirs.Share != nil) != (cfg.EvictionHard[s].Share != nil):
			verdict = "who acts first cannot be told: the capacity is not known"
		case our <= their:
			level, verdict = levelWarning, "kubelet acts first or at the same time: two evictors, and it holds nothing"
		}
		f.add(level, what, "%s: %s", line, verdict)
		soft, has := k.Soft[s]
		if !has {
			continue
		}
		switch amount, grace := soft.Resolve(of), k.Grace[s]; {
		case grace >= neverAsGrace:
			f.add(levelOK, what, "%s: kubelet soft %s for %s: it reports the condition and evicts nobody", s, soft.Text, grace)
		case amount >= our:
			f.add(levelWarning, what, "%s: kubelet soft %s for %s is not below ours: it evicts as well; a grace period of 87600h leaves the condition alone", s, soft.Text, grace)
		default:
			f.add(levelOK, what, "%s: kubelet soft %s for %s is below ours", s, soft.Text, grace)
		}
	}
	if k.ImageGCHigh < 100 || k.ImageMaximumAge > 0 {
		f.add(levelOK, what, "images: kubelet removes unused ones from %d%% use down to %d%% (imageGCHighThresholdPercent), maximum age %s; both may remove, neither harms the other", k.ImageGCHigh, k.ImageGCLow, k.ImageMaximumAge)
	} else {
		f.add(levelOK, what, "images: kubelet's GC is off")
	}
	if k.LimitsStorage {
		f.add(levelOK, what, "limits: kubelet evicts pods over their ephemeral-storage limits whatever the thresholds; we do not")
	} else {
		f.add(levelWarning, what, "localStorageCapacityIsolation is off: nobody enforces ephemeral-storage limits")
	}
	if k.Transition != cfg.PressureTransition {
		f.add(levelOK, what, "evictionPressureTransitionPeriod: kubelet %s, we %s", k.Transition, cfg.PressureTransition)
	}
	for s, t := range cfg.EvictionHard {
		if t.Off && k.Hard[s].Text == "" && !s.Memory() {
			f.add(levelWarning, what, "%s: off in both: nothing is evicted when it runs out", s)
		}
	}
}

// asAmount is the amount of a share, where it is known.
func asAmount(t eviction.Threshold, amount, capacity uint64, s eviction.Signal) string {
	if t.Share == nil || capacity == unknownCapacity {
		return ""
	}
	return " = " + amountText(amount, s.Unit())
}

// hardOf is our hard threshold as an amount and in words.
func (r *resolved) hardOf(s eviction.Signal, cfg config.Config, capacity uint64) (uint64, string) {
	switch s {
	case eviction.MemoryAvailable:
		return r.set.Rules.Amount, offOr(r.set.Rules.Amount, s)
	case eviction.AllocatableMemoryAvailable:
		return r.set.Allocatable.Amount, offOr(r.set.Allocatable.Amount, s)
	}
	t, ok := cfg.EvictionHard[s]
	if !ok || t.Off {
		return 0, "off"
	}
	amount := t.Resolve(capacity)
	return amount, t.Text + asAmount(t, amount, capacity, s)
}

func offOr(amount uint64, s eviction.Signal) string {
	if amount == 0 {
		return "off"
	}
	return amountText(amount, s.Unit())
}

func softOfOurs(cfg config.Config, s eviction.Signal) string {
	t, ok := cfg.EvictionSoft[s]
	if !ok || t.Off {
		return ""
	}
	return fmt.Sprintf(", soft %s for %s", t.Text, cfg.EvictionSoftGrace[s])
}

// checkSlow prints the thresholds of disk, inodes and PIDs with what is available
// now.
func checkSlow(ctx context.Context, f *findings, cfg config.Config, m *machine, res *resolved, capacity map[eviction.Signal]uint64) {
	node, nodeErr := m.filesystems().Read(ctx, existing(cfg.KubeletRootDir))
	pids, pidErr := m.fs.PIDs()
	for i := range res.set.Slow {
		t := &res.set.Slow[i]
		what, of, now, err := string(t.Signal), capacity[t.Signal], uint64(0), error(nil)
		if !t.Hard {
			what = "soft " + what
		}
		switch t.Signal {
		case eviction.NodeFsAvailable:
			now, err = node.Available, nodeErr
		case eviction.NodeFsInodesFree:
			now, err = node.InodesFree, nodeErr
		case eviction.PIDAvailable:
			now, err = pids.Available(), pidErr
		default: // asked of the runtime; what is available there is the daemon's to say
			now = of
		}
		text := "threshold " + t.Value.Text
		if !t.Hard {
			text += " for " + t.Grace.String()
		}
		amount := t.Value.Resolve(of)
		switch {
		case err != nil:
			f.add(levelOK, what, "%s; not known now: %v", text, err)
		case of == 0:
			f.add(levelOK, what, "%s; the capacity is not known now", text)
		case amount >= of:
			f.add(levelWarning, what, "%s is not below the capacity %s: it is always met", text, amountText(of, t.Signal.Unit()))
		case eviction.Met(now, amount):
			f.add(levelWarning, what, "%s = %s is met now (%s available): %s", text, amountText(amount, t.Signal.Unit()), amountText(now, t.Signal.Unit()), unarmed)
		default:
			f.add(levelOK, what, "%s = %s of %s", text, amountText(amount, t.Signal.Unit()), amountText(of, t.Signal.Unit()))
		}
	}
}
