package eviction

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// planRig is a planner over fake cgroups.
type planRig struct {
	*planner
	t       *testing.T
	cgroups *fakeCgroups
	lines   *logLines
	in      planInput
}

func newPlanRig(t *testing.T) *planRig {
	t.Helper()
	log, lines := quietLog()
	cg := newCgroups(nil)
	return &planRig{
		planner: newPlanner(cg, Protection{}, log), t: t, cgroups: cg, lines: lines,
		in: planInput{now: t0, held: map[string]string{}, keepOpen: map[string]bool{}, repeats: map[string]uint32{}},
	}
}

const ownPath = "/kubepods/burstable/podu1"

func inventoryPod(uid, cgroup string, own bool) *inventory.Pod {
	return &inventory.Pod{
		Ref: inventory.Ref{Namespace: "default", Name: uid, UID: uid}, Cgroup: cgroup, OwnCgroup: own,
		Sandboxes:  []inventory.Sandbox{{ID: "s-" + uid, Ready: true}},
		Containers: []inventory.Container{{ID: "c-" + uid, SandboxID: "s-" + uid, Running: true}},
		Request:    inventory.Value[int64]{Value: 100 * mi, Source: inventory.FromPodsAPI, Exact: true},
		Priority:   inventory.Value[int32]{Value: 7, Source: inventory.FromPodsAPI, Exact: true},
	}
}

// plan builds one for these pods after d.
func (r *planRig) plan(d time.Duration, pods ...*inventory.Pod) *Plan {
	r.t.Helper()
	r.in.now = r.in.now.Add(d)
	r.in.snapshot = &inventory.Snapshot{Pods: pods}
	return r.build(r.in)
}

func (r *planRig) only(p *Plan) *PlanPod {
	r.t.Helper()
	if len(p.Pods) != 1 {
		r.t.Fatalf("%d pods in the plan, want 1", len(p.Pods))
	}
	return &p.Pods[0]
}

func TestPlanPreparesAPod(t *testing.T) {
	r := newPlanRig(t)
	c := r.cgroups.make(ownPath, 900*mi)
	c.inactive = 300 * mi
	r.cgroups.freezes = true
	r.in.repeats["u1"] = 3
	p := r.only(r.plan(0, inventoryPod("u1", ownPath, true)))
	if p.Barred != "" || p.NoDirect != "" || p.prepared == nil || !p.freezes || p.repeat != 3 {
		t.Errorf("barred %q, no direct kill %q, prepared %v, freezes %v, repeat %d", p.Barred, p.NoDirect, p.prepared != nil, p.freezes, p.repeat)
	}
	if p.CgroupPath != ownPath || p.CgroupInode != c.inode {
		t.Errorf("cgroup %q inode %d", p.CgroupPath, p.CgroupInode)
	}
	var m Candidate
	p.measure(&m)
	want := Candidate{UID: "u1", Priority: 7, Request: 100 * mi, RequestKnown: true, Usage: 600 * mi, Gain: 600 * mi, Known: true}
	if m != want {
		t.Errorf("measured %+v, want %+v", m, want)
	}
	if fmt.Sprint(p.sandboxes, p.containers) != "[s-u1] [c-u1]" {
		t.Errorf("to stop: %v %v", p.sandboxes, p.containers)
	}
}

func TestPodThatDoesNotRunIsLeftOut(t *testing.T) {
	r := newPlanRig(t)
	c := r.cgroups.make(ownPath, gi)
	pod := inventoryPod("u1", ownPath, true)
	pod.Sandboxes[0].Ready, pod.Containers[0].Running = false, false
	if p := r.plan(0, pod); len(p.Pods) != 0 || c.opens != 0 {
		t.Errorf("%d pods, opened %d times", len(p.Pods), c.opens)
	}
}

