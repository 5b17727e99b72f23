package eviction

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// rig is an engine on a fake machine, run in virtual time: inside a synctest
// bubble, with the fast half's threads as plain goroutines, because the bubble's
// time cannot pass while somebody waits in the kernel.
type rig struct {
	t       *testing.T
	set     Settings
	node    *fakeNode
	cgroups *fakeCgroups
	runtime *fakeRuntime
	writer  *holds.Writer
	broken  *brokenHolds // in place of writer
	dir     string
	facts   *fakeFacts
	ledger  Ledger
	armed   Armed
	bootID  string
	thawed  []string
	lines   *logLines
	eng     *Engine
	between func()
	hooks   *fakeHooks
	ending  func(uid string) bool
	teller  *fakeTeller // nil: nobody is told
	unheld  bool        // no proxy enforces holds
	gone    func(uid string) bool
	sources func() []SourceNow

	openPods  func() (PodsMemory, error)
	rootCheck RootSource
	topLevel  []Consumer
	gaps      []time.Duration // between the ticks of the sampler
	wakeups   KernelEvents
	slow      SlowParts

	meminfo MeminfoSource // in place of node
	scan    ScanSource
	minFree uint64
}

// fakeFacts says what pods asked for.
type fakeFacts struct {
	mu       sync.Mutex
	priority map[string]int32
	request  map[string]int64
	storage  map[string]int64 // ephemeral-storage requests; nil: it knows none
	endsBy   map[string]time.Time
	silent   bool // it knows nothing
}

func (f *fakeFacts) Pod(uid string) (inventory.PodFacts, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent {
		return inventory.PodFacts{}, false
	}
	out := inventory.PodFacts{EndsBy: f.endsBy[uid]}
	if v, ok := f.priority[uid]; ok {
		out.Priority = inventory.Value[int32]{Value: v, Source: inventory.FromPodsAPI, Exact: true}
	}
	if v, ok := f.request[uid]; ok {
		out.Request = inventory.Value[int64]{Value: v, Source: inventory.FromPodsAPI, Exact: true}
	}
	if v, ok := f.storage[uid]; ok {
		out.StorageRequest = inventory.Value[int64]{Value: v, Source: inventory.FromPodsAPI, Exact: true}
	}
	return out, true
}

func newRig(t *testing.T) *rig {
	t.Helper()
	n := newNode(8 * gi)
	w, dir := openHolds(t)
	return &rig{
		t: t, node: n, cgroups: newCgroups(n), runtime: newRuntime(), writer: w, dir: dir, bootID: "boot-1",
		facts: &fakeFacts{priority: map[string]int32{}, request: map[string]int64{}, endsBy: map[string]time.Time{}},
		set: Settings{
			Rules: Rules{Amount: 500 * mi, Floor: 100 * mi, SmallGainLast: true},
			Protection: Protection{
				Static: true, Namespaces: []string{"kube-system"},
				Labels: map[string]string{"keep": "yes"}, Trusted: []string{"kube-system", "trusted"},
			},
			Transition: 30 * time.Second, HoldMaximum: time.Hour,
		},
	}
}

// pod is a pod of the fake machine.
type testPod struct {
	namespace, name, uid string
	request              int64
	priority             int32
	usage                uint64
	static               bool
	labels, annotations  map[string]string
	parent               string // cgroup_parent; the pod's own when empty
}

// add lets the pod run: its sandbox, one container and its cgroup.
func (r *rig) add(p testPod) *fakeCgroup {
	r.t.Helper()
	if p.namespace == "" {
		p.namespace = "default"
	}
	if p.name == "" {
		p.name = p.uid
	}
	path := p.parent
	if path == "" {
		path = "/kubepods/burstable/pod" + p.uid
	}
	c := r.cgroups.make(path, p.usage)
	r.facts.mu.Lock()
	r.facts.request[p.uid], r.facts.priority[p.uid] = p.request, p.priority
	r.facts.mu.Unlock()
	r.sandbox(p, 0, path, c)
	return c
}

// sandbox makes a sandbox with one running container in the runtime.
func (r *rig) sandbox(p testPod, attempt uint32, path string, c *fakeCgroup) string {
	suffix := ""
	if attempt > 0 {
		suffix = strings.Repeat("'", int(attempt))
	}
	annotations := p.annotations
	if p.static {
		annotations = map[string]string{"kubernetes.io/config.source": "file"}
	}
	id := "s-" + p.uid + suffix
	r.runtime.mu.Lock()
	defer r.runtime.mu.Unlock()
	r.runtime.sandboxes[id] = inventory.ListedSandbox{
		Sandbox: inventory.Sandbox{ID: id, Attempt: attempt, Ready: true, Created: time.Now(), CgroupParent: path},
		Pod:     inventory.Ref{Namespace: p.namespace, Name: p.name, UID: p.uid},
		Labels:  p.labels, Annotations: annotations,
	}
	cid := "c-" + p.uid + suffix
	r.runtime.containers[cid] = inventory.Container{ID: cid, SandboxID: id, Running: true, Created: time.Now()}
	r.runtime.cgroups[id] = c
	return id
}

