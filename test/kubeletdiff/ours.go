package kubeletdiff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
)

// act is one decision of ours: to take a pod, at the moment its hold is written and
// before the first signal is sent, or to collect garbage.
type act struct {
	pod string // empty: garbage is to be collected
	line
	done chan struct{} // closed by the reader: the decision is carried out
}

// fast says whether the fast half made it.
func (a *act) fast() bool { return a.pod != "" && a.signal.Memory() && !a.soft }

func (a *act) String() string {
	kind := "hard"
	if a.soft {
		kind = "soft"
	}
	if a.pod == "" {
		return fmt.Sprintf("collects garbage for %s, %s", a.signal, kind)
	}
	return fmt.Sprintf("takes %s for %s, %s", a.pod, a.signal, kind)
}

// asKubelet is every departure off.
func asKubelet() eviction.AsKubelet {
	return eviction.AsKubelet{
		UnmeasuredFirst: true, WithinRequest: true, FreesNothing: true, NoBreakers: true, GraceBelowHalf: true, InodesLessRequest: true,
	}
}

// policy is what of ours departs from kubelet: nothing.
func policy() eviction.Settings {
	return eviction.Settings{
		Rules:      eviction.Rules{From: eviction.FromKubelet, Floor: eviction.DefaultFloor, AsKubelet: asKubelet()},
		Protection: eviction.Protection{Static: true}, HoldMaximum: 1000 * time.Hour,
		HardGrace: 2 * time.Second, // as kubelet's runtime manager makes of its 1 s
	}
}

// oursSide is our engine on the world.
type oursSide struct {
	w      *world
	engine *eviction.Engine
	acts   chan *act

	mu     sync.Mutex
	graces map[string]int64 // seconds that a pod was given
	now    conditions
	slots  []holds.Slot // that were reserved in the holds file
}

// settings are the scenario's under a policy, as cmd/cri-evictd resolves them.
func settings(sc *Scenario, policy eviction.Settings) (eviction.Settings, error) {
	set := policy
	set.Transition, set.MaxPodGrace = sc.Transition, time.Duration(sc.MaxPodGrace)*time.Second
	var errs []error
	parse := func(text string) (t eviction.Threshold) {
		var err error
		if text == "" {
			return eviction.Threshold{Off: true}
		}
		if t, err = eviction.ParseThreshold(text); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", text, err))
		}
		return t
	}
	grace := func(sig eviction.Signal) time.Duration {
		d, err := time.ParseDuration(sc.SoftGrace[string(sig)])
		errs = append(errs, err)
		return d
	}
	hards := map[eviction.Signal]string{}
	for name, text := range sc.Hard {
		hards[eviction.Signal(name)] = text
	}
	reclaims := map[eviction.Signal]string{}
	for name, text := range sc.MinReclaim {
		reclaims[eviction.Signal(name)] = text
	}
	if sc.EnforcePods && hards[eviction.AllocatableMemoryAvailable] == "" { // kubelet's clone
		hards[eviction.AllocatableMemoryAvailable] = hards[eviction.MemoryAvailable]
		reclaims[eviction.AllocatableMemoryAvailable] = reclaims[eviction.MemoryAvailable]
	}
	for _, sig := range eviction.Signals() {
		hard, soft, reclaim := parse(hards[sig]), parse(sc.Soft[string(sig)]), parse(reclaims[sig])
		switch capacity := capacityOf(sig); {
		case sig == eviction.ContainerFsAvailable || sig == eviction.ContainerFsInodesFree:
		case !sig.Memory():
			if !hard.Off {
				set.Slow = append(set.Slow, eviction.SlowThreshold{Signal: sig, Value: hard, MinReclaim: reclaim, Hard: true})
			}
			if !soft.Off {
				set.Slow = append(set.Slow, eviction.SlowThreshold{Signal: sig, Value: soft, MinReclaim: reclaim, Grace: grace(sig)})
			}
		default:
			r := policy.Rules
			r.Amount, r.MinReclaim = hard.Resolve(capacity), reclaim.Resolve(capacity)
			if sig == eviction.MemoryAvailable {
				set.Rules = r
			} else {
				set.Allocatable = r
			}
			if !soft.Off {
				set.Soft = append(set.Soft, eviction.SoftThreshold{Signal: sig, Amount: soft.Resolve(capacity), MinReclaim: reclaim.Resolve(capacity), Grace: grace(sig)})
			}
		}
	}
	return set, errors.Join(errs...)
}