// A pod directory that is made again at the same path is another cgroup.
// The soft eviction itself has marked the pod as held; a hard one may still have
// it, and nobody prepares a second hold.
func TestPodInASoftEvictionIsNotBarred(t *testing.T) {
	r := newPlanRig(t)
	c := r.cgroups.make(ownPath, gi)
	r.in.held["u1"] = "held: evicted by decision 7"
	r.in.evicting = map[string]uint64{"u1": 7}
	p := r.only(r.plan(0, inventoryPod("u1", ownPath, true)))
	var m Candidate
	if p.measure(&m); p.Barred != "" || p.Evicting != 7 || p.prepared != nil || !m.Evicting {
		t.Errorf("barred %q, evicting %d, candidate %+v", p.Barred, p.Evicting, m)
	}
	c.foreign = []string{"kubelet (pid 1)"}
	if p := r.only(r.plan(foreignEvery, inventoryPod("u1", ownPath, true))); p.Barred == "" {
		t.Error("what is protected is so in a soft eviction too")
	}
}

func TestRecreatedCgroupIsReopened(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	old := r.cgroups.make(ownPath, gi)
	before := r.only(r.plan(0, pod))
	r.cgroups.remove(ownPath)
	fresh := r.cgroups.make(ownPath, 2*gi)
	after := r.only(r.plan(time.Second, pod))
	if old.closes != 1 || fresh.opens != 1 || fresh.closes != 0 {
		t.Errorf("old closed %d times; new opened %d, closed %d", old.closes, fresh.opens, fresh.closes)
	}
	if before.CgroupInode == after.CgroupInode || after.CgroupInode != fresh.inode {
		t.Errorf("inode %d, then %d; want %d", before.CgroupInode, after.CgroupInode, fresh.inode)
	}
	// The old plan is still in use: its pod has no numbers, nothing worse.
	var m Candidate
	if before.measure(&m); m.Known {
		t.Errorf("the old plan measures %+v", m)
	}
}

func TestDescriptorsAreOpenedOnceAndClosed(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	c := r.cgroups.make(ownPath, gi)
	for range 5 {
		r.plan(time.Second, pod)
	}
	if c.opens != 1 || c.closes != 0 {
		t.Errorf("opened %d, closed %d times", c.opens, c.closes)
	}
	r.plan(time.Second)
	if c.closes != 1 || len(r.cache) != 0 {
		t.Errorf("closed %d times after the pod left, %d cached", c.closes, len(r.cache))
	}
}

func TestKillInProgressKeepsItsDescriptors(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	c := r.cgroups.make(ownPath, gi)
	r.plan(0, pod)
	r.in.keepOpen["u1"] = true
	r.plan(time.Second) // not in the inventory any more
	r.cgroups.remove(ownPath)
	r.plan(time.Second, pod) // in it, with a cgroup that is gone
	if c.closes != 0 {
		t.Fatalf("closed %d times under the kill", c.closes)
	}
	delete(r.in.keepOpen, "u1")
	r.plan(time.Second)
	if c.closes != 1 {
		t.Errorf("closed %d times after it", c.closes)
	}
}

func TestHeldPodIsBarred(t *testing.T) {
	r := newPlanRig(t)
	r.cgroups.make(ownPath, gi)
	r.in.held["u1"] = "held: evicted by decision 7"
	if p := r.only(r.plan(0, inventoryPod("u1", ownPath, true))); p.Barred != "held: evicted by decision 7" || p.prepared != nil {
		t.Errorf("barred %q", p.Barred)
	}
}

// A pod without a cgroup of its own loses its containers one by one while its
// kill is followed.
func TestKillInProgressKeepsContainerCgroups(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", "/shared", false)
	s, c := r.cgroups.make("/shared/s-u1", mi), r.cgroups.make("/shared/c-u1", gi)
	r.plan(0, pod)
	r.in.keepOpen["u1"] = true
	less := inventoryPod("u1", "/shared", false)
	less.Containers[0].Running = false
	r.plan(time.Second, less)
	if s.closes+c.closes != 0 {
		t.Errorf("closed %d and %d times under the kill", s.closes, c.closes)
	}
}

