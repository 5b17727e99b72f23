package diskusage

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/inventory"
)

func quiet() logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

// snapshot is an inventory of these pods, each with a container of its name.
func snapshot(t testing.TB, running bool, uids ...string) *inventory.Snapshot {
	t.Helper()
	s := inventory.NewStore(inventory.Options{MemTotal: 1 << 30})
	l := inventory.Listing{Started: t0, Finished: t0}
	for _, uid := range uids {
		l.Sandboxes = append(l.Sandboxes, inventory.ListedSandbox{
			Sandbox: inventory.Sandbox{ID: "s-" + uid, Ready: true, Created: t0, CgroupParent: "/kubepods/pod" + uid},
			Pod:     inventory.Ref{Namespace: "ns", Name: "pod-" + uid, UID: uid},
		})
		l.Containers = append(l.Containers, inventory.Container{ID: "c-" + uid, SandboxID: "s-" + uid, Name: "main", Running: running, Created: t0})
	}
	s.ApplyListing(l)
	return s.Snapshot()
}

const (
	uid1 = "11111111-2222-3333-4444-555555555555"
	uid2 = "22222222-2222-3333-4444-555555555555"
)

// rig is a collector on real directories, driven by hand.
type rig struct {
	c      *Collector
	w      *walker
	root   string
	now    time.Time
	pods   *inventory.Snapshot
	paused bool
	stats  []*runtimeapi.ContainerStats
	err    error
	took   time.Duration
}

func (r *rig) ListContainerStats(context.Context) ([]*runtimeapi.ContainerStats, error) {
	r.now = r.now.Add(r.took)
	return r.stats, r.err
}

func newRig(t testing.TB, uids ...string) *rig {
	t.Helper()
	r := &rig{root: t.TempDir(), now: t0, pods: snapshot(t, true, uids...)}
	mkdir(t, r.root, "kubelet", "pods")
	mkdir(t, r.root, "logs")
	r.c = New(Options{
		Places: Places{KubeletRoot: filepath.Join(r.root, "kubelet"), LogsDir: filepath.Join(r.root, "logs"), Proc: "/proc"},
		Pods:   func() *inventory.Snapshot { return r.pods }, Stats: r, Processes: pidsOf{},
		Paused: func() bool { return r.paused }, Clock: func() time.Time { return r.now }, Log: quiet(),
	})
	r.w = newWalker(r.c)
	return r
}

// walk lets the walker work until it has nothing to do.
func (r *rig) walk(t testing.TB) {
	t.Helper()
	for range 10000 {
		if r.w.step() >= idle {
			return
		}
	}
	t.Fatal("the walker finds no end")
}

// fill gives a pod something of each kind.
func (r *rig) fill(t testing.TB, uid string) {
	t.Helper()
	put(t, 30000, r.root, "logs", "ns_pod-"+uid+"_"+uid, "main", "0.log")
	pod := filepath.Join(r.root, "kubelet", "pods", uid)
	put(t, 100000, pod, "volumes", "kubernetes.io~empty-dir", "cache", "dir", "file")
	put(t, 50000, pod, "volumes", "kubernetes.io~empty-dir", "tmp", "file")
	put(t, 99999, pod, "volumes", "kubernetes.io~csi", "disk", "mount", "file")
	put(t, 5000, pod, "etc-hosts")
	put(t, 3000, pod, "containers", "main", "ab12cd34")
}

// Every part of a pod, from real directories (bugs.md B62, B65).
func TestCollectorParts(t *testing.T) {
	r := newRig(t, uid1, uid2)
	r.fill(t, uid1)
	settle(t, r.root)
	r.stats = []*runtimeapi.ContainerStats{stat("c-"+uid1, r.root, 700, 7, t0)}
	if _, err := r.c.askOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.walk(t)
	usage := r.c.Usage().Pods
	dev, _ := deviceOf(r.root)
	pod := filepath.Join(r.root, "kubelet", "pods", uid1)
	want := map[string]string{
		"logs": filepath.Join(r.root, "logs", "ns_pod-"+uid1+"_"+uid1), "emptyDir cache": filepath.Join(pod, "volumes/kubernetes.io~empty-dir/cache"),
		"emptyDir tmp": filepath.Join(pod, "volumes/kubernetes.io~empty-dir/tmp"), "etcHosts": filepath.Join(pod, "etc-hosts"),
		"terminationLog": filepath.Join(pod, "containers"),
	}
	for _, p := range usage[uid1].Parts {
		key := string(p.Kind)
		if p.Name != "" {
			key += " " + p.Name
		}
		if p.Device != dev || p.Freed != p.Kind.freed() {
			t.Errorf("%+v", p)
		}
		if key == "writableLayer main" {
			wantPart(t, p, 700, 7)
			continue
		}
		bytes, inodes := du(t, want[key])
		wantPart(t, p, bytes, inodes)
		delete(want, key)
	}
	if len(want) != 0 || len(usage[uid1].Parts) != 6 {
		t.Errorf("missing %v of %+v", want, usage[uid1].Parts)
	}
	// The other pod has no directories, and a layer that nobody told.
	if p := usage[uid2].Parts; len(p) != 1 || p[0].Bytes.Known || p[0].Device != dev {
		t.Errorf("%+v", p)
	}
}

