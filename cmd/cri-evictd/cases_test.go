package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// mentions fails if a finding of this kind has this text.
func mentions(t *testing.T, fs []finding, what, text string) {
	t.Helper()
	for _, f := range fs {
		if f.What == what && strings.Contains(f.Text, text) {
			t.Errorf("%+v", f)
		}
	}
}

// memory makes the tree's machine one of this size, in kB; what kubelet counts
// as used is what is not available.
func (n *node) memory(total, available, minFree uint64) {
	n.t.Helper()
	used := total - available
	n.edit("proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %d kB\nBuffers: 0 kB\nCached: 0 kB\nSwapCached: 0 kB\n"+
		"Active(file): 0 kB\nInactive(file): 0 kB\nAnonPages: %d kB\nShmem: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n", total, available, available, used))
	n.edit("proc/sys/vm/min_free_kbytes", fmt.Sprintf("%d\n", minFree))
}

// bugs.md B04: min_free_kbytes above the threshold. An explicit value is not
// raised, and check says so.
func TestCaseB04(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.memory(256<<20, 2<<20, 4194304)
	_, fs := n.check(n.config("evictionHard: {memory.available: 100Mi}\n"))
	expect(t, n, fs, levelOK, "memory.available", "threshold 100Mi (100Mi)")
	expect(t, n, fs, levelWarning, "memory.available", "the threshold 100Mi is below 1.5 x min_free_kbytes + 256Mi = 6400Mi")
	_, fs = n.check(n.config(""))
	expect(t, n, fs, levelOK, "memory.available", "threshold 6400Mi (auto)")
	mentions(t, fs, "memory.available", "is below 1.5 x")
}

