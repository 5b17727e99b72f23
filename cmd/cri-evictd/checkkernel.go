package main

import (
	"errors"
	"os"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// available is the number thresholds are compared with now, as the fast half
// takes it (design §7): verified needs both readings below, so the larger one
// counts; kubelet's is taken from its own sources where the kernel has them.
func (m *machine) available(from eviction.MemoryAvailableFrom) uint64 {
	kernel, kubelet := m.info.KernelAvailable(), m.info.KubeletAvailable()
	switch from {
	case eviction.FromKernel:
		return kernel
	case eviction.FromKubelet:
		if m.root != nil {
			if usage, inactive, err := m.root.Read(); err == nil {
				return cgroupfs.KubeletAvailableFrom(m.info.MemTotal, usage, inactive, m.info.HugePools())
			}
		}
		return kubelet
	}
	return max(kernel, less(kubelet, m.minFree))
}

const (
	// zombieRatio and zombieCount are from where on removed memory cgroups that
	// live on are worth a word: readings get slow, and the root's counters wrong.
	zombieRatio = 10
	zombieCount = 1000
)

// checkZombies compares the memory cgroups that the kernel keeps with those that
// can be seen (bugs.md B06).
func checkZombies(f *findings, m *machine) {
	c, err := m.fs.MemcgCount()
	switch {
	case errors.Is(err, cgroupfs.ErrAbsent):
	case err != nil:
		f.add(levelWarning, "cgroups", "%v", err)
	case c.Ratio() >= zombieRatio && c.Kernel >= zombieCount:
		f.add(levelWarning, "cgroups", "zombie_memcg ratio=%d: the kernel keeps %d memory cgroups, %d are left in the tree; what is charged to the others counts as used until it is reclaimed",
			c.Ratio(), c.Kernel, c.Directories)
	}
}

// oomScoreAdjSafe: Guaranteed pods have −997; who has more is shot before them.
const oomScoreAdjSafe = -998

// checkProcesses looks whether the kernel's OOM killer would take kubelet or the
// runtime before pods (bugs.md B32), and whether we have the rights we need.
func checkProcesses(f *findings, m *machine) {
	if os.Geteuid() != 0 {
		f.add(levelWarning, "privileges", "not root: cgroups of pods cannot be killed directly")
	}
	// What cannot be read is left out: processes come and go.
	found, _ := m.fs.HostProcesses("kubelet", "containerd", "crio", "dockerd")
	for _, p := range found {
		if p.OOMScoreAdj > oomScoreAdjSafe {
			f.add(levelWarning, "oom_score_adj", "%s (pid %d) has %d: the kernel would kill it before Guaranteed pods; -999 is right", p.Comm, p.Pid, p.OOMScoreAdj)
		}
	}
}
