package kubelet

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/eviction/gc/criruntime"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
)

const (
	controlName = "n2"
	// gcPace is the time between two passes; kubelet lists every second.
	gcPace = 2 * time.Second
	// gcMore is how many passes more there are at most, until something of every kind
	// was removed.
	gcMore = 30
)

// gcPasses is how many passes TestForcedPassesHarmNobody makes once all pods are
// under way; `make soak-gc` has 100, and twice the pods.
func gcPasses(t *testing.T) (passes int, short bool) {
	t.Helper()
	text := os.Getenv("CRI_EVICTD_GC_PASSES")
	if text == "" {
		return 12, true
	}
	passes, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return passes, false
}

// nobodyReserves has no image removed: this is about containers.
type nobodyReserves struct{}

func (nobodyReserves) Reserve(context.Context, []string, time.Duration, time.Duration) (func(), error) {
	return nil, gc.ErrWanted
}

// freeing is a runtime whose every removal frees a MiB of a disk that never has
// enough, and that keeps account.
type freeing struct {
	criruntime.Runtime
	available             uint64
	containers, sandboxes map[string]bool // IDs
}

func (f *freeing) RemoveContainer(ctx context.Context, id string) error {
	f.available += mi
	f.containers[id] = true
	return f.Runtime.RemoveContainer(ctx, id)
}

func (f *freeing) RemoveSandbox(ctx context.Context, id string) error {
	f.available += mi
	f.sandboxes[id] = true
	return f.Runtime.RemoveSandbox(ctx, id)
}

// collecting returns garbage collection on this side as the daemon has it: one call
// is a pass for a hard threshold that cannot be satisfied.
func (s *gcSide) collecting() (pass func(), removed *freeing) {
	t := s.t
	t.Helper()
	var known *kube.Store
	if servesPodsAPI() {
		known = s.asking()
	} else {
		known, _ = s.watching()
	}
	f := &freeing{Runtime: criruntime.Runtime{Client: s.client}, available: 1 << 30, containers: map[string]bool{}, sandboxes: map[string]bool{}}
	store := inventory.NewStore(inventory.Options{Facts: known})
	collector := gc.New(gc.Options{
		Runtime: f, Reservations: nobodyReserves{}, Uses: gc.NewUses(nil, time.Now),
		Pods: store.Snapshot, Gone: known.Gone, Held: func() map[string]bool { return nil },
		Devices: func(context.Context) (gc.Devices, error) {
			return gc.Devices{Images: 1, Containers: 1, ImagesPath: "/", ContainersPath: "/"}, nil
		},
		Filesystem: func(context.Context, string) (cgroupfs.Filesystem, error) {
			return cgroupfs.Filesystem{Device: 1, Capacity: 1 << 40, Available: f.available}, nil
		},
		Consumers: func(uint64, eviction.Unit) []gc.Consumer { return nil }, Acts: func() bool { return true }, Kubelet: func() bool { return true },
		Settings: func() gc.Settings { return gc.Settings{High: 85, Low: 80} }, Clock: time.Now,
	}, logger(t))
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		started := time.Now()
		l, err := inventory.CRIRuntime{Lister: s.client}.List(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		l.Started, l.Finished = started, time.Now()
		store.ApplyListing(l)
		if _, err := collector.Reclaim(ctx, eviction.ReclaimWant{
			Signal: eviction.NodeFsAvailable, Hard: true, Device: 1, Path: "/", Need: 1 << 40,
			Measure: func(context.Context) (uint64, error) { return 1 << 40, nil },
		}); err != nil {
			t.Error(err)
		}
	}, f
}

