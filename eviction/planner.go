package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// OpenCgroup is a cgroup with descriptors kept open for the fast half.
type OpenCgroup interface {
	Cgroup
	Inode() uint64
	Close() error
}

// Cgroups opens cgroups and looks into them.
type Cgroups interface {
	// Open opens the cgroup at this path below the hierarchy root;
	// cgroupfs.ErrGone when it is not there.
	Open(path string) (OpenCgroup, error)
	// Foreign names processes in the cgroup that must never be killed with it:
	// the runtime, its shims, kubelet, ourselves.
	Foreign(c OpenCgroup) ([]string, error)
	// Container returns the path of a container's own cgroup below a parent;
	// ok is false when it cannot be found.
	Container(parent, containerID string) (path string, ok bool)
	// Freezes says whether a direct kill uses the v1 freezer.
	Freezes() bool
	// MemoryVolumes is the size of a pod's memory emptyDirs in bytes.
	MemoryVolumes(uid string) uint64
}

// foreignEvery is how often the processes of an unchanged pod are looked at
// again.
const foreignEvery = 10 * time.Second

// planner builds plans. It is used by one goroutine.
type planner struct {
	cgroups  Cgroups
	protect  Protection
	log      logrus.FieldLogger
	cache    map[string]*openPod // by UID
	builds   uint64
	problems map[string]string // by UID: said once
	pods     podsReader
	// controlPlane are the static pods of the control plane that protect leaves
	// unprotected. They are remembered: one that is just being restarted must not
	// make the others victims.
	controlPlane []string
	lookedFor    Protection // what controlPlane was found for
}

func newPlanner(c Cgroups, p Protection, log logrus.FieldLogger) *planner {
	return &planner{cgroups: c, protect: p, log: log, cache: map[string]*openPod{}, problems: map[string]string{}}
}

// planInput is what a plan is made of.
type planInput struct {
	now      time.Time
	snapshot *inventory.Snapshot
	// held maps the UID of each pod with a hold or a kill in progress to why it
	// is barred.
	held map[string]string
	// keepOpen are the UIDs whose descriptors a kill still uses.
	keepOpen map[string]bool
	repeats  map[string]uint32
	// evicting maps the UID of each pod that a soft eviction is stopping to its
	// decision. Such a pod is not barred by what held says of it.
	evicting map[string]uint64
	// told: Kubernetes is told of evictions, and kubelet unmounts memory emptyDirs.
	told bool
	// allocatable: allocatableMemory.available is watched.
	allocatable bool
	// expected: there is a source of pod facts (doubts).
	expected bool
	// alarm: keep the cached memory.stat numbers; reading them contends with
	// the reclaiming kernel.
	alarm bool
}

// build makes the next plan.
func (pl *planner) build(in planInput) *Plan {
	pods := make([]PlanPod, 0, len(in.snapshot.Pods))
	present := map[string]bool{}
	var view *podsView
	if in.allocatable && pl.pods.open != nil {
		view = pl.pods.view(in.now, in.alarm)
	}
	pl.lookForControlPlane(in.snapshot.Pods)
	for _, p := range in.snapshot.Pods {
		_, ready := p.Ready()
		running := p.RunningContainers()
		if !ready && len(running) == 0 {
			continue // nothing of it runs
		}
		present[p.UID] = true
		pods = append(pods, pl.pod(p, running, in))
		pods[len(pods)-1].inPods = view.holds(p.Cgroup)
	}
	for uid, o := range pl.cache {
		if !present[uid] && !in.keepOpen[uid] {
			o.close()
			delete(pl.cache, uid)
			delete(pl.problems, uid)
		}
	}
	pl.builds++
	plan := newPlan(pl.builds, in.now, pods)
	plan.pods, plan.controlPlane, plan.listedAt = view, pl.controlPlane, in.snapshot.ListedAt
	return plan
}

