package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// loopFS mounts a new ext4 at dir, from a file: what the tests fill is nobody
// else's.
func loopFS(image, dir string, size int64, inodes int) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	for _, c := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m", "0", "-N", fmt.Sprint(inodes), image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w\n%s", c, err, out)
		}
	}
	return nil
}

// newNodeOnLoop is newNode with containerd's root, and so images and writable
// layers, on a file system of its own; at is that folder.
func newNodeOnLoop(t *testing.T, size int64, inodes int) (n *node, at string) {
	t.Helper()
	n = newNodeOn(t, lab.Current, func(dir string) error {
		at = dir
		return loopFS(filepath.Join(filepath.Dir(dir), "root.img"), dir, size, inodes)
	})
	return n, at
}

// serveSlow starts cri-evictd with these hard thresholds and no other, and waits
// until it has seen them clear.
func (n *node) serveSlow(on map[eviction.Signal]string) *daemon {
	n.t.Helper()
	var b strings.Builder
	b.WriteString("evictionHard:\n")
	for _, s := range []eviction.Signal{
		eviction.MemoryAvailable, eviction.NodeFsAvailable, eviction.NodeFsInodesFree,
		eviction.ImageFsAvailable, eviction.ImageFsInodesFree, eviction.PIDAvailable,
	} {
		value, ok := on[s]
		if !ok {
			value = "0%"
		}
		fmt.Fprintf(&b, "  %s: %q\n", s, value)
	}
	b.WriteString("evictionPressureTransitionPeriod: 1s\n")
	d := n.start(binary(n.t, ""), nil, "serve", "--config", n.defaults(b.String()))
	eventually(n.t, "cri-evictd ready", 60*time.Second, func() bool {
		s, err := d.admin().Status(n.t.Context())
		if err != nil || !s.Engine.Inventory.Listed || !s.Proxy.Reachable || s.Proxy.UpstreamState != "READY" {
			return false
		}
		for signal := range on {
			seenClear := func(x eviction.SignalNow) bool {
				return x.Signal == signal && x.Known && !x.Unarmed && len(x.Thresholds) == 1 && !x.Thresholds[0].Met
			}
			if !slices.ContainsFunc(s.Engine.Signals, seenClear) {
				return false
			}
		}
		return true
	})
	return d
}

// mustHaveEvicted checks that this pod was the only victim, by this signal, and
// that its neighbours live.
func (n *node) mustHaveEvicted(d *daemon, hold admin.Hold, name string, s eviction.Signal, neighbours ...lab.Running) {
	n.t.Helper()
	if hold.Signal != string(s) || hold.Available >= hold.Threshold {
		n.t.Errorf("the hold's signal or numbers make no sense: %s", jsonText(hold))
	}
	if got := d.evictions(); len(got) != 1 || got[name] != 1 {
		n.t.Errorf("evicted %v, want %s alone, once", got, name)
	}
	for _, r := range neighbours {
		n.mustRun("a neighbour", r.ContainerIDs[0])
	}
}

// available waits until a file system has so much again.
func (n *node) available(at string, bytes, inodes uint64) {
	n.t.Helper()
	eventually(n.t, "what the victim had is free again", 60*time.Second, func() bool {
		fs, err := cgroupfs.Statfs(at)
		return err == nil && fs.Available >= bytes && fs.InodesFree >= inodes
	})
}

// A pod fills the runtime's file system through its writable layer: it goes, its
// neighbours stay, and the space is back once its container was removed.
func TestWriterIsEvicted(t *testing.T) {
	const threshold = 200 * mi
	n, root := newNodeOnLoop(t, 512*mi, 32768)
	d := n.serveSlow(map[eviction.Signal]string{eviction.ImageFsAvailable: quantity(threshold)})
	beat := n.run(d.cri, n.pod("beat", "Burstable", 128*mi, "beat"))
	small := n.run(d.cri, n.pod("small", "Burstable", 128*mi, "write", "--dir", "/", "--total", "20Mi"))

	spec := n.pod("writer", "Burstable", 128*mi, "write", "--dir", "/", "--total", "400Mi", "--rate", "40Mi")
	n.run(d.cri, spec)
	hold := d.waitKilled(spec.UID)
	mustBeRefused(t, d, spec)
	n.mustHaveEvicted(d, hold, "writer", eviction.ImageFsAvailable, beat, small)
	if hold.Usage < 20*mi {
		t.Errorf("usage %d", hold.Usage)
	}
	r := d.decisionAbout(spec.UID)
	if x := r.Resource; x == nil || x.Layout != eviction.LayoutDedicated || !strings.HasPrefix(x.Path, root) {
		t.Errorf("decision: %s", jsonText(r))
	}
	n.available(root, threshold+100*mi, 0)
}