// The writable layer is never older than two periods, and the view is the same
// one as long as nothing has changed.
func TestCollectorAgesLayers(t *testing.T) {
	r := newRig(t, uid1)
	r.stats = []*runtimeapi.ContainerStats{stat("c-"+uid1, r.root, 700, 7, t0)}
	layer := func() Part { return only(t, r.c.Usage().Pods[uid1], WritableLayer) }
	ask := func() {
		t.Helper()
		if _, err := r.c.askOnce(t.Context()); err != nil && r.err == nil {
			t.Fatal(err)
		}
	}
	if got := r.c.Usage().Pods; len(got) != 0 {
		t.Errorf("before anything was measured: %+v", got)
	}
	ask()
	first := r.c.Usage()
	r.now = r.now.Add(2 * statsCalm)
	if p := layer(); p.Bytes != exactly(700) || r.c.Usage() != first {
		t.Errorf("%+v", p)
	}
	r.now = r.now.Add(1)
	if p := layer(); p.Bytes.Known {
		t.Errorf("%+v", p)
	}
	// A runtime that fails, or has nothing to say, makes nothing fresh.
	r.err = errors.New("no")
	ask()
	r.err, r.stats = nil, nil
	ask()
	if p := layer(); p.Bytes.Known || p.Device == 0 {
		t.Errorf("%+v", p)
	}
	// The container ends: what was seen last stands.
	r.pods = snapshot(t, false, uid1)
	if p := layer(); p.Bytes != (Number{Value: 700, Known: true}) {
		t.Errorf("%+v", p)
	}
	// It is removed.
	r.pods = snapshot(t, false)
	ask()
	if len(r.c.Usage().Pods) != 0 || len(r.c.layers) != 0 {
		t.Errorf("%+v", r.c.Usage())
	}
	// A slow runtime is asked less often, and what it says is good for longer.
	r.took, r.pods = 8*time.Second, snapshot(t, true, uid1)
	r.stats = []*runtimeapi.ContainerStats{stat("c-"+uid1, r.root, 700, 7, r.now)}
	ask()
	r.now = r.now.Add(100 * time.Second)
	if p := layer(); !p.Bytes.Known {
		t.Errorf("%+v", p)
	}
}

// Pods are walked again when it is time, sooner when a threshold is near, and
// not at all in an alarm. What a pod that is gone had is forgotten.
func TestCollectorWalksAgain(t *testing.T) {
	r := newRig(t, uid1)
	r.fill(t, uid1)
	inodes := func() uint64 {
		t.Helper()
		r.walk(t)
		return only(t, r.c.Usage().Pods[uid1], Logs).Inodes.Value
	}
	grow := func(n string) { put(t, 10, r.root, "logs", "ns_pod-"+uid1+"_"+uid1, n) }
	if n := inodes(); n != 3 {
		t.Fatalf("%d inodes", n)
	}
	grow("a")
	r.now = r.now.Add(walkCalm - 1)
	if n := inodes(); n != 3 {
		t.Errorf("%d inodes too soon", n)
	}
	r.c.Near([]uint64{1})
	if n := inodes(); n != 4 {
		t.Errorf("%d inodes near a threshold", n)
	}
	r.c.Near(nil)
	grow("b")
	r.now = r.now.Add(walkCalm)
	r.paused = true
	if n := inodes(); n != 4 {
		t.Errorf("%d inodes while paused", n)
	}
	r.paused = false
	if n := inodes(); n != 5 {
		t.Errorf("%d inodes after the pause", n)
	}
	r.pods = snapshot(t, true)
	r.walk(t)
	if len(r.c.Usage().Pods) != 0 || len(r.c.found) != 0 || len(r.w.pods) != 0 || r.w.tools.mem.used != 0 {
		t.Errorf("%d %d %d %d", len(r.c.Usage().Pods), len(r.c.found), len(r.w.pods), r.w.tools.mem.used)
	}
}

