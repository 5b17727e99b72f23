package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// A node whose Guaranteed pods use all of Allocatable, with the cgroups as kubelet
// makes them: below the early threshold, above kubelet's own, and nobody has done
// anything wrong. Nobody is killed.
func TestVMPackedNode(t *testing.T) {
	s := newScene(t, lab.Current)
	const (
		pods = 3
		// besides is for what is in a pod's limit beside the memory it takes: the
		// workload itself, page tables, the pause process.
		besides = 12 * mi
	)
	m := s.status().Engine.Memory
	// The operator has reserved what the system uses: what is left when the pods
	// are full lies between floor and threshold. Each pod costs a shim beside its
	// own memory, and leaves some of that unused.
	left, overhead := (m.Floor+m.Threshold)/2, uint64(pods*6*mi)
	allocatable := m.Available - left - overhead
	reserved := m.Capacity - allocatable - m.Floor
	share := int64(allocatable / pods)
	t.Logf("capacity %d MiB − reserved %d − kubelet's hard threshold %d = allocatable %d MiB, %d pods of %d MiB",
		m.Capacity/mi, reserved/mi, m.Floor/mi, allocatable/mi, pods, share/mi)
	// kubelet limits kubepods to capacity − reserved.
	limit(t, "/kubepods", int64(m.Capacity-reserved))

	var packed []*livePod
	for i := range pods {
		spec := s.pod(fmt.Sprintf("packed-%d", i), "Guaranteed", share, "alloc", "--total", mib(uint64(share-besides)), "--rate", "100Mi")
		limit(t, spec.CgroupParent, share)
		packed = append(packed, s.live(spec))
	}
	full := func() bool {
		for _, p := range packed {
			if s.usage(p.spec) < uint64(share-besides) {
				return false
			}
		}
		return true
	}
	eventually(t, "the pods are full", 60*time.Second, func() bool {
		s.mustHaveKilledNobody()
		return t.Failed() || full()
	})
	now := s.status().Engine.Memory
	t.Logf("full: available %d MiB (kernel %d, kubelet %d), threshold %d, floor %d, met %v, early band %v", now.Available/mi,
		now.AvailableKernel/mi, now.AvailableKubelet/mi, now.Threshold/mi, now.Floor/mi, now.Met, now.EarlyBand)
	s.quietly(full, packed...)
	s.mustHaveSpared()
}

// limit makes a cgroup with a memory limit, as kubelet does.
func limit(t *testing.T, path string, bytes int64) {
	t.Helper()
	root := "/sys/fs/cgroup"
	dir := filepath.Join(root, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for at := root; at != dir; {
		rel, err := filepath.Rel(at, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+memory +cpu +pids"), 0); err != nil {
			t.Fatal(err)
		}
		at = filepath.Join(at, firstElement(rel))
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), fmt.Append(nil, bytes), 0); err != nil {
		t.Fatal(err)
	}
}

func firstElement(p string) string {
	for i := range p {
		if p[i] == '/' {
			return p[:i]
		}
	}
	return p
}