// A pod makes files without end: the inodes run out long before the space.
func TestInodeEaterIsEvicted(t *testing.T) {
	const threshold = 16000
	n, root := newNodeOnLoop(t, 512*mi, 32768)
	d := n.serveSlow(map[eviction.Signal]string{eviction.ImageFsInodesFree: fmt.Sprint(threshold)})
	few := n.run(d.cri, n.pod("few", "Burstable", 128*mi, "files", "--dir", "/", "--count", "300"))
	big := n.run(d.cri, n.pod("big", "Burstable", 128*mi, "write", "--dir", "/", "--total", "100Mi"))

	spec := n.pod("eater", "Burstable", 128*mi, "files", "--dir", "/", "--count", "25000", "--rate", "4000")
	n.run(d.cri, spec)
	hold := d.waitKilled(spec.UID)
	mustBeRefused(t, d, spec)
	n.mustHaveEvicted(d, hold, "eater", eviction.ImageFsInodesFree, few, big)
	if x := d.decisionAbout(spec.UID).Resource; x == nil || x.Unit != eviction.Inodes {
		t.Errorf("about %s", jsonText(x))
	}
	n.available(root, 0, threshold+8000)
}

// What a pod has in its volumes is not freed by its end but by its deletion, and
// nobody tells kubelet of it here: no pod dies for nothing, and the reason is said
// with what the deletion would free.
func TestVolumeWriterIsNotEvictedForNothing(t *testing.T) {
	n := newNode(t, lab.Current)
	root := filepath.Join(n.dir, "kubelet")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := loopFS(filepath.Join(n.dir, "kubelet.img"), root, 400*mi, 8192); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the pod has it mounted still
		if out, err := exec.Command("umount", "--lazy", root).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	d := n.serveSlow(map[eviction.Signal]string{eviction.NodeFsAvailable: "200Mi"})
	beat := n.run(d.cri, n.pod("beat", "Burstable", 128*mi, "beat"))
	spec := n.pod("writer", "Burstable", 128*mi, "write", "--dir", "/data", "--total", "250Mi", "--rate", "100Mi")
	volume := filepath.Join(root, "pods", spec.UID, "volumes/kubernetes.io~empty-dir/data")
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	spec.Containers[0].Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: volume}}
	writer := n.run(d.cri, spec)
	eventually(t, "it is said that only a deletion frees anything", 120*time.Second, func() bool {
		x := answer(d, func(c *admin.Client, ctx context.Context) (admin.Explanation, error) { return c.Explain(ctx, "") })
		said := slices.ContainsFunc(x.Decisions, func(r eviction.Report) bool {
			return r.Signal == eviction.NodeFsAvailable && strings.Contains(r.Summary, eviction.OnlyDeletion.String())
		})
		return said && slices.ContainsFunc(x.Slow, func(s eviction.SlowExplanation) bool {
			return s.Next == nil && slices.ContainsFunc(s.Candidates, func(c eviction.CandidateReport) bool {
				return c.UID == spec.UID && c.Deletion >= 200*mi && c.Gain < mi
			})
		})
	})
	if got := d.evictions(); len(got) != 0 {
		t.Errorf("evicted %v", got)
	}
	n.mustRun("the writer", writer.ContainerIDs[0])
	n.mustRun("its neighbour", beat.ContainerIDs[0])
}

// A pod that makes processes without end is the victim, and not its neighbours;
// the tasks come back.
func TestForkBombIsEvicted(t *testing.T) {
	n := newNode(t, lab.Current)
	fs, err := cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := fs.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	const margin = 600 // more than what a compiler beside the test takes
	d := n.serveSlow(map[eviction.Signal]string{eviction.PIDAvailable: fmt.Sprint(before.Available() - margin)})
	neighbour := n.run(d.cri, n.pod("neighbour", "Burstable", 128*mi, "fork", "--count", "3"))

	spec := n.pod("bomb", "Burstable", 128*mi, "fork", "--count", "300")
	n.run(d.cri, spec)
	hold := d.waitKilled(spec.UID)
	mustBeRefused(t, d, spec)
	n.mustHaveEvicted(d, hold, "bomb", eviction.PIDAvailable, neighbour)
	if hold.Usage < margin/2 {
		t.Errorf("usage %d", hold.Usage)
	}
	eventually(t, "the tasks are back", 60*time.Second, func() bool {
		now, err := fs.PIDs()
		return err == nil && now.Available() >= before.Available()-margin/2
	})
}
