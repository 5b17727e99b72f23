package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// admissionRig is a rig whose new pods are judged by the conditions in its holds
// file. Who calls itself best effort in its cgroup parent is; kube-system is
// protected.
func admissionRig(t *testing.T, change func(*Admission)) *rig {
	t.Helper()
	return newRig(t, func(_ *rig, o *Options) {
		a := &Admission{
			Conditions: o.Holds.(*holds.Reader).Conditions,
			BestEffort: func(parent string) bool { return strings.Contains(parent, "besteffort") },
			Protected: func(namespace string, labels map[string]string) bool {
				return namespace == "kube-system" || namespace == "trusted" && labels["keep"] == "yes"
			},
		}
		if change != nil {
			change(a)
		}
		o.Admission = a
	})
}

// pressure publishes conditions.
func (r *rig) pressure(memory, disk, pid bool) {
	r.t.Helper()
	now := time.Now().UTC()
	if err := r.writer.SetConditions(holds.Conditions{Memory: memory, Disk: disk, PID: pid, Since: now.Add(-time.Second), Expires: now.Add(holds.ConditionsLifetime - time.Second)}); err != nil {
		r.t.Fatal(err)
	}
}

// newPod is a RunPodSandbox request of a pod in a QoS class.
func newPod(uid, qos string, change func(*runtimeapi.PodSandboxConfig)) *runtimeapi.RunPodSandboxRequest {
	req := sandboxRequest(uid, 0)
	parent := "/kubepods/" + qos + "/pod" + uid
	if qos == "guaranteed" {
		parent = "/kubepods/pod" + uid
	}
	req.Config.Linux.CgroupParent = parent
	if change != nil {
		change(req.Config)
	}
	return req
}

func (r *rig) runs(req *runtimeapi.RunPodSandboxRequest) error {
	_, err := r.cri().RunPodSandbox(r.ctx(), req)
	return err
}

// checkNotAdmitted fails unless err is the refusal of a new pod.
func checkNotAdmitted(t *testing.T, err error, uid, condition string) {
	t.Helper()
	st := status.Convert(err)
	want := fmt.Sprintf("pod default/hog (uid %s) is new and is not admitted by cri-evictd: the node had condition: [%s]; it is tried again until that is over", uid, condition)
	if st.Code() != codes.ResourceExhausted || st.Message() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if strings.Contains(st.Message(), "network is not ready") {
		t.Error("kubelet would retry every second")
	}
	var info *errdetails.ErrorInfo
	for _, d := range st.Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			info = i
		}
	}
	if info.GetReason() != "NODE_UNDER_PRESSURE" || info.GetDomain() != "cri-evictd.io" || info.GetMetadata()["uid"] != uid || info.GetMetadata()["condition"] != condition {
		t.Errorf("details %v", info)
	}
}

