package kubeletdiff

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelet "k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/utils/clock"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// kubeletSide is kubelet's eviction manager on the world. It makes one pass
// whenever pass is called.
type kubeletSide struct {
	w          *world
	pods       []*v1.Pod
	thresholds []evictionapi.Threshold
	manager    kubelet.Manager
	// A pass begins with the list of active pods: arrived says that it is asked
	// for, proceed lets it be given.
	arrived, proceed chan struct{}

	mu     sync.Mutex
	order  *rand.Rand
	passes int
	now    time.Time // what its clock says
	found  verdict   // by the pass under way
}

// taken is one pod that kubelet ended.
type taken struct {
	pod     string
	grace   int64 // the override it gave, seconds
	message string
}

// verdict is what one pass did.
type verdict struct {
	resource  string // of the event EvictionThresholdMet; empty: no threshold was acted on
	killed    []taken
	collected [garbageKinds]bool // what was collected in it
	// texts are how its message names each threshold, by the numbers before the
	// pass; clear are those that were cleared at its end.
	texts map[line]string
	clear map[line]bool
	// met are those that were met before it, minimum reclaim left aside.
	met map[line]bool
	// solved: what it took a pod for was cleared by the collection (driver.solved).
	solved bool
}

// line names a threshold.
type line struct {
	signal eviction.Signal
	soft   bool
}

func (v verdict) String() string {
	text := "does nothing"
	switch {
	case len(v.killed) > 0:
		text = fmt.Sprintf("takes %s with %d s (%s)", v.killed[0].pod, v.killed[0].grace, v.killed[0].message)
	case v.resource != "":
		text = "wants " + v.resource + " back and takes nobody"
	}
	if v.collected != [garbageKinds]bool{} {
		text += ", having collected garbage"
	}
	return text
}

// startKubelet starts the manager; it stops with ctx.
func startKubelet(ctx context.Context, w *world) (*kubeletSide, error) {
	sc := w.sc
	k := &kubeletSide{w: w, arrived: make(chan struct{}), proceed: make(chan struct{}), order: rand.New(rand.NewPCG(sc.Seed, 1))}
	for i := range sc.Pods {
		k.pods = append(k.pods, sc.Pods[i].kube())
	}
	var enforce []string
	if sc.EnforcePods {
		enforce = []string{"pods"}
	}
	thresholds, err := kubelet.ParseThresholdConfig(enforce, sc.Hard, sc.Soft, sc.SoftGrace, sc.MinReclaim)
	if err != nil {
		return nil, err
	}
	k.thresholds = slices.Clone(thresholds) // kubelet writes into its own
	config := kubelet.Config{PressureTransitionPeriod: sc.Transition, MaxPodGracePeriodSeconds: sc.MaxPodGrace, Thresholds: thresholds}
	k.manager, _ = kubelet.NewManager(k, config, k.kill, k, k, k, &v1.ObjectReference{Kind: "Node", Name: "node"}, passClock{k: k}, false)
	k.manager.Start(klog.NewContext(ctx, logr.Discard()), k, func() []*v1.Pod { return k.active(ctx) }, func(*v1.Pod) bool { return true }, time.Nanosecond)
	select {
	case <-k.arrived:
	case <-ctx.Done():
	}
	return k, nil
}

// pass lets kubelet look at the world once, with its clock at this time.
func (k *kubeletSide) pass(now time.Time) verdict {
	texts, met := k.texts(), k.met()
	k.mu.Lock()
	k.passes++
	k.now = now
	k.found = verdict{texts: texts, met: met}
	k.mu.Unlock()
	k.proceed <- struct{}{}
	<-k.arrived
	k.mu.Lock()
	v := k.found
	k.mu.Unlock()
	v.collected, v.clear = k.w.collectedBy(kubeletView), map[line]bool{}
	for l := range texts {
		v.clear[l] = k.isClear(l)
	}
	k.w.passOver()
	return v
}

