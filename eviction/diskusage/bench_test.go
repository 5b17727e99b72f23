package diskusage

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// niceOf takes the nice value out of /proc/<pid>/stat (proc(5), field 19).
func niceOf(t *testing.T, stat []byte) string {
	t.Helper()
	_, after, ok := bytes.Cut(stat, []byte(") "))
	fields := bytes.Fields(after)
	if !ok || len(fields) < 17 {
		t.Fatalf("%q", stat)
	}
	return string(fields[16])
}

// node is a rig of n pods with three containers each, an emptyDir and logs.
func node(b *testing.B, n int) *rig {
	b.Helper()
	r := newRig(b)
	s := inventory.NewStore(inventory.Options{MemTotal: 1 << 30})
	l := inventory.Listing{Started: t0, Finished: t0}
	for i := range n {
		uid := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
		l.Sandboxes = append(l.Sandboxes, inventory.ListedSandbox{
			Sandbox: inventory.Sandbox{ID: "s" + uid, Ready: true, Created: t0, CgroupParent: "/kubepods/pod" + uid},
			Pod:     inventory.Ref{Namespace: "ns", Name: "pod-" + uid, UID: uid},
		})
		for j := range 3 {
			id := fmt.Sprint("c", j, uid)
			l.Containers = append(l.Containers, inventory.Container{ID: id, SandboxID: "s" + uid, Name: fmt.Sprint("c", j), Running: true, Created: t0})
			r.stats = append(r.stats, stat(id, r.root, 1000, 10, t0))
			put(b, 100, r.root, "logs", "ns_pod-"+uid+"_"+uid, fmt.Sprint("c", j), "0.log")
		}
		pod := filepath.Join(r.root, "kubelet", "pods", uid)
		put(b, 100, pod, "etc-hosts")
		for j := range 10 {
			put(b, 100, pod, "volumes", "kubernetes.io~empty-dir", "cache", name(j))
		}
	}
	s.ApplyListing(l)
	r.pods = s.Snapshot()
	if _, err := r.c.askOnce(b.Context()); err != nil {
		b.Fatal(err)
	}
	r.walk(b)
	return r
}

// BenchmarkUsage is what a decision pays: nothing changed since the last one,
// and everything did.
func BenchmarkUsage(b *testing.B) {
	for _, n := range []int{50, 500} {
		r := node(b, n)
		b.Run(fmt.Sprint(n, " pods unchanged"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.c.Usage()
			}
		})
		b.Run(fmt.Sprint(n, " pods changed"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.c.version++
				r.c.Usage()
			}
		})
	}
}

// BenchmarkWalk is one round through all pods, without the rests.
func BenchmarkWalk(b *testing.B) {
	for _, n := range []int{50, 500} {
		r := node(b, n)
		b.Run(fmt.Sprint(n, " pods"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.now = r.now.Add(walkCalm)
				r.walk(b)
			}
		})
	}
}

// BenchmarkLayers is what an answer of the runtime costs.
func BenchmarkLayers(b *testing.B) {
	var stats []*runtimeapi.ContainerStats
	for i := range 1500 {
		stats = append(stats, stat(fmt.Sprint(i), "/x", 1, 1, t0))
	}
	b.ReportAllocs()
	for b.Loop() {
		layersOf(stats, t0.Add(time.Second), func(string) (filesystem, error) { return filesystem{device: 1}, nil })
	}
}

// BenchmarkTree is the cost of one inode: 2000 files in one directory.
func BenchmarkTree(b *testing.B) {
	base := b.TempDir()
	for i := range 2000 {
		put(b, 0, base, "v", name(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		w := newTree(base, "v")
		w.step(never)
	}
}