// Forced passes of garbage collection change nothing of what kubelet does: nothing
// is run again, restart counts, back-offs, ends and messages are those of a node
// beside it without any. The pods are looked at by kubelet all the time, lose
// sandboxes, and kubelet itself is killed.
func TestForcedPassesHarmNobody(t *testing.T) {
	passes, short := gcPasses(t)
	c := newCluster(t, controlName)
	with := c.newGCSide(nodeName, "-gc", c.dir, behindProxy(t, c.dir))
	control := c.newGCSide(controlName, "-control", scratch(t), nil)
	both := []*gcSide{with, control}
	pass, removed := with.collecting()
	step := func(i int) {
		t.Helper()
		pass()
		pods := c.pods()
		for _, s := range both {
			s.observe(pods)
			if i%2 == 1 {
				s.touch(pods, i)
			}
		}
	}
	begun := time.Now()
	a, b := gcPods(nodeName, with.suffix), gcPods(controlName, control.suffix)
	if short {
		a, b = a[:gcFew], b[:gcFew]
	}
	for i := range a {
		c.createPod(a[i])
		c.createPod(b[i])
	}
	eventually(t, "all pods are under way", 3*time.Minute, func() bool {
		step(0)
		time.Sleep(gcPace / 2)
		pods := c.pods()
		return !slices.ContainsFunc(pods, func(p v1.Pod) bool { return !underWay(&p) })
	})
	t.Logf("%d pods are under way after %s", len(a)+len(b), time.Since(begun).Round(time.Second))
	for i := range passes {
		next := time.Now().Add(gcPace)
		for _, s := range both {
			switch i {
			case 1, passes / 2:
				s.loseSandboxes()
			case passes/2 - 1:
				if !short {
					c.call(http.MethodDelete, podPath(gcDeleted+s.suffix), nil, nil)
				}
			case passes * 3 / 4:
				s.restartKubelet()
			}
		}
		step(i)
		time.Sleep(time.Until(next))
	}
	// kubelet starts what it lost in its own time: until there was something of every
	// kind to remove.
	for i := passes; i < passes+gcMore && len(kept(with, removed)) > 0; i++ {
		step(i)
		time.Sleep(gcPace)
	}
	time.Sleep(gcPace) // what the last pass did is seen
	pods := c.pods()
	for _, s := range both {
		s.observe(pods)
	}
	t.Logf("%d passes in %s removed %d containers and %d sandboxes", passes, time.Since(begun).Round(time.Second), len(removed.containers), len(removed.sandboxes))
	compareSides(t, with, control)
	for _, what := range kept(with, removed) {
		t.Errorf("%s was removed: nothing is shown of it", what)
	}
}

// compareSides wants the same of all containers on both sides. What restarts again
// and again may be one restart ahead.
func compareSides(t *testing.T, with, control *gcSide) {
	t.Helper()
	for _, unit := range slices.Sorted(maps.Keys(control.fates)) {
		got, want := with.fates[unit], control.fates[unit]
		if got == nil {
			t.Errorf("%s: kubelet told nothing of it", unit)
			continue
		}
		a, b := with.seen(unit), control.seen(unit)
		t.Logf("%s: %d instances, %d restarts, %s, %.40s; without GC %d, %d, %s, %.40s", unit, len(a), got.restarts, got.phase, got.end, len(b), want.restarts, want.phase, want.end)
		slack := 0
		if want.restarts > 0 {
			slack = 1
		}
		if got.phase != want.phase {
			t.Errorf("%s: phase %s, without GC %s", unit, got.phase, want.phase)
		}
		if n := int(got.restarts - want.restarts); n < -slack || n > slack {
			t.Errorf("%s: %d restarts, without GC %d", unit, got.restarts, want.restarts)
		}
		if n := len(a) - len(b); n < -slack || n > slack {
			t.Errorf("%s: the runtime had %d instances, without GC %d", unit, len(a), len(b))
		}
		if got.end != want.end && (slack == 0 || got.end == "") {
			t.Errorf("%s: ended %s, without GC %s", unit, got.end, want.end)
		}
		with.checkBackOff(unit)
		control.checkBackOff(unit)
	}
}

// kept are the kinds of which nothing was removed yet.
func kept(with *gcSide, removed *freeing) []string {
	of := map[string]bool{}
	with.mu.Lock()
	for unit, all := range with.instances {
		for id := range all {
			of[unit] = of[unit] || removed.containers[id]
		}
	}
	with.mu.Unlock()
	var out []string
	for _, unit := range []string{"crash-beside/main", "half-onfailure/loops", "completed-onfailure/first", "completed-onfailure/main", "failed/main", gcLosesSandbox + "always/steady"} {
		if !of[unit] {
			out = append(out, "no container of "+unit)
		}
	}
	if len(removed.sandboxes) == 0 {
		out = append(out, "no sandbox")
	}
	return out
}