// active is the ActivePodsFunc: in another order each time, as the pods' own is
// none. Every pass begins with it.
func (k *kubeletSide) active(ctx context.Context) []*v1.Pod {
	select {
	case k.arrived <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	select {
	case <-k.proceed:
	case <-ctx.Done():
		return nil
	}
	var out []*v1.Pod
	for _, i := range k.w.alive() {
		out = append(out, k.pods[i])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.order.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Get implements stats.SummaryProvider. Without an image file system there is no
// summary (Kubernetes 1.37, pkg/kubelet/stats/cri_stats_provider.go ImageFsStats).
func (k *kubeletSide) Get(context.Context, bool) (*statsapi.Summary, error) {
	if k.w.sc.NoImageFs {
		return nil, errNone
	}
	return k.summary(), nil
}

// GetCPUAndMemoryStats implements stats.SummaryProvider.
func (k *kubeletSide) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return k.Get(ctx, true)
}

// summary is newer with every pass, also where no time has gone by: kubelet acts
// on no observation twice.
func (k *kubeletSide) summary() *statsapi.Summary {
	k.mu.Lock()
	now := metav1.NewTime(time.Now().Add(time.Duration(k.passes) * time.Nanosecond))
	k.mu.Unlock()
	memory := func(sig eviction.Signal) *statsapi.MemoryStats {
		available := k.w.available(kubeletView, sig)
		return &statsapi.MemoryStats{Time: now, AvailableBytes: &available, WorkingSetBytes: ptr(capacityOf(sig) - available)}
	}
	fs := func(bytes, inodes eviction.Signal) *statsapi.FsStats {
		return &statsapi.FsStats{
			Time: now, AvailableBytes: ptr(k.w.available(kubeletView, bytes)), CapacityBytes: ptr(capacityOf(bytes)),
			InodesFree: ptr(k.w.available(kubeletView, inodes)), Inodes: ptr(capacityOf(inodes)),
		}
	}
	maxPID := int64(capacityOf(eviction.PIDAvailable))
	s := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory:           memory(eviction.MemoryAvailable),
		SystemContainers: []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: memory(eviction.AllocatableMemoryAvailable)}},
		Fs:               fs(eviction.NodeFsAvailable, eviction.NodeFsInodesFree),
		Runtime: &statsapi.RuntimeStats{
			ImageFs:     fs(eviction.ImageFsAvailable, eviction.ImageFsInodesFree),
			ContainerFs: fs(eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree),
		},
		Rlimit: &statsapi.RlimitStats{Time: now, MaxPID: &maxPID, NumOfRunningProcesses: ptr(maxPID - int64(k.w.available(kubeletView, eviction.PIDAvailable)))},
	}}
	for _, i := range k.w.alive() {
		if u, ok := k.w.use(i); ok && u.Measured {
			s.Pods = append(s.Pods, statsapi.PodStats{
				PodRef:       statsapi.PodReference{Name: k.pods[i].Name, Namespace: k.pods[i].Namespace, UID: string(k.pods[i].UID)},
				Memory:       &statsapi.MemoryStats{Time: now, WorkingSetBytes: &u.Memory},
				Containers:   []statsapi.ContainerStats{{Name: "a", Rootfs: u.Layer.stats(), Logs: u.Logs.stats()}},
				VolumeStats:  []statsapi.VolumeStats{{Name: "data", FsStats: *u.Volume.stats()}},
				ProcessStats: &statsapi.ProcessStats{ProcessCount: &u.Processes},
			})
		}
	}
	return s
}

func (f Files) stats() *statsapi.FsStats {
	return &statsapi.FsStats{UsedBytes: &f.Bytes, InodesUsed: &f.Inodes}
}

// kill is the KillPodFunc. The pod goes on: it is the pod that ours takes that
// ends, so that both stay in the same world where kubelet's order has equals.
func (k *kubeletSide) kill(pod *v1.Pod, _ bool, grace *int64, status func(*v1.PodStatus)) error {
	var s v1.PodStatus
	status(&s)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found.killed = append(k.found.killed, taken{pod: pod.Name, grace: *grace, message: s.Message})
	return nil
}

// HasDedicatedImageFs implements DiskInfoProvider.
func (k *kubeletSide) HasDedicatedImageFs(context.Context) (bool, error) {
	return k.w.sc.Layout != SingleFs, nil
}

// HasDedicatedContainerFs implements DiskInfoProvider.
func (k *kubeletSide) HasDedicatedContainerFs(context.Context) (bool, error) {
	return k.w.sc.Layout == SplitFs, nil
}

// DeleteUnusedImages implements ImageGC.
func (k *kubeletSide) DeleteUnusedImages(context.Context) error { return k.collect(unusedImages) }

// DeleteAllUnusedContainers implements ContainerGC.
func (k *kubeletSide) DeleteAllUnusedContainers(context.Context) error {
	return k.collect(deadContainers)
}

func (k *kubeletSide) collect(kind garbageKind) error {
	k.w.collect(kubeletView, kind)
	return nil
}

// Event implements record.EventRecorder.
func (k *kubeletSide) Event(runtime.Object, string, string, string) {}

// Eventf implements record.EventRecorder.
func (k *kubeletSide) Eventf(_ runtime.Object, _, reason, _ string, args ...any) {
	if reason == "EvictionThresholdMet" {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.found.resource = fmt.Sprint(args...)
	}
}

// AnnotatedEventf implements record.EventRecorder.
func (k *kubeletSide) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}

// conditions are the node's as kubelet reports them since its last pass.
func (k *kubeletSide) conditions() conditions {
	return conditions{memory: k.manager.IsUnderMemoryPressure(), disk: k.manager.IsUnderDiskPressure(), pid: k.manager.IsUnderPIDPressure()}
}

// conditions are node conditions.
type conditions struct{ memory, disk, pid bool }

// of is the one a signal belongs to.
func (c conditions) of(sig eviction.Signal) bool {
	switch {
	case sig.Memory():
		return c.memory
	case sig == eviction.PIDAvailable:
		return c.pid
	}
	return c.disk
}

// passClock tells kubelet the time that a pass is made for. Its tickers tick at
// once: they only wait for the end of a pod, which nobody here takes time for.
type passClock struct {
	clock.RealClock
	k *kubeletSide
}

// Now implements clock.PassiveClock.
func (c passClock) Now() time.Time {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return c.k.now
}

// Since implements clock.PassiveClock.
func (c passClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// NewTicker implements clock.WithTicker.
func (passClock) NewTicker(time.Duration) clock.Ticker {
	return clock.RealClock{}.NewTicker(time.Nanosecond)
}
