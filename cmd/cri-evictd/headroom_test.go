package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/golden"
)

// eksReserved is what Amazon's nodes keep for kubelet: 255 MiB and 11 MiB per
// pod (awslabs/amazon-eks-ami, files/bootstrap.sh).
func eksReserved(pods uint64) uint64 { return (255 + 11*pods) * mib }

// A node whose pods use all of Allocatable: how much stays, and what it means.
func TestHeadroomOfAPackedNode(t *testing.T) {
	for _, tt := range []struct {
		name             string
		total            uint64
		kube, system     uint64
		outside          uint64 // what all but pods takes now
		left             uint64
		level, meaning   string
		threshold, floor uint64
	}{
		// kubeadm reserves nothing: all that the system takes is over-committed.
		{name: "kubeadm 4Gi", total: 4 * gib, outside: 700 * mib, left: 0, threshold: 409 * mib, floor: 100 * mib, level: levelWarning, meaning: "below the floor 100Mi: pods inside their requests are evicted, by kubelet too; reserve 100Mi more"},
		{name: "kubeadm 16Gi", total: 16 * gib, outside: 60 * mib, left: 40 * mib, threshold: 500 * mib, floor: 100 * mib, level: levelWarning, meaning: "reserve 60Mi more"},
		{name: "kubeadm 512Gi", total: 512 * gib, outside: 3 * gib, left: 0, threshold: 10485 * mib, floor: 100 * mib, level: levelWarning, meaning: "below the floor 100Mi"},
		{name: "EKS 4Gi", total: 4 * gib, kube: eksReserved(17), outside: 400 * mib, left: eksReserved(17) - 300*mib, threshold: 409 * mib, floor: 100 * mib, level: levelOK, meaning: "below the threshold 409Mi, not below the floor 100Mi: only pods above their request can be evicted"},
		{name: "EKS 16Gi", total: 16 * gib, kube: eksReserved(58), outside: 500 * mib, left: eksReserved(58) - 400*mib, threshold: 490 * mib, floor: 100 * mib, level: levelOK, meaning: "above the threshold 490Mi"},
		{name: "EKS 512Gi", total: 512 * gib, kube: eksReserved(737), outside: 2 * gib, left: eksReserved(737) + 100*mib - 2*gib, threshold: 10485 * mib, floor: 100 * mib, level: levelOK, meaning: "not below the floor 100Mi"},
		{name: "all is taken as reserved", total: 16 * gib, kube: gib, system: gib, outside: 2 * gib, left: 100 * mib, threshold: 500 * mib, floor: 100 * mib, level: levelOK, meaning: "not below the floor 100Mi"},
		{name: "turned off", total: 16 * gib, kube: gib, outside: 512 * mib, left: 612 * mib, floor: 100 * mib, level: levelOK, meaning: "above the threshold 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &config.Kubelet{HardMemory: eviction.Threshold{Quantity: 100 * mib}, KubeReserved: tt.kube, SystemReserved: tt.system}
			for _, pods := range []uint64{0, gib, tt.total - tt.outside - 100*mib} { // however much of it is in use now
				h := headroom{total: tt.total, kubelet: k, theirs: 100 * mib, pods: pods, available: tt.total - tt.outside - pods, threshold: tt.threshold, floor: tt.floor}
				f := &findings{}
				h.report(f)
				last := f.Findings[len(f.Findings)-1]
				if last.Level != tt.level || !strings.Contains(last.Text, tt.meaning) || !strings.Contains(last.Text, fmt.Sprintf("all of Allocatable %s would stay", bytesText(tt.left))) {
					t.Errorf("pods use %s: %+v, want %s left", bytesText(pods), last, bytesText(tt.left))
				}
			}
		})
	}
}

func TestHeadroomWithoutKubelet(t *testing.T) {
	f := &findings{}
	h := headroom{total: 16 * gib, theirs: 100 * mib, available: 10 * gib, threshold: 500 * mib, floor: 100 * mib}
	if h.report(f); len(f.Findings) != 1 || !strings.Contains(f.Findings[0].Text, "Allocatable is not known") {
		t.Errorf("%+v", f.Findings)
	}
	f, h.limit = &findings{}, 17*gib // a limit that limits nothing
	if h.report(f); len(f.Findings) != 1 || !strings.Contains(f.Findings[0].Text, "Allocatable is not known") {
		t.Errorf("%+v", f.Findings)
	}
	f, h.limit = &findings{}, 14*gib
	if h.report(f); len(f.Findings) != 2 || f.Findings[0].Text != "16Gi RAM, of which pods together may use 14Gi, - 100Mi kubelet's evictionHard (its default) = 14236Mi Allocatable" {
		t.Errorf("%+v", f.Findings)
	}
}

// The sum as check prints it, for people.
func TestCheckPrintsTheHeadroom(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.memory(16<<20, 8<<20, 67584)
	n.edit("cgroup/kubepods.slice/memory.max", fmt.Sprintln(14*gib+gib/2))
	n.edit("cgroup/kubepods.slice/memory.current", fmt.Sprintln(7*gib))
	n.edit("cgroup/kubepods.slice/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 104857600\nactive_file 0\n")
	kubelet := n.write("kubelet.yaml", `kind: KubeletConfiguration
kubeReserved: {memory: 1Gi}
systemReserved: {memory: 512Mi}
evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 300Mi}
evictionSoftGracePeriod: {memory.available: 1m}
`)
	code, out, errOut := command(t, append([]string{"check", "--config", n.config("kubeletConfig: " + kubelet + `
evictionHard: {memory.available: "3%"}
evictionSoft: {memory.available: 1Gi, allocatableMemory.available: 5%}
evictionSoftGracePeriod: {memory.available: 90s, allocatableMemory.available: 30s}
evictionMaxPodGracePeriod: 60
evictionMinimumReclaim: {memory.available: 200Mi}
`)}, n.roots()...)...)
	if code != exitOK || errOut != "" {
		t.Errorf("exit %d: %s", code, errOut)
	}
	golden.Check(t, "check-policy.txt", []byte(stable(n.normal(out))))

	// kubelet runs with flags that its file does not know of.
	n.edit("cgroup/kubepods.slice/memory.max", fmt.Sprintln(12*gib))
	_, fs := n.check(n.config("kubeletConfig: " + kubelet + "\n"))
	expect(t, n, fs, levelWarning, "head-room", "kubelet's configuration leaves the pods 14848Mi, their cgroup is limited to 12Gi")
}
