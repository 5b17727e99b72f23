package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// withFolder gives a pod a folder of the node at /data.
func (s *scene) withFolder(spec lab.PodSpec, name string) (lab.PodSpec, string) {
	s.t.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	for i := range spec.Containers {
		spec.Containers[i].Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: dir}}
	}
	return spec, dir
}

// moreThan is more than all memory: by an eighth in a short run, because an emulated
// machine moves some 20 MiB/s, by half in a long one.
func (s *scene) moreThan(memory uint64) uint64 {
	s.t.Helper()
	if here(s.t).quiet <= time.Minute {
		return memory / 8 * 9
	}
	return memory / 2 * 3
}

func mib(n uint64) string { return fmt.Sprintf("%dMi", n/mi) }

// Load without shortage costs nobody their life, with the default thresholds.
func TestVMQuiet(t *testing.T) {
	s := newScene(t, lab.Current)
	s.beating()
	for _, tt := range []struct {
		name string
		play func(*scene)
	}{
		{"page-cache flood", pageCacheFlood},
		{"one big read", oneBigRead},
		{"tmpfs that fits", tmpfsThatFits},
		{"reclaim at the pod's own limit", reclaimAtOwnLimit},
		{"OOM at the pod's own limit", oomAtOwnLimit},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.play(s.in(t)) })
	}
}

// Page cache is not use: a pod writes and reads more than there is memory.
func pageCacheFlood(s *scene) {
	total := s.moreThan(s.meminfo().MemTotal)
	spec, dir := s.withFolder(s.pod("flood", "BestEffort", 0, "flood", "--file", "/data/f", "--total", mib(total)), "flood")
	p := s.live(spec)
	s.quietly(func() bool { return p.lines("flood: written ") > 0 }, p)
	s.mustHaveSpared()
	s.end(p, dir)
}

// Neither is a file that is read once from end to end, a hole: pages of cache all
// the same.
func oneBigRead(s *scene) {
	size := s.moreThan(s.meminfo().MemTotal) / mi * mi
	spec, dir := s.withFolder(s.pod("reader", "BestEffort", 0, "flood", "--file", "/data/f", "--total", mib(size), "--passes", "1"), "read")
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Truncate(file, int64(size)); err != nil {
		s.t.Fatal(err)
	}
	p := s.live(spec)
	s.quietly(func() bool { return p.lines("flood: pass 1") > 0 }, p)
	s.mustHaveSpared()
	s.end(p, dir)
}

// Files in memory are use, but as long as there is room nobody has to go.
func tmpfsThatFits(s *scene) {
	m := s.status().Engine.Memory
	total := (m.Available - m.Threshold) / 2
	spec, dir := s.withFolder(s.pod("tmpfs", "BestEffort", 0, "write", "--dir", "/data", "--total", mib(total), "--rate", "100Mi"), "tmpfs")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+fmt.Sprint(total+16*mi)); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			s.t.Error(err)
		}
	})
	p := s.live(spec)
	s.quietly(func() bool { return p.lines("write: done") > 0 && s.usage(spec) > total/10*9 }, p)
	s.mustHaveSpared()
	s.end(p, "")
}

// A pod at its own limit is its own problem: cache is taken back within the limit.
func reclaimAtOwnLimit(s *scene) {
	spec, dir := s.withFolder(s.pod("limited", "Guaranteed", 96*mi, "flood", "--file", "/data/f", "--total", "256Mi"), "limited")
	p := s.live(spec)
	s.quietly(func() bool { return p.lines("flood: pass ") > 0 && s.usage(spec) > 80*mi }, p)
	s.mustHaveSpared()
	s.end(p, dir)
}

// A pod that outgrows its limit is ended by the kernel, again and again as kubelet
// starts it again; that is no pressure of the node.
func oomAtOwnLimit(s *scene) {
	spec := s.pod("outgrown", "Burstable", 64*mi, "alloc", "--total", "1Gi", "--rate", "200Mi")
	spec.Containers[0].MemoryLimit = 96 * mi
	for range 3 {
		p := s.live(spec)
		st := s.exited(p.run.ContainerIDs[0])
		if st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
			s.t.Errorf("ended with %q and %d, want the kernel's OOM kill", st.GetReason(), st.GetExitCode())
		}
		s.end(p, "")
		spec = again(spec)
	}
	s.quietly(nil)
}