// lookForControlPlane finds the static pods because of which no static pod is a
// victim although protectStatic would let them be.
func (pl *planner) lookForControlPlane(pods []*inventory.Pod) {
	p := &pl.protect
	if pl.lookedFor.Static != p.Static || !slices.Equal(pl.lookedFor.StaticNames, p.StaticNames) {
		pl.controlPlane, pl.lookedFor = nil, *p
	}
	found := slices.Clone(pl.controlPlane)
	for _, name := range p.unprotectedControlPlane(pods) {
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	if len(found) > len(pl.controlPlane) {
		slices.Sort(found)
		pl.controlPlane = found
		pl.log.WithField("pods", strings.Join(found, ", ")).Error(ControlPlaneText + "; name them in protectStatic")
	}
}

// ControlPlaneText says why protectStatic is not followed.
const ControlPlaneText = "protectStatic leaves static pods of the control plane unprotected: no static pod is a victim"

// pod prepares one pod.
func (pl *planner) pod(p *inventory.Pod, running []inventory.Container, in planInput) PlanPod {
	o := pl.open(p, in)
	out := PlanPod{
		Ref: p.Ref, QoS: p.QoS, Priority: p.Priority, Request: p.Request, paths: o.paths,
		InactiveFile: o.inactive, VolumeBytes: o.volumeBytes(), VolumesFreed: in.told, unmeasured: !o.measured,
		Evicting: in.evicting[p.UID], Ending: endsSoon(p.Facts().EndsBy, in.now), StorageRequest: p.StorageRequest, Static: p.Static(),
		CgroupPath: o.path, CgroupInode: o.inode,
		freezes: pl.cgroups.Freezes(),
		repeat:  in.repeats[p.UID],
		Candidate: Candidate{
			UID: p.UID, Priority: p.Priority.Value,
			Request: uint64(max(p.Request.Value, 0)), RequestKnown: p.Request.Source != inventory.FromDefault,
		},
	}
	for _, c := range o.cgroups {
		out.cgroups = append(out.cgroups, c)
	}
	for _, s := range p.Sandboxes {
		if s.Ready {
			out.sandboxes = append(out.sandboxes, s.ID)
		}
	}
	for _, c := range running {
		out.containers = append(out.containers, c.ID)
	}
	out.NoDirect = pl.noDirect(p, o)
	out.Barred = pl.bar(p, o, in)
	if out.Barred == "" && out.Evicting == 0 {
		pl.prepare(&out)
	}
	return out
}

const (
	// endingWait is the longest that a pod that is being deleted is waited for,
	// endingLate how long after its grace.
	endingWait = 30 * time.Second
	endingLate = 10 * time.Second
)

// endsSoon says whether a pod whose deletion ends by then gives back soon what it
// has: one with hours of grace, or one that hangs, is not waited for.
func endsSoon(by, now time.Time) bool {
	return !by.IsZero() && by.Sub(now) <= endingWait && now.Sub(by) <= endingLate
}

// noDirect says why this pod's cgroup must not be killed directly (design §9).
func (pl *planner) noDirect(p *inventory.Pod, o *openPod) string {
	switch {
	case !p.OwnCgroup:
		return fmt.Sprintf("cgroup %q is not this pod's alone", p.Cgroup)
	case !o.direct:
		return fmt.Sprintf("cgroup %q is not there", p.Cgroup)
	case len(o.foreign) > 0:
		return "its cgroup holds " + o.foreign[0]
	case o.unread:
		return "the processes in its cgroup could not be read"
	}
	return ""
}

func (pl *planner) bar(p *inventory.Pod, o *openPod, in planInput) string {
	if why := in.held[p.UID]; why != "" && in.evicting[p.UID] == 0 {
		return why
	}
	if why := pl.protect.bars(p, doubts{controlPlane: pl.controlPlane, expected: in.expected}); why != "" {
		return why
	}
	if len(o.foreign) > 0 {
		return "protected: its cgroup holds " + o.foreign[0]
	}
	if o.vacant {
		return "no process of it is left, whatever the runtime says"
	}
	return ""
}

// record is the hold of a pod, without the numbers of the decision.
func (p *PlanPod) record(signal Signal) holds.Record {
	r := holds.Record{
		State: holds.Intent, UID: p.UID, Namespace: p.Namespace, Name: p.Name,
		Cgroup: p.CgroupPath, CgroupInode: p.CgroupInode, Signal: string(signal),
		Request: p.Request.Value, Priority: p.Priority.Value, Repeat: p.repeat,
	}
	if len(p.sandboxes) > 0 {
		r.SandboxID = p.sandboxes[0]
	}
	return r
}

// prepare encodes the hold ahead of need.
func (pl *planner) prepare(out *PlanPod) {
	r := out.record(MemoryAvailable)
	prepared, err := holds.Prepare(r)
	if err != nil {
		// A long cgroup path is only there to resume an interrupted kill.
		r.Cgroup, r.CgroupInode = "", 0
		prepared, err = holds.Prepare(r)
	}
	// Without a hold a pod can be killed all the same: nobody gets away by the
	// length of a name.
	out.prepared, out.noHold = prepared, err
}