// startOurs builds the engine. Run runs it.
func startOurs(w *world, p eviction.Settings, file *holds.Writer) (*oursSide, error) {
	set, err := settings(w.sc, p)
	if err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.PanicLevel)
	o := &oursSide{w: w, acts: make(chan *act), graces: map[string]int64{}}
	tree := &tree{w: w, ours: o}
	disk := &disks{w: w, ours: o}
	store := inventory.NewStore(inventory.Options{MemTotal: nodeBytes, Facts: factsOf(w.sc)})
	o.engine, err = eviction.New(set, eviction.Parts{
		Store: store, Syncer: inventory.NewSyncer(store, o, tree, time.Now, log),
		Holds: holdsFile{file, o}, Runtime: o, Cgroups: tree, Hooks: o,
		Thaw: func(string) error { return nil }, Meminfo: tree, RootMemory: rootMemory{w},
		OpenPods: func() (eviction.PodsMemory, error) { return podsMemory{w}, nil },
		BootID:   "boot", Clock: time.Now, Log: log, Wait: time.Sleep,
		Slow: eviction.SlowParts{
			Filesystems: disk, ImagePaths: disk.imagePaths, PIDs: disk.pids, CgroupPIDs: disk.cgroupPIDs,
			KubeletRoot: nodePath, PodLogs: logPath, Usage: disk, Reclaim: disk, Remove: disk,
		},
	})
	return o, err
}

// holdsFile is the real holds file; what is written to it says what was decided.
type holdsFile struct {
	*holds.Writer
	ours *oursSide
}

// Reserve implements eviction.Holds.
func (h holdsFile) Reserve() (holds.Slot, error) {
	s, err := h.Writer.Reserve()
	h.ours.mu.Lock()
	defer h.ours.mu.Unlock()
	h.ours.slots = append(h.ours.slots, s)
	return s, err
}

// empty gives back what is left in the file, which others use after us.
func (h holdsFile) empty() error {
	for _, s := range h.ours.slots {
		h.Unreserve(s)
	}
	var errs []error
	for _, r := range h.Records() {
		errs = append(errs, h.Remove(r.ID))
	}
	return errors.Join(errs...)
}

// WriteIntent implements eviction.Holds: a hard decision.
func (h holdsFile) WriteIntent(s holds.Slot, p *holds.Prepared, n *holds.Numbers) error {
	err := h.Writer.WriteIntent(s, p, n)
	for _, r := range h.Records() {
		if r.ID == n.ID {
			h.ours.decided(r)
		}
	}
	return err
}

// Put implements eviction.Holds: a soft decision.
func (h holdsFile) Put(r holds.Record) error {
	err := h.Writer.Put(r)
	if r.State == holds.Intent {
		h.ours.decided(r)
	}
	return err
}

// SetConditions implements eviction.Holds.
func (h holdsFile) SetConditions(c holds.Conditions) error {
	h.ours.mu.Lock()
	defer h.ours.mu.Unlock()
	h.ours.now = conditions{memory: c.Memory, disk: c.Disk, pid: c.PID}
	return nil
}

// decided tells the driver and waits until it has let kubelet look.
func (o *oursSide) decided(r holds.Record) {
	a := &act{pod: r.UID, line: line{eviction.Signal(r.Signal), r.Soft}, done: make(chan struct{})}
	o.acts <- a
	<-a.done
}