func TestNewPodsUnderPressure(t *testing.T) {
	config := func(f func(*runtimeapi.PodSandboxConfig)) func(*runtimeapi.PodSandboxConfig) { return f }
	static := config(func(c *runtimeapi.PodSandboxConfig) { c.Annotations["kubernetes.io/config.source"] = "file" })
	later := config(func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Attempt = 1 })
	system := config(func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Namespace = "kube-system" })
	labelled := config(func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Namespace, c.Labels["keep"] = "trusted", "yes" })
	impostor := config(func(c *runtimeapi.PodSandboxConfig) { c.Labels["keep"] = "yes" })
	unnamed := config(func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Uid = "" })
	unknown := config(func(c *runtimeapi.PodSandboxConfig) { c.Linux.CgroupParent = "/elsewhere" })
	bare := config(func(c *runtimeapi.PodSandboxConfig) { c.Linux = nil })
	for i, tt := range []struct {
		name              string
		memory, disk, pid bool
		qos               string
		change            func(*runtimeapi.PodSandboxConfig)
		refused           string
	}{
		{name: "no pressure", qos: "besteffort"},
		{name: "memory, BestEffort", memory: true, qos: "besteffort", refused: MemoryPressure},
		{name: "memory, Burstable", memory: true, qos: "burstable"},
		{name: "memory, Guaranteed", memory: true, qos: "guaranteed"},
		{name: "memory, unknown QoS", memory: true, qos: "besteffort", change: unknown},
		{name: "memory, no cgroup parent", memory: true, qos: "besteffort", change: bare},
		{name: "memory, static", memory: true, qos: "besteffort", change: static},
		{name: "memory, protected namespace", memory: true, qos: "besteffort", change: system},
		{name: "memory, protected label", memory: true, qos: "besteffort", change: labelled},
		{name: "memory, label of a namespace that is not trusted", memory: true, qos: "besteffort", change: impostor, refused: MemoryPressure},
		{name: "memory, second attempt", memory: true, qos: "besteffort", change: later},
		{name: "memory, no UID", memory: true, qos: "besteffort", change: unnamed},
		{name: "disk, Guaranteed", disk: true, qos: "guaranteed", refused: DiskPressure},
		{name: "disk, unknown QoS", disk: true, qos: "besteffort", change: unknown, refused: DiskPressure},
		{name: "disk, static", disk: true, qos: "guaranteed", change: static},
		{name: "disk, protected namespace", disk: true, qos: "besteffort", change: system},
		{name: "disk, second attempt", disk: true, qos: "besteffort", change: later},
		{name: "PIDs, Burstable", pid: true, qos: "burstable", refused: PIDPressure},
		{name: "PIDs, protected namespace", pid: true, qos: "burstable", change: system},
		{name: "all, BestEffort", memory: true, disk: true, pid: true, qos: "besteffort", refused: MemoryPressure},
		{name: "all, Burstable", memory: true, disk: true, pid: true, qos: "burstable", refused: DiskPressure},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := admissionRig(t, nil)
			r.pressure(tt.memory, tt.disk, tt.pid)
			uid := fmt.Sprintf("uid-%d", i)
			err := r.runs(newPod(uid, tt.qos, tt.change))
			n := len(r.runtime.Calls("RunPodSandbox"))
			if tt.refused == "" {
				if err != nil || n != 1 {
					t.Errorf("%v, %d calls reached the runtime", err, n)
				}
				return
			}
			checkNotAdmitted(t, err, uid, tt.refused)
			if n != 0 {
				t.Errorf("%d calls reached the runtime", n)
			}
			if lists := len(r.runtime.Calls("ListPodSandbox")); lists != 1 {
				t.Errorf("asked the runtime %d times whether the pod is new", lists)
			}
		})
	}
}