func TestAlarmKeepsCachedInactiveFile(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	c := r.cgroups.make(ownPath, 900*mi)
	c.inactive = 300 * mi
	r.plan(0, pod)
	r.in.alarm = true
	c.inactive = 500 * mi
	if p := r.only(r.plan(time.Second, pod)); p.InactiveFile != 300*mi || c.stats != 1 {
		t.Errorf("inactive_file %d after %d readings, want the cached number", p.InactiveFile, c.stats)
	}
	r.in.alarm = false
	if p := r.only(r.plan(time.Second, pod)); p.InactiveFile != 500*mi {
		t.Errorf("inactive_file %d in calm times", p.InactiveFile)
	}
}

// A pod that comes up during an alarm is read once: else its page cache would
// make it look far over its request.
func TestNewPodInAnAlarmIsMeasuredOnce(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	c := r.cgroups.make(ownPath, 900*mi)
	c.inactive = 850 * mi
	r.in.alarm = true
	for range 5 {
		p := r.only(r.plan(time.Second, pod))
		var m Candidate
		if p.measure(&m); m.Usage != 50*mi || !m.Known || m.OverRequest() {
			t.Fatalf("measured %+v", m)
		}
	}
	if c.stats != 1 {
		t.Errorf("%d readings of memory.stat in the alarm", c.stats)
	}
}

// Promise 4: a missing number is unknown, not zero.
func TestUnreadableInactiveFileIsUnknown(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	c := r.cgroups.make(ownPath, 900*mi)
	c.inactive, c.statErr = 300*mi, errors.New("input/output error")
	var m Candidate
	if r.only(r.plan(0, pod)).measure(&m); m.Known {
		t.Errorf("measured %+v although memory.stat was never read", m)
	}
	c.statErr = nil
	if r.only(r.plan(time.Second, pod)).measure(&m); !m.Known || m.Usage != 600*mi {
		t.Errorf("measured %+v", m)
	}
	c.statErr = errors.New("input/output error")
	if r.only(r.plan(time.Second, pod)).measure(&m); !m.Known || m.Usage != 600*mi {
		t.Errorf("measured %+v, want the reading before", m)
	}
	n := 0
	for _, l := range r.lines.all() {
		if strings.Contains(l, "part of this pod cannot be read: memory.stat of cgroup "+ownPath) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("said %d times, want once: %q", n, r.lines.all())
	}
}

func TestNoDirectReasons(t *testing.T) {
	for _, tt := range []struct {
		name   string
		setup  func(r *planRig) *inventory.Pod
		want   string
		barred string
	}{
		{"its own", func(r *planRig) *inventory.Pod {
			r.cgroups.make(ownPath, gi)
			return inventoryPod("u1", ownPath, true)
		}, "", ""},
		{"shared", func(r *planRig) *inventory.Pod {
			r.cgroups.make("/kubepods", gi)
			return inventoryPod("u1", "/kubepods", false)
		}, `cgroup "/kubepods" is not this pod's alone`, ""},
		{"not there", func(r *planRig) *inventory.Pod { return inventoryPod("u1", ownPath, true) }, `cgroup "/kubepods/burstable/podu1" is not there`, ""},
		{"a foreign process", func(r *planRig) *inventory.Pod {
			r.cgroups.make(ownPath, gi).foreign = []string{"containerd-shim (pid 42)"}
			return inventoryPod("u1", ownPath, true)
		}, "its cgroup holds containerd-shim (pid 42)", "protected: its cgroup holds containerd-shim (pid 42)"},
		{"processes that cannot be looked at", func(r *planRig) *inventory.Pod {
			r.cgroups.make(ownPath, gi).foreignErr = errors.New("/proc/42/status: permission denied")
			return inventoryPod("u1", ownPath, true)
		}, "the processes in its cgroup could not be read", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newPlanRig(t)
			p := r.only(r.plan(0, tt.setup(r)))
			if p.NoDirect != tt.want || p.Barred != tt.barred {
				t.Errorf("no direct kill %q, barred %q; want %q, %q", p.NoDirect, p.Barred, tt.want, tt.barred)
			}
		})
	}
}