// bugs.md B06: pressure on an idle node after weeks, because the kernel keeps
// removed cgroups.
func TestCaseB06(t *testing.T) {
	n := newNode(t, "v1", fakecri.Options{})
	n.edit("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 102400 kB\nMemAvailable: 7130316 kB\nBuffers: 0 kB\nCached: 0 kB\nSwapCached: 0 kB\n"+
		"Active(file): 0 kB\nInactive(file): 0 kB\nAnonPages: 8283750 kB\nShmem: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	n.edit("proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t240\t1\nmemory\t5\t68680\t1\n")
	dirs := 0
	root := filepath.Join(n.tree, "cgroup/memory")
	if err := filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs++
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for ; dirs < 240; dirs++ {
		if err := os.Mkdir(filepath.Join(root, fmt.Sprint("scope-", dirs)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, fs := n.check(n.config(""))
	expect(t, n, fs, levelWarning, "cgroups", "zombie_memcg ratio=286: the kernel keeps 68680 memory cgroups, 240 are left in the tree")
	mentions(t, fs, "memory.available", "is met now")

	n.edit("proc/cgroups", "memory\t5\t300\t1\n")
	_, fs = n.check(n.config(""))
	mentions(t, fs, "cgroups", "zombie")
	n.edit("proc/cgroups", "memory\t5\tmany\t1\n")
	_, fs = n.check(n.config(""))
	expect(t, n, fs, levelWarning, "cgroups", "many")
}

// bugs.md B32: the kernel's OOM killer shoots the system because Guaranteed pods
// have −997.
func TestCaseB32(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	process := func(pid int, name string, namespaces, adj int) {
		n.edit(fmt.Sprintf("proc/%d/status", pid), fmt.Sprintf("Name:\t%s\nTgid:\t%d\nPid:\t%d\nNSpid:\t%d%s\n", name, pid, pid, pid, strings.Repeat("\t1", namespaces)))
		n.edit(fmt.Sprintf("proc/%d/oom_score_adj", pid), fmt.Sprintf("%d\n", adj))
	}
	process(6000001, "containerd", 0, 0)
	process(6000002, "kubelet", 0, -999)
	process(6000003, "kubelet", 0, -997)
	process(6000004, "crio", 0, -998)
	process(6000005, "containerd", 1, 0) // in a container
	_, fs := n.check(n.config(""))
	expect(t, n, fs, levelWarning, "oom_score_adj", "containerd (pid 6000001) has 0: the kernel would kill it before Guaranteed pods; -999 is right")
	expect(t, n, fs, levelWarning, "oom_score_adj", "kubelet (pid 6000003) has -997")
	for _, pid := range []string{"6000002", "6000004", "6000005"} {
		mentions(t, fs, "oom_score_adj", pid)
	}
}

// bugs.md B34: k3s' kubelet has disk thresholds only. Ours for memory stays, and
// check prints what is in force.
func TestCaseB34(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	k3s := n.write("k3s.yaml", "kind: KubeletConfiguration\nevictionHard: {imagefs.available: 5%, nodefs.available: 5%}\n")
	_, fs := n.check(n.config("kubeletConfig: " + k3s + "\n"))
	expect(t, n, fs, levelOK, "memory.available", "threshold 500Mi (auto), floor 100Mi")
	expect(t, n, fs, levelOK, "allocatableMemory.available", "threshold 500Mi (as memory.available: auto)")
	expect(t, n, fs, levelWarning, "kubelet", "its hard memory.available is not set: there is no backstop below ours")
}

// bugs.md B44: writing one threshold leaves the others as they are; "0%" turns
// one off.
func TestCaseB44(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	m := machineOf(t, n)
	cfg := configOf(t, "evictionHard: {memory.available: 200Mi}\n")
	for s, want := range map[eviction.Signal]string{
		eviction.MemoryAvailable: "200Mi", eviction.NodeFsAvailable: "12%", eviction.NodeFsInodesFree: "6%", eviction.ImageFsAvailable: "17%", eviction.ImageFsInodesFree: "6%",
	} {
		if got := cfg.EvictionHard[s]; got.Text != want || got.Off {
			t.Errorf("%s is %+v, want %s", s, got, want)
		}
	}
	if r := resolve(cfg, m); r.set.Rules.Amount != 200<<20 || r.set.Allocatable.Amount != 200<<20 {
		t.Errorf("%+v", r.set)
	}
	r := resolve(configOf(t, "evictionHard: {allocatableMemory.available: \"0%\"}\n"), m)
	if r.set.Rules.Amount != 500<<20 || r.set.Allocatable.Amount != 0 {
		t.Errorf("%+v", r.set)
	}
}

// bugs.md B47: reserved memory is part of the sum; the pods' own limit is
// breached while the node has enough.
func TestCaseB47(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	const gi = 1 << 30
	n.memory(32<<20, 3<<20, 67584)
	n.edit("cgroup/kubepods.slice/memory.max", fmt.Sprintln(29*gi))
	n.edit("cgroup/kubepods.slice/memory.current", fmt.Sprintln(29*gi-gi/10))
	n.edit("cgroup/kubepods.slice/memory.stat", "anon 31000000000\nfile 0\nshmem 0\ninactive_file 0\nactive_file 0\n")
	kubelet := n.write("kubelet.yaml", "kind: KubeletConfiguration\nkubeReserved: {memory: 2Gi}\nsystemReserved: {memory: 1Gi}\nevictionHard: {memory.available: 400Mi}\n")
	_, fs := n.check(n.config("kubeletConfig: " + kubelet + "\nevictionHard: {memory.available: 500Mi}\n"))
	expect(t, n, fs, levelOK, "head-room", "32Gi RAM - 2Gi kubeReserved - 1Gi systemReserved - 400Mi kubelet's evictionHard = 29296Mi Allocatable")
	expect(t, n, fs, levelOK, "allocatableMemory.available", "threshold 500Mi (as memory.available: 500Mi), floor 400Mi, of 29Gi for all pods, available 102Mi")
	expect(t, n, fs, levelWarning, "allocatableMemory.available", "the threshold is met now (102Mi available)")
	mentions(t, fs, "memory.available", "is met now")
}

// machineOf opens the tree's machine.
func machineOf(t *testing.T, n *node) *machine {
	t.Helper()
	a := &app{roots: cgroupfs.Roots{Proc: n.tree + "/proc", Cgroup: n.tree + "/cgroup"}}
	m, err := a.machine()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.close() })
	return m
}

func configOf(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := config.Parse([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
