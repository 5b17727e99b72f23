package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/eviction/gc/criruntime"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// behindProxy starts a proxy in front of the runtime until the test ends.
func behindProxy(t *testing.T, dir string) func(runtime string) string {
	return func(runtime string) string {
		t.Helper()
		socket := filepath.Join(dir, "cri.sock")
		p, err := proxy.New(proxy.Options{Listen: cri.Endpoint{Path: socket}, Upstream: cri.Endpoint{Path: runtime}, EventsSocket: filepath.Join(dir, "events.sock"), Log: logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- p.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
		select {
		case <-p.Serving():
		case <-t.Context().Done():
		}
		return socket
	}
}

// nobodyReserves has no image removed: this is about containers.
type nobodyReserves struct{}

func (nobodyReserves) Reserve(context.Context, []string, time.Duration, time.Duration) (func(), error) {
	return nil, gc.ErrWanted
}

// collector is garbage collection on this node as the daemon has it, with facts
// from kubelet's Pods API.
func (n *node) collector() *gc.Collector {
	n.t.Helper()
	client, err := cri.Dial(cri.Endpoint{Path: n.ctd.Socket})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = client.Close() })
	known := n.asking()
	runtime := criruntime.Runtime{Client: client}
	return gc.New(gc.Options{
		Runtime: runtime, Reservations: nobodyReserves{}, Uses: gc.NewUses(nil, time.Now),
		Pods: func() *inventory.Snapshot { return n.snapshot(client, known) }, Gone: known.Gone, Held: func() map[string]bool { return nil },
		Devices: func(context.Context) (gc.Devices, error) {
			return gc.Devices{Images: 1, Containers: 1, ImagesPath: "/", ContainersPath: "/"}, nil
		},
		// Never enough, and never more.
		Filesystem: func(context.Context, string) (cgroupfs.Filesystem, error) {
			return cgroupfs.Filesystem{Device: 1, Capacity: 1 << 40, Available: 1 << 20}, nil
		},
		Consumers: func(uint64, eviction.Unit) []gc.Consumer { return nil }, Acts: func() bool { return true }, Kubelet: func() bool { return true },
		Settings: func() gc.Settings { return gc.Settings{High: 85, Low: 80} }, Clock: time.Now,
	}, logger(n.t))
}

// snapshot is the inventory of this moment.
func (n *node) snapshot(client *cri.Client, known *kube.Store) *inventory.Snapshot {
	store := inventory.NewStore(inventory.Options{Facts: known})
	started := time.Now()
	l, err := inventory.CRIRuntime{Lister: client}.List(n.t.Context())
	if err != nil {
		n.t.Error(err)
		return store.Snapshot()
	}
	l.Started, l.Finished = started, time.Now()
	store.ApplyListing(l)
	return store.Snapshot()
}

// fates is what became of the containers of one run, by pod and container.
type fates map[string]*fate

type fate struct {
	ids      map[string]bool // of the instances kubelet told of
	restarts int32
	phase    v1.PodPhase // the pod's
	end      string      // how it ended last
}