func (o *oursSide) conditions() conditions {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// grace is what a pod that was taken was given; ok is false while it was not
// asked to end.
func (o *oursSide) grace(pod string) (seconds int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seconds, ok = o.graces[pod]
	return seconds, ok
}

// endWith ends a pod with a grace.
func (o *oursSide) endWith(pod string, grace int64) {
	o.mu.Lock()
	if _, ok := o.graces[pod]; !ok {
		o.graces[pod] = grace
	}
	o.mu.Unlock()
	o.w.end(pod)
}

// StopContainer implements eviction.Runtime. Container and sandbox have the pod's
// name.
func (o *oursSide) StopContainer(_ context.Context, id string, timeout int64) error {
	o.endWith(id, timeout)
	return nil
}

// StopPodSandbox implements eviction.Runtime.
func (o *oursSide) StopPodSandbox(_ context.Context, id string) error {
	o.endWith(id, 0)
	return nil
}

// List implements inventory.Runtime.
func (o *oursSide) List(context.Context) (inventory.Listing, error) {
	var l inventory.Listing
	for _, i := range o.w.alive() {
		p := &o.w.sc.Pods[i]
		l.Sandboxes = append(l.Sandboxes, inventory.ListedSandbox{
			Sandbox:     inventory.Sandbox{ID: p.Name, Ready: true, CgroupParent: cgroupPath(p)},
			Pod:         inventory.Ref{Namespace: "default", Name: p.Name, UID: p.Name},
			Annotations: p.annotations(),
		})
		l.Containers = append(l.Containers, inventory.Container{ID: p.Name, SandboxID: p.Name, Running: true})
	}
	return l, nil
}

// PID implements inventory.Runtime.
func (o *oursSide) PID(context.Context, string) (int, error) { return 0, nil }

// ContainerAnnotations implements eviction.Hooks: kubelet writes the pod's grace
// on its containers.
func (o *oursSide) ContainerAnnotations(_ context.Context, id string) (map[string]string, error) {
	for i := range o.w.sc.Pods {
		if p := &o.w.sc.Pods[i]; p.Name == id && p.Grace != nil {
			return map[string]string{"io.kubernetes.pod.terminationGracePeriod": strconv.FormatInt(*p.Grace, 10)}, nil
		}
	}
	return nil, nil
}

// Exited implements eviction.Hooks.
func (o *oursSide) Exited(_ context.Context, id string) (bool, error) {
	i := o.w.index(id)
	return i < 0 || !slices.Contains(o.w.alive(), i), nil
}

// Exec implements eviction.Hooks.
func (o *oursSide) Exec(context.Context, string, []string, int64) error { return errNone }

// PodIP implements eviction.Hooks.
func (o *oursSide) PodIP(context.Context, string) (string, error) { return "", errNone }

var errNone = errors.New("there is none here")

// facts is what Kubernetes says of the pods, by UID.
type facts map[string]inventory.PodFacts

// factsOf are those of a scenario's pods, by the product's own formulas.
func factsOf(sc *Scenario) facts {
	out := facts{}
	for i := range sc.Pods {
		r := kube.NewRecord(sc.Pods[i].kube(), inventory.FromPodsAPI, false)
		out[sc.Pods[i].Name] = inventory.PodFacts{
			Priority:       inventory.Value[int32]{Value: r.Priority, Source: r.Source, Exact: true},
			Request:        inventory.Value[int64]{Value: r.Memory, Source: r.Source, Exact: true},
			StorageRequest: inventory.Value[int64]{Value: r.EphemeralStorage, Source: r.Source, Exact: true},
			Spec:           r.Source, Ref: r.Ref, Static: r.Static,
		}
	}
	return out
}

// Pod implements inventory.Facts.
func (f facts) Pod(uid string) (inventory.PodFacts, bool) {
	p, ok := f[uid]
	return p, ok
}