// build makes the engine.
func (r *rig) build() *Engine {
	r.t.Helper()
	log, lines := quietLog()
	r.lines = lines
	store := inventory.NewStore(inventory.Options{MemTotal: r.node.capacity, TrustedNamespaces: r.set.Protection.Trusted, Facts: r.facts})
	var file Holds = r.writer
	if r.broken != nil {
		r.broken.Writer, file = r.writer, r.broken
	}
	var hooks Hooks
	if r.hooks != nil {
		hooks = r.hooks
	}
	var meminfo MeminfoSource = r.node
	if r.meminfo != nil {
		meminfo = r.meminfo
	}
	var teller Teller
	if r.teller != nil {
		teller = r.teller
	}
	e, err := New(r.set, Parts{
		Teller: teller, Enforced: func() bool { return !r.unheld },
		Hooks: hooks, Terminating: r.ending, Gone: r.gone, FactSources: r.sources,
		Store: store, Syncer: inventory.NewSyncer(store, r.runtime, r.cgroups, time.Now, log),
		Holds: file, Ledger: r.ledger, Armed: r.armed, Runtime: r.runtime, Cgroups: r.cgroups,
		Thaw:    func(p string) error { r.thawed = append(r.thawed, p); return nil },
		Meminfo: meminfo, Scan: r.scan, MinFree: r.minFree, BootID: r.bootID, Clock: time.Now, Log: log, BetweenIntentAndKill: r.between,
		Slow: r.slow, Wakeups: r.wakeups, OpenPods: r.openPods, RootCheck: r.rootCheck, TopLevel: func() []Consumer { return r.topLevel },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.eng = e
	return e
}

// start runs the engine until the returned function is called: what Engine.Run
// does, with a timer in place of the real-time thread's wait.
func (r *rig) start() (stop func()) {
	r.t.Helper()
	e := r.build()
	ctx, cancel := context.WithCancel(context.Background())
	resume := e.restore(ctx)
	var slow, fast, sampler sync.WaitGroup
	slow.Go(func() { e.syncer.Run(ctx) })
	slow.Go(func() { e.keepLedger(ctx) })
	slow.Go(func() { e.slow.run(ctx) })
	for _, d := range resume {
		e.start(ctx, d, OutcomeResumed)
	}
	e.publishPlan()
	halt := make(chan struct{})
	sampler.Go(func() {
		last := time.Now()
		for {
			wait := e.sampler.tick()
			r.gaps = append(r.gaps, time.Since(last))
			last = time.Now()
			select {
			case <-halt:
				return
			case <-time.After(wait):
			}
		}
	})
	fast.Go(func() { e.killer.run(e.orders) })
	fast.Go(func() { e.killer.takeOver(e.stuck) })
	slow.Go(func() { e.loop(ctx) })
	if e.wakeups != nil {
		e.wakeups.waker = openWaker(r.t)
		slow.Go(func() { e.wakeups.run(ctx, e.clock, e.wakeInput) })
	}
	return sync.OnceFunc(func() {
		cancel()
		close(halt)
		sampler.Wait()
		close(e.orders)
		close(e.stuck)
		fast.Wait()
		slow.Wait()
		e.finishing.Wait()
		e.planner.closeAll()
	})
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// pass lets virtual time pass and everybody come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// outcomes lists the decisions, oldest first, as "outcome name".
func (r *rig) outcomes() []string {
	var out []string
	for _, rep := range r.eng.History(historyLength) {
		name := "-"
		if rep.Victim != nil {
			name = rep.Victim.Name
		}
		out = append(out, rep.Outcome+" "+name)
	}
	slices.Reverse(out)
	return out
}

// hold returns the newest record of a pod.
func (r *rig) hold(uid string) (holds.Record, bool) {
	var found holds.Record
	ok := false
	for _, rec := range r.writer.Records() {
		if rec.UID == uid {
			found, ok = rec, true
		}
	}
	return found, ok
}

func (r *rig) wantOutcomes(want ...string) {
	r.t.Helper()
	if got := r.outcomes(); !slices.Equal(got, want) {
		r.t.Errorf("decisions %q, want %q", got, want)
	}
}