// bugs.md B40: between the breach and the condition everybody knows, kubelet
// lets new pods in; the proxy does not, from the first renewal on and as long as
// the evictor renews.
func TestCaseB40(t *testing.T) {
	r := admissionRig(t, nil)
	if err := r.runs(newPod("before", "besteffort", nil)); err != nil {
		t.Fatal(err)
	}
	breach := time.Now().UTC().Add(-9300 * time.Millisecond) // t=0; now is t=9.3 s
	if err := r.writer.SetConditions(holds.Conditions{Memory: true, Since: breach, Expires: time.Now().UTC().Add(15 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	checkNotAdmitted(t, r.runs(newPod("new", "besteffort", nil)), "new", MemoryPressure)
	// The pods that are here already may come back, attempt by attempt.
	if err := r.runs(newPod("before", "besteffort", func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Attempt = 1 })); err != nil {
		t.Errorf("a pod that was here: %v", err)
	}
	if err := r.writer.SetConditions(holds.Conditions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.runs(newPod("new", "besteffort", nil)); err != nil {
		t.Errorf("the pressure is over: %v", err)
	}
}

// A pod that was let through once is not new any more, whatever became of its
// sandbox, and the runtime is not asked.
func TestPodsLetThroughAreNotNew(t *testing.T) {
	r := admissionRig(t, nil)
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Times: 1, Err: status.Error(codes.Unknown, "cni")})
	if err := r.runs(newPod("uid-1", "besteffort", nil)); status.Code(err) != codes.Unknown {
		t.Fatal(err)
	}
	r.pressure(true, true, true)
	if err := r.runs(newPod("uid-1", "besteffort", nil)); err != nil {
		t.Errorf("attempt 0 again: %v", err)
	}
	if n := len(r.runtime.Calls("ListPodSandbox")); n != 0 {
		t.Errorf("asked the runtime %d times", n)
	}
}

// A proxy that was restarted asks the runtime once per pod.
func TestPodsOfAnEarlierProxyAreNotNew(t *testing.T) {
	r := admissionRig(t, nil)
	direct := runtimeapi.NewRuntimeServiceClient(r.direct)
	if _, err := direct.RunPodSandbox(r.ctx(), newPod("uid-1", "besteffort", nil)); err != nil {
		t.Fatal(err)
	}
	r.pressure(true, false, false)
	for range 3 {
		// The runtime's own answer: kubelet would ask for the next attempt.
		if err := r.runs(newPod("uid-1", "besteffort", nil)); status.Code(err) != codes.AlreadyExists {
			t.Errorf("known to the runtime: %v", err)
		}
	}
	checkNotAdmitted(t, r.runs(newPod("uid-2", "besteffort", nil)), "uid-2", MemoryPressure)
	if n := len(r.runtime.Calls("ListPodSandbox")); n != 2 {
		t.Errorf("asked the runtime %d times, want once per pod", n)
	}
}

// Who was evicted and let go is not new: its release was weighed.
func TestReleasedPodIsNotNew(t *testing.T) {
	r := admissionRig(t, nil)
	r.hold("uid-1", holds.Released, time.Now())
	r.pressure(true, true, false)
	if err := r.runs(newPod("uid-1", "besteffort", nil)); err != nil {
		t.Errorf("released: %v", err)
	}
	rec := r.hold("uid-2", holds.Killed, time.Now())
	checkRefusal(t, r.runs(newPod("uid-2", "besteffort", nil)), rec) // the hold's own text
}

// Whatever goes wrong on the way to a refusal admits the pod.
func TestFaultsAdmit(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Admission)
		fault  *fakecri.Fault
		bound  time.Duration
	}{
		"list fails":        {fault: &fakecri.Fault{Err: status.Error(codes.Internal, "x")}},
		"list unknown":      {fault: &fakecri.Fault{Err: status.Error(codes.Unimplemented, "x")}},
		"list is garbage":   {fault: &fakecri.Fault{Raw: [][]byte{{0xff, 0xff, 0xff}}}},
		"list hangs":        {fault: &fakecri.Fault{Hang: true}, bound: listPatience},
		"conditions panic":  {change: func(a *Admission) { a.Conditions = func() holds.Conditions { panic("x") } }},
		"QoS panics":        {change: func(a *Admission) { a.BestEffort = func(string) bool { panic("x") } }},
		"protection panics": {change: func(a *Admission) { a.Protected = func(string, map[string]string) bool { panic("x") } }},
		"expired": {change: func(a *Admission) {
			a.Conditions = func() holds.Conditions { return holds.Conditions{} }
		}},
		"nobody to ask": {change: func(a *Admission) { *a = Admission{Conditions: func() holds.Conditions { return holds.Conditions{} }} }},
	} {
		t.Run(name, func(t *testing.T) {
			r := admissionRig(t, tt.change)
			r.pressure(true, true, true)
			if tt.fault != nil {
				r.runtime.Inject("ListPodSandbox", *tt.fault)
			}
			begun := time.Now()
			if err := r.runs(newPod("uid-1", "besteffort", nil)); err != nil {
				t.Errorf("refused: %v", err)
			}
			if took := time.Since(begun); took > tt.bound+5*time.Second {
				t.Errorf("kept waiting for %s", took)
			}
			if tt.fault != nil && r.proxy.Status().Admission.Undecided != 1 {
				t.Errorf("%+v", r.proxy.Status().Admission)
			}
		})
	}
}

// A damaged holds file refuses nobody, through the real path from the evictor's
// write to the caller.
func TestNoConditionsWithoutAWholeFile(t *testing.T) {
	r := admissionRig(t, nil)
	r.pressure(true, true, true)
	checkNotAdmitted(t, r.runs(newPod("uid-1", "besteffort", nil)), "uid-1", MemoryPressure)
	now := time.Now().UTC()
	if err := r.writer.SetConditions(holds.Conditions{Memory: true, Since: now.Add(-time.Minute), Expires: now.Add(-time.Nanosecond)}); err != nil {
		t.Fatal(err)
	}
	if err := r.runs(newPod("uid-1", "besteffort", nil)); err != nil {
		t.Errorf("the evictor has not renewed: %v", err)
	}
}