// A process that enters the pod's cgroup later is found when a container comes
// or goes, and within 10 s anyway.
func TestForeignProcessesAreLookedForAgain(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	c := r.cgroups.make(ownPath, gi)
	r.plan(0, pod)
	c.foreign = []string{"kubelet (pid 7)"}
	if p := r.only(r.plan(9*time.Second, pod)); p.Barred != "" {
		t.Logf("found early: %s", p.Barred)
	}
	if p := r.only(r.plan(time.Second, pod)); p.Barred == "" {
		t.Error("not found after 10 s")
	}
	c.foreign = nil
	more := inventoryPod("u1", ownPath, true)
	more.Containers = append(more.Containers, inventory.Container{ID: "c2", SandboxID: "s-u1", Running: true})
	if p := r.only(r.plan(time.Second, more)); p.Barred != "" {
		t.Errorf("still %q after a container came", p.Barred)
	}
}

// A pod without a cgroup of its own is measured by those of its containers.
func TestContainerCgroupsStandIn(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", "/shared", false)
	r.cgroups.make("/shared/s-u1", 5*mi)
	if p := r.only(r.plan(0, pod)); len(p.cgroups) != 1 || p.CgroupInode != 0 {
		t.Errorf("%d cgroups, inode %d", len(p.cgroups), p.CgroupInode)
	}
	r.cgroups.make("/shared/c-u1", 700*mi) // its cgroup is there only now
	p := r.only(r.plan(time.Second, pod))
	var m Candidate
	if p.measure(&m); m.Usage != 705*mi || p.NoDirect == "" || p.Barred != "" {
		t.Errorf("measured %+v, no direct kill %q, barred %q", m, p.NoDirect, p.Barred)
	}
}

// Nobody gets away by the length of a name: such a pod is killed without a hold.
func TestPodWithTooLongNameIsKilledWithoutAHold(t *testing.T) {
	r := newPlanRig(t)
	pod := inventoryPod("u1", ownPath, true)
	pod.Namespace = strings.Repeat("n", 300)
	r.cgroups.make(ownPath, gi)
	p := r.only(r.plan(0, pod))
	if p.Barred != "" || p.noHold == nil || p.prepared != nil {
		t.Fatalf("barred %q, no hold: %v", p.Barred, p.noHold)
	}
	w, _ := openHolds(t)
	done := make(chan *Decision, 1)
	k := &killer{holds: w, clock: time.Now, done: done}
	plan := newPlan(1, t0, []PlanPod{*p})
	plan.decision.Victim = 0
	k.carryOut(plan.decision)
	if d := <-done; d.kill.intentErr == nil || killsOf(r.cgroups.byPath[ownPath]) != 1 {
		t.Errorf("hold error %v, %d kills", d.kill.intentErr, killsOf(r.cgroups.byPath[ownPath]))
	}
}

// A cgroup path that does not fit into a record costs the resumption, not the
// hold.
func TestLongCgroupPathIsHeldWithoutIt(t *testing.T) {
	r := newPlanRig(t)
	long := "/" + strings.Repeat("x", 250) + "/" + strings.Repeat("y", 250) + ownPath
	pod := inventoryPod("u1", long, true)
	r.cgroups.make(long, gi)
	if p := r.only(r.plan(0, pod)); p.Barred != "" || p.noHold != nil || p.prepared == nil {
		t.Errorf("barred %q, no hold: %v", p.Barred, p.noHold)
	}
}

func TestUnreadableCgroupIsSaidOnce(t *testing.T) {
	r := newPlanRig(t)
	r.cgroups.openErr[ownPath] = errors.New("permission denied")
	pod := inventoryPod("u1", ownPath, true)
	for range 3 {
		var m Candidate
		if r.only(r.plan(time.Second, pod)).measure(&m); m.Known {
			t.Fatal("a pod that cannot be read has numbers")
		}
	}
	if got := r.lines.all(); len(got) != 1 || !strings.Contains(got[0], ownPath+": permission denied") {
		t.Errorf("said %q", got)
	}
}