// observe takes the present status of the pods with this suffix.
func (f fates) observe(pods []v1.Pod, suffix string) {
	for i := range pods {
		p := &pods[i]
		name, ours := strings.CutSuffix(p.Name, suffix)
		if !ours {
			continue
		}
		for _, s := range append(append([]v1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...) {
			key := name + "/" + s.Name
			if f[key] == nil {
				f[key] = &fate{ids: map[string]bool{}}
			}
			x := f[key]
			for _, id := range []string{s.ContainerID, idOf(s.State.Terminated), idOf(s.LastTerminationState.Terminated)} {
				if id != "" {
					x.ids[id] = true
				}
			}
			x.restarts, x.phase = max(x.restarts, s.RestartCount), p.Status.Phase
			if end := s.State.Terminated; end != nil {
				x.end = fmt.Sprintf("%s %d", end.Reason, end.ExitCode)
			} else {
				x.end = ""
			}
		}
	}
}

func idOf(s *v1.ContainerStateTerminated) string {
	if s == nil {
		return ""
	}
	return s.ContainerID
}

// gcPods are pods of every kind that a missing record could harm.
func gcPods(suffix string) []*v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	run := func(name string, args ...string) v1.Container {
		return v1.Container{Name: name, Image: lab.WorkloadImage, ImagePullPolicy: v1.PullNever, Args: args}
	}
	done := []string{"alloc", "--total", "1Mi", "--rate", "0", "--hold=false"}
	pod := func(name string, policy v1.RestartPolicy, init []v1.Container, containers ...v1.Container) *v1.Pod {
		p := bare(nodeName, name+suffix)
		p.Spec.RestartPolicy, p.Spec.InitContainers, p.Spec.Containers = policy, init, containers
		return p
	}
	sidecar, deadSidecar := run("sidecar", "beat"), run("dead-sidecar", "no-such-command")
	sidecar.RestartPolicy, deadSidecar.RestartPolicy = &always, &always
	return []*v1.Pod{
		pod("crash-loop", v1.RestartPolicyAlways, nil, run("main", "no-such-command")),
		pod("crash-beside", v1.RestartPolicyAlways, nil, run("main", "no-such-command"), run("steady", "beat")),
		pod("completed", v1.RestartPolicyNever, nil, run("main", done...)),
		pod("failed", v1.RestartPolicyNever, nil, run("main", "no-such-command")),
		pod("half-never", v1.RestartPolicyNever, nil, run("done", done...), run("failed", "no-such-command"), run("steady", "beat")),
		pod("half-onfailure", v1.RestartPolicyOnFailure, nil, run("done", done...), run("steady", "beat")),
		pod("init", v1.RestartPolicyAlways, []v1.Container{run("first", done...), run("second", done...)}, run("steady", "beat")),
		pod("init-fails", v1.RestartPolicyAlways, []v1.Container{run("first", done...), run("second", "no-such-command")}, run("steady", "beat")),
		pod("sidecar", v1.RestartPolicyAlways, []v1.Container{sidecar, run("first", done...)}, run("main", "no-such-command")),
		pod("sidecar-never", v1.RestartPolicyNever, []v1.Container{sidecar, run("first", done...)}, run("done", done...), run("steady", "beat")),
	}
}

// A hundred forced passes of container GC change nothing that kubelet does: nothing
// is run again, restart counts and back-offs are as in a run without them.
func TestForcedGCChangesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes six minutes")
	}
	c := newCluster(t)
	n := startNodeOn(t, c.dir, c.nodeKubeconfig(), behindProxy(t, c.dir))
	n.cluster = c
	collector := n.collector()
	const passes, pace = 100, time.Second
	removed := 0
	watch := func(suffix string, each func(i int)) (fates, time.Duration) {
		begun := time.Now()
		for _, p := range gcPods(suffix) {
			c.createPod(p)
		}
		f := fates{}
		for i := range passes {
			next := time.Now().Add(pace)
			each(i)
			f.observe(c.pods(), suffix)
			time.Sleep(time.Until(next))
		}
		return f, time.Since(begun)
	}
	with, took := watch("-gc", func(int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done, err := collector.Reclaim(ctx, eviction.ReclaimWant{
			Signal: eviction.NodeFsAvailable, Hard: true, Device: 1, Path: "/", Need: 1 << 40,
			Measure: func(context.Context) (uint64, error) { return 1 << 40, nil },
		})
		if err != nil {
			t.Error(err)
		}
		removed += done.Containers
	})
	for _, p := range gcPods("-gc") {
		c.call(http.MethodDelete, "/api/v1/namespaces/default/pods/"+p.Name+"?gracePeriodSeconds=0", "application/json", nil, nil)
	}
	begun := time.Now()
	without, _ := watch("-control", func(i int) {
		// As long as the run with the passes, which took their time.
		time.Sleep(time.Until(begun.Add(time.Duration(i) * took / passes)))
	})
	t.Logf("%d passes in %s removed %d containers", passes, took.Round(time.Second), removed)
	if removed == 0 {
		t.Error("nothing was removed: the test shows nothing")
	}
	for key, want := range without {
		got := with[key]
		if got == nil {
			t.Errorf("%s: kubelet told nothing of it", key)
			continue
		}
		t.Logf("%s: %d instances, %d restarts, %s %q; without GC %d, %d, %s %q", key, len(got.ids), got.restarts, got.phase, got.end, len(want.ids), want.restarts, want.phase, want.end)
		loops := want.restarts > 0
		switch {
		case got.phase != want.phase:
			t.Errorf("%s: phase %s, without GC %s", key, got.phase, want.phase)
		case !loops && (got.restarts != 0 || len(got.ids) != len(want.ids)):
			t.Errorf("%s was run again: %d restarts, %d instances", key, got.restarts, len(got.ids))
		case loops && (got.restarts < want.restarts-1 || got.restarts > want.restarts+1):
			t.Errorf("%s: %d restarts, without GC %d", key, got.restarts, want.restarts)
		case !loops && got.end != want.end:
			t.Errorf("%s: ended %q, without GC %q", key, got.end, want.end)
		}
	}
}