// Both API versions, and no other call.
func TestAdmissionIsForRunPodSandboxOnly(t *testing.T) {
	r := admissionRig(t, nil)
	r.pressure(true, true, true)
	restore := encode(t, &runtimeapi.RestorePodRequest{Config: newPod("uid-1", "besteffort", nil).Config})
	if got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_RestorePod_FullMethodName, "", restore); got.code == codes.ResourceExhausted {
		t.Errorf("RestorePod: %+v", got)
	}
	if _, err := r.cri().CreateContainer(r.ctx(), containerRequest("uid-2", "none")); status.Code(err) == codes.ResourceExhausted {
		t.Errorf("CreateContainer: %v", err)
	}
	old := encode(t, newPod("uid-3", "besteffort", nil))
	r.runtime.Inject("/runtime.v1alpha2.RuntimeService/ListPodSandbox", fakecri.Fault{Raw: [][]byte{{}}})
	if got := exchange(r.ctx(), r.through, "/runtime.v1alpha2.RuntimeService/RunPodSandbox", "", old); got.code != codes.ResourceExhausted || got.details != 1 {
		t.Errorf("v1alpha2: %+v", got)
	}
}

func TestAdmissionIsCountedAndTold(t *testing.T) {
	r := admissionRig(t, nil)
	if s := r.proxy.Status().Admission; s.Conditions == nil || len(s.Conditions) != 0 || s.MemoryPressure+s.DiskPressure+s.PIDPressure != 0 {
		t.Errorf("before: %+v", s)
	}
	events := r.subscribeTo()
	r.pressure(true, false, false)
	for range 2 { // kubelet tries again
		checkNotAdmitted(t, r.runs(newPod("uid-1", "besteffort", nil)), "uid-1", MemoryPressure)
		e := r.want(events, EventAdmissionRefused)[0]
		if e.Pod == nil || e.Pod.UID != "uid-1" || e.Condition != MemoryPressure || e.CgroupParent == "" {
			t.Errorf("%+v", e)
		}
	}
	r.pressure(false, true, false)
	checkNotAdmitted(t, r.runs(newPod("uid-2", "burstable", nil)), "uid-2", DiskPressure)
	r.pressure(false, false, true)
	checkNotAdmitted(t, r.runs(newPod("uid-2", "burstable", nil)), "uid-2", PIDPressure)
	r.want(events, EventAdmissionRefused, EventAdmissionRefused)
	s := r.proxy.Status()
	if a := s.Admission; a.MemoryPressure != 2 || a.DiskPressure != 1 || a.PIDPressure != 1 || !slices.Equal(a.Conditions, []string{PIDPressure}) {
		t.Errorf("%+v", a)
	}
	if s.Refused != 0 {
		t.Errorf("%d count as held", s.Refused)
	}
}

// The UIDs that are remembered are bounded, the oldest go first.
func TestSeenIsBounded(t *testing.T) {
	a := newAdmission(&Admission{})
	for i := range 3 * seenLimit {
		a.let(fmt.Sprint(i))
		a.let(fmt.Sprint(i)) // once is enough
	}
	if len(a.seen) != seenLimit || a.knows(fmt.Sprint(2*seenLimit-1)) || !a.knows(fmt.Sprint(2*seenLimit)) || !a.knows(fmt.Sprint(3*seenLimit-1)) {
		t.Errorf("%d remembered", len(a.seen))
	}
	a.let(strings.Repeat("x", holds.MaxUID+1))
	if len(a.seen) != seenLimit || a.knows(strings.Repeat("x", holds.MaxUID+1)) {
		t.Error("a name of any length is remembered")
	}
	off := newAdmission(nil)
	if off.let("x"); off.knows("x") {
		t.Error("remembered without a use")
	}
}

// The caller gives up while the runtime is asked: nothing is left behind.
func TestAdmissionEndsWithTheCall(t *testing.T) {
	r := admissionRig(t, nil)
	r.pressure(true, false, false)
	r.runtime.Inject("ListPodSandbox", fakecri.Fault{Hang: true})
	ctx, cancel := context.WithCancel(r.ctx())
	done := make(chan error, 1)
	go func() {
		_, err := r.cri().RunPodSandbox(ctx, newPod("uid-1", "besteffort", nil))
		done <- err
	}()
	if err := r.runtime.Until(r.ctx(), func() bool { return len(r.runtime.Calls("ListPodSandbox")) == 1 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "the call is over", func() bool { return r.proxy.Status().InFlight == 0 })
}
