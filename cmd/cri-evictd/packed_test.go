package main

import (
	"fmt"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/fakenode"
)

// The nodes of package eviction's TestPackedNode as check sees them while their
// pods use all of Allocatable: the thresholds of the default configuration and
// the sum of the head-room.
func TestCheckOfPackedNodes(t *testing.T) {
	const (
		above  = "above the threshold "
		band   = "not below the floor 100Mi: only pods above their request can be evicted"
		nobody = "below the floor 100Mi: pods inside their requests are evicted, by kubelet too; reserve 100Mi more"
	)
	want := map[string]struct{ threshold, sum, left, meaning string }{
		// That nobody dies there is page cache's merit; check does not count on it.
		"kubeadm 4Gi":                         {"409Mi", "4Gi RAM - 0 kubeReserved - 0 systemReserved - 100Mi kubelet's evictionHard = 3996Mi Allocatable", "0", nobody},
		"kubeadm 16Gi":                        {"500Mi", "16Gi RAM - 0 kubeReserved - 0 systemReserved - 100Mi kubelet's evictionHard = 16284Mi Allocatable", "0", nobody},
		"kubeadm 512Gi":                       {"10485Mi", "512Gi RAM - 0 kubeReserved - 0 systemReserved - 100Mi kubelet's evictionHard = 524188Mi Allocatable", "0", nobody},
		"EKS 4Gi, 17 pods":                    {"409Mi", "4Gi RAM - 442Mi kubeReserved - 0 systemReserved - 100Mi kubelet's evictionHard = 3554Mi Allocatable", "272Mi", band},
		"EKS 4Gi, 17 pods, 5 % page cache":    {"409Mi", "= 3554Mi Allocatable", "138Mi", band},
		"EKS 16Gi, 110 pods":                  {"500Mi", "16Gi RAM - 1465Mi kubeReserved - 0 systemReserved - 100Mi kubelet's evictionHard = 14819Mi Allocatable", "1075Mi", above},
		"EKS 16Gi, 110 pods, 5 % page cache":  {"500Mi", "= 14819Mi Allocatable", "803Mi", above},
		"EKS 512Gi, 250 pods":                 {"10485Mi", "512Gi RAM - 3005Mi kubeReserved - 0 systemReserved - 100Mi kubelet's evictionHard = 521183Mi Allocatable", "1749Mi", band},
		"EKS 512Gi, 250 pods, 5 % page cache": {"10485Mi", "= 521183Mi Allocatable", "627Mi", band},
		"EKS 512Gi, 737 pods":                 {"10485Mi", "512Gi RAM - 8362Mi kubeReserved - 0 systemReserved - 100Mi kubelet's evictionHard = 515826Mi Allocatable", "5306Mi", band},
		"EKS 512Gi, 737 pods, 5 % page cache": {"10485Mi", "= 515826Mi Allocatable", "2644Mi", band},
	}
	for _, k := range fakenode.Packed() {
		t.Run(k.Name, func(t *testing.T) {
			n := newNode(t, v2Tree, fakecri.Options{})
			u := k.Full()
			n.edit("proc/meminfo", k.Meminfo(u))
			n.edit("proc/sys/vm/min_free_kbytes", fmt.Sprintln(k.MinFree>>10))
			n.edit("cgroup/kubepods.slice/memory.max", fmt.Sprintln(k.PodsLimit()))
			n.edit("cgroup/kubepods.slice/memory.current", fmt.Sprintln(k.Allocatable()))
			n.edit("cgroup/kubepods.slice/memory.stat", fmt.Sprintf("anon %d\nfile %d\nshmem 0\ninactive_file %d\nactive_file %d\n", u.Anon, k.PodsFile, u.InactiveFile, u.ActiveFile))
			kubelet := n.write("kubelet.yaml", fmt.Sprintf("kind: KubeletConfiguration\nkubeReserved: {memory: %dMi}\nevictionHard: {memory.available: 100Mi}\n", k.KubeReserved>>20))
			_, fs := n.check(n.config("kubeletConfig: " + kubelet + "\n"))
			w, ok := want[k.Name]
			if !ok {
				t.Fatal("what is expected of it?")
			}
			expect(t, n, fs, levelOK, "memory.available", "threshold "+w.threshold+" (auto), floor 100Mi")
			expect(t, n, fs, levelOK, "allocatableMemory.available", "threshold "+w.threshold+" (as memory.available: auto), floor 100Mi, of "+bytesText(k.PodsLimit()))
			expect(t, n, fs, levelOK, "head-room", w.sum)
			level := levelOK
			if w.meaning == nobody {
				level = levelWarning
			}
			expect(t, n, fs, level, "head-room", "with pods using all of Allocatable "+w.left+" would stay available: ")
			expect(t, n, fs, level, "head-room", w.meaning)
		})
	}
}
