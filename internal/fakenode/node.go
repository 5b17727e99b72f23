// Package fakenode is the memory of a made-up machine as a real kernel would
// show it: for tests of nodes that are packed with pods.
package fakenode

import "fmt"

// MiB and GiB in bytes.
const (
	MiB = 1 << 20
	GiB = 1 << 30
)

// Node is a machine and who has its memory. All amounts are bytes.
type Node struct {
	Name  string
	Total uint64
	// MinFree is vm.min_free_kbytes.
	MinFree uint64
	// KubeReserved and KubeletHard are kubelet's reservation and its own hard
	// memory.available threshold.
	KubeReserved, KubeletHard uint64

	// SystemAnon to Kernel are what all but pods have: anonymous memory, page
	// cache, slab, and what of the kernel is in no list (stacks, page tables).
	SystemAnon, SystemFile             uint64
	SlabReclaimable, SlabUnreclaimable uint64
	Kernel                             uint64

	// PodsFile is how much of what the pods use is page cache, a quarter of it
	// inactive. It counts against their limits like everything else.
	PodsFile uint64
}

// EKSReserved is what Amazon's nodes reserve for kubelet: 255 MiB and 11 MiB per
// pod (awslabs/amazon-eks-ami).
func EKSReserved(maxPods uint64) uint64 { return (255 + 11*maxPods) * MiB }

// Allocatable is what the scheduler may hand out.
func (n *Node) Allocatable() uint64 { return n.Total - n.KubeReserved - n.KubeletHard }

// PodsLimit is what kubelet limits all pods together to.
func (n *Node) PodsLimit() uint64 { return n.Total - n.KubeReserved }

// Outside is what all but pods takes and cannot give back at once.
func (n *Node) Outside() uint64 {
	return n.SystemAnon + n.SystemFile + n.SlabReclaimable + n.SlabUnreclaimable + n.Kernel
}

// Use is what pods use at one moment.
type Use struct{ Anon, ActiveFile, InactiveFile uint64 }

// Free is what nobody has, negative when there is no such machine.
func (n *Node) Free(u Use) int64 {
	return int64(n.Total) - int64(n.Outside()) - int64(u.Anon+u.ActiveFile+u.InactiveFile)
}

// High is the watermark that the kernel keeps free by taking page cache back:
// 3/2 of min_free_kbytes (mm/page_alloc.c, __setup_per_zone_wmarks).
func (n *Node) High() uint64 { return n.MinFree + n.MinFree/2 }

// Available is MemAvailable (mm/show_mem.c, si_mem_available): what is free
// above the high watermark, and page cache and slab that can be taken back, of
// each half at least or all but the low watermark.
func (n *Node) Available(u Use) uint64 {
	low := n.MinFree + n.MinFree/4
	half := func(v uint64) uint64 { return v - min(v/2, low) }
	a := n.Free(u) - int64(n.High()) + int64(half(n.SystemFile+u.ActiveFile+u.InactiveFile)+half(n.SlabReclaimable))
	return uint64(max(a, 0))
}

// Meminfo is /proc/meminfo.
func (n *Node) Meminfo(u Use) string {
	kb := func(v uint64) uint64 { return v >> 10 }
	return fmt.Sprintf("MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %d kB\nBuffers: 0 kB\nCached: %d kB\nSwapCached: 0 kB\n"+
		"Active(file): %d kB\nInactive(file): %d kB\nAnonPages: %d kB\nShmem: 0 kB\nSReclaimable: %d kB\nSUnreclaim: %d kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"+
		"HugePages_Total: 0\nHugepagesize: 2048 kB\n",
		kb(n.Total), kb(uint64(max(n.Free(u), 0))), kb(n.Available(u)), kb(n.SystemFile+u.ActiveFile+u.InactiveFile),
		kb(n.SystemFile+u.ActiveFile), kb(u.InactiveFile), kb(n.SystemAnon+u.Anon), kb(n.SlabReclaimable), kb(n.SlabUnreclaimable))
}

// Full is what pods use that use up all of Allocatable.
func (n *Node) Full() Use {
	inactive := n.PodsFile / 4 &^ 4095
	return Use{Anon: n.Allocatable() - n.PodsFile, ActiveFile: n.PodsFile - inactive, InactiveFile: inactive}
}

// Packed are nodes whose pods fit into Allocatable and use all of it, with
// kubeadm's reservations (none) and Amazon's.
//
// kubeadm leaves 100 MiB for everything that is no pod, and for what the kernel
// keeps free. Pods can only use all of Allocatable there if a part of it is page
// cache, and if the system is as small as this one.
func Packed() []Node {
	kubeadm := func(total, minFree, system, file uint64) Node {
		return Node{
			Name: fmt.Sprintf("kubeadm %dGi", total/GiB), Total: total, MinFree: minFree, KubeletHard: 100 * MiB,
			SystemAnon: system, PodsFile: file,
		}
	}
	eks := func(total, maxPods, minFree, system, slab uint64) Node {
		return Node{
			Name: fmt.Sprintf("EKS %dGi, %d pods", total/GiB, maxPods), Total: total, MinFree: minFree, KubeletHard: 100 * MiB,
			KubeReserved: EKSReserved(maxPods), SystemAnon: system, SystemFile: 24 * MiB,
			SlabReclaimable: slab / 4, SlabUnreclaimable: slab - slab/4, Kernel: 40 * MiB,
		}
	}
	cached := func(n Node) Node {
		n.Name, n.PodsFile = n.Name+", 5 % page cache", n.Allocatable()/20&^4095
		return n
	}
	out := []Node{
		kubeadm(4*GiB, 8*MiB, 80*MiB, 4*GiB/20),
		kubeadm(16*GiB, 16*MiB, 60*MiB, 16*GiB/20),
		kubeadm(512*GiB, 66*MiB, MiB, 512*GiB/20),
	}
	for _, n := range []Node{
		eks(4*GiB, 17, 66*MiB, 180*MiB, 60*MiB),
		eks(16*GiB, 110, 66*MiB, 400*MiB, 160*MiB),
		eks(512*GiB, 250, 132*MiB, 1200*MiB, 1000*MiB),
		eks(512*GiB, 737, 132*MiB, 3000*MiB, 3000*MiB),
	} {
		out = append(out, n, cached(n))
	}
	return out
}