// A pod with a huge tree does not keep the others waiting, and what was found of
// it so far is said while it is walked. A pod that goes away meanwhile leaves
// nothing behind.
func TestCollectorIsFair(t *testing.T) {
	r := newRig(t, uid1, uid2)
	for i := range 5000 {
		put(t, 0, r.root, "logs", "ns_pod-"+uid1+"_"+uid1, name(i/100), name(i))
	}
	r.fill(t, uid2)
	// Each look at the clock takes a third of a step.
	r.c.opt.Clock = func() time.Time {
		r.now = r.now.Add(stepTime / 3)
		return r.now
	}
	for step := 0; ; step++ {
		if step > 3000 {
			t.Fatal("the second pod waits for the first")
		}
		r.w.step()
		one, two := r.c.found[uid1], r.c.found[uid2]
		if one != nil && one.whole {
			t.Fatal("the first pod was walked in one go")
		}
		if one != nil && two != nil && two.whole {
			break
		}
	}
	p := only(t, r.c.Usage().Pods[uid1], Logs)
	if !p.AtLeast || p.Inodes.Value == 0 || p.Inodes.Value > 5000 || p.Inodes.Exact {
		t.Errorf("%+v", p)
	}
	if r.w.tools.mem.used == 0 {
		t.Error("the first pod's walk is over")
	}
	r.pods = snapshot(t, true, uid2)
	r.w.step()
	if got := r.w.pods[uid2]; r.w.tools.mem.used != 0 && (got.job == nil || got.job.tree == nil) {
		t.Errorf("%d bytes are still remembered", r.w.tools.mem.used)
	}
}

// Over a round of many pods, and with a call that hangs for a while, the walker
// works one part in twenty of the time (bugs.md B108).
func TestCollectorSharesTime(t *testing.T) {
	uids := []string{uid1, uid2}
	r := newRig(t, uids...)
	for _, uid := range uids {
		r.fill(t, uid)
		for i := range 2000 {
			put(t, 0, r.root, "logs", "ns_pod-"+uid+"_"+uid, name(i))
		}
	}
	looks := 0
	r.c.opt.Clock = func() time.Time {
		if looks++; looks == 100 {
			r.now = r.now.Add(2 * time.Second)
		}
		r.now = r.now.Add(700 * time.Microsecond)
		return r.now
	}
	var worked, passed, longest time.Duration
	for range 300 {
		began := r.now
		d := r.w.step()
		took := r.now.Sub(began)
		worked, passed, longest = worked+took, passed+took+d, max(longest, took)
		if looks < 100 && took > 2*stepTime {
			t.Fatalf("a step took %v", took)
		}
		r.now = r.now.Add(d)
	}
	if worked < time.Second || worked*(share-1) > passed || longest > 2*time.Second+2*stepTime {
		t.Errorf("worked %v of %v, %v at a time", worked, passed, longest)
	}
	for _, uid := range uids {
		if p := only(t, r.c.Usage().Pods[uid], Logs); p.AtLeast || p.Inodes.Value != 2003 {
			t.Errorf("%+v", p)
		}
	}
}

// Words that are no names in a path lead nowhere.
func TestPlacesRefusePaths(t *testing.T) {
	p := Places{KubeletRoot: "/k", LogsDir: "/l"}
	for _, ref := range []inventory.Ref{{UID: ".."}, {UID: "."}, {UID: ""}, {UID: "a/b"}, {UID: "a\x00"}} {
		for _, r := range p.fixed(ref) {
			if r.kind != Logs || filepath.Dir(r.path()) != "/l" {
				t.Errorf("%+v: %s", ref, r.path())
			}
		}
		if v, err := p.volumes(new(opener), ref.UID); v != nil || err != nil {
			t.Errorf("%+v: %v %v", ref, v, err)
		}
	}
	if got := p.fixed(inventory.Ref{Namespace: "..", Name: "/x", UID: "u"}); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// Run ends with its context, and its goroutines with it.
func TestCollectorRuns(t *testing.T) {
	r := newRig(t, uid1)
	r.fill(t, uid1)
	synctest.Test(t, func(t *testing.T) {
		r.c.opt.Clock = time.Now
		r.c.opt.Stats = statsNow{r.root}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(statsCalm + 5*time.Second)
		usage := r.c.Usage().Pods[uid1]
		if usage == nil {
			t.Fatal("nothing known")
		}
		if p := only(t, usage, WritableLayer); p.Bytes != exactly(9) {
			t.Errorf("%+v", p)
		}
		if p := only(t, usage, Logs); !p.Bytes.Exact {
			t.Errorf("%+v", p)
		}
		cancel()
		wg.Wait()
	})
}

type statsNow struct{ root string }

func (s statsNow) ListContainerStats(context.Context) ([]*runtimeapi.ContainerStats, error) {
	return []*runtimeapi.ContainerStats{stat("c-"+uid1, s.root, 9, 9, time.Now())}, nil
}

// A real thread is as polite as it says.
func TestPolitely(t *testing.T) {
	done := make(chan error)
	var stat []byte
	var prio uintptr
	go func() {
		err := politely()
		if err == nil {
			stat, err = os.ReadFile("/proc/thread-self/stat")
			prio, _, _ = unix.Syscall(unix.SYS_IOPRIO_GET, ioprioWhoProcess, 0, 0)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("not permitted: %v", err)
	}
	if nice := niceOf(t, stat); nice != "19" || prio != ioprioIdle {
		t.Errorf("nice %s, I/O priority %#x", nice, prio)
	}
}
