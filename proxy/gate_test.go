package proxy

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func sandboxConfig(uid string, attempt uint32) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "hog", Namespace: "default", Uid: uid, Attempt: attempt},
		Labels:      map[string]string{cri.LabelPodUID: uid, "app": "hog"},
		Annotations: map[string]string{"kubernetes.io/config.source": "api", "secret.example/x": "y", "cri-evictd.io/priority": "7"},
		Linux:       &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/burstable/pod" + uid},
	}
}

func sandboxRequest(uid string, attempt uint32) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(uid, attempt), RuntimeHandler: "runc"}
}

func containerRequest(uid, sandbox string) *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 2},
			Image:    &runtimeapi.ImageSpec{Image: "img:1"},
			Labels:   map[string]string{cri.LabelPodUID: uid, cri.LabelPodNamespace: "default", cri.LabelPodName: "hog"},
			Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{OomScoreAdj: 990, MemoryLimitInBytes: 1 << 30}},
		},
		SandboxConfig: sandboxConfig(uid, 0),
	}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func checkRefusal(t *testing.T, err error, rec holds.Record) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || st.Message() != RefusalMessage(rec) {
		t.Fatalf("got %v", err)
	}
	var info *errdetails.ErrorInfo
	for _, d := range st.Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			info = i
		}
	}
	if info.GetReason() != "POD_EVICTED" || info.GetDomain() != "cri-evictd.io" || info.GetMetadata()["uid"] != rec.UID ||
		info.GetMetadata()["signal"] != "memory.available" || info.GetMetadata()["decision"] == "" {
		t.Errorf("details %v", info)
	}
}

func TestHeldPodIsRefusedAndOthersPass(t *testing.T) {
	for _, state := range []holds.State{holds.Intent, holds.Killed} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, nil)
			old, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0))
			if err != nil {
				t.Fatal(err)
			}
			rec := r.hold("uid-1", state, time.Now())
			_, err = r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 1))
			checkRefusal(t, err, rec)
			_, err = r.cri().CreateContainer(r.ctx(), containerRequest("uid-1", old.GetPodSandboxId()))
			checkRefusal(t, err, rec)
			restore := encode(t, &runtimeapi.RestorePodRequest{Config: sandboxConfig("uid-1", 0)})
			if got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_RestorePod_FullMethodName, "", restore); got.code != codes.ResourceExhausted || got.details != 1 {
				t.Errorf("RestorePod: %+v", got)
			}
			run := encode(t, sandboxRequest("uid-1", 2))
			if got := exchange(r.ctx(), r.through, "/runtime.v1alpha2.RuntimeService/RunPodSandbox", "proto", run); got.code != codes.ResourceExhausted {
				t.Errorf("v1alpha2: %+v", got)
			}
			if n := len(r.runtime.Calls("RunPodSandbox", "CreateContainer", "RestorePod")); n != 1 {
				t.Errorf("%d calls reached the runtime", n)
			}
			if _, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-2", 0)); err != nil {
				t.Errorf("new pod: %v", err)
			}
			if got := r.proxy.Status().Refused; got != 4 {
				t.Errorf("refused %d", got)
			}

			if err := r.writer.Remove(rec.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 1)); err != nil {
				t.Errorf("after the release: %v", err)
			}
		})
	}
}

func TestReleasedHoldRefusesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.hold("uid-1", holds.Released, time.Now())
	if _, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 1)); err != nil {
		t.Fatal(err)
	}
}

func TestSandboxOfAHoldIsRefusedWithoutPodInTheRequest(t *testing.T) {
	r := newRig(t, nil)
	rec := r.hold("uid-1", holds.Killed, time.Now())
	rec.SandboxID = strings.Repeat("a", 64)
	if err := r.writer.Update(rec); err != nil {
		t.Fatal(err)
	}
	_, err := r.cri().CreateContainer(r.ctx(), &runtimeapi.CreateContainerRequest{PodSandboxId: rec.SandboxID})
	checkRefusal(t, err, rec)
}

func TestHeldPodCanBeStoppedStartedAndLookedAt(t *testing.T) {
	r := newRig(t, nil)
	sb, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0))
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.cri().CreateContainer(r.ctx(), containerRequest("uid-1", sb.GetPodSandboxId()))
	if err != nil {
		t.Fatal(err)
	}
	r.hold("uid-1", holds.Killed, time.Now().Add(time.Hour))
	steps := map[string]func(context.Context) error{
		"1 start": func(ctx context.Context) error {
			_, err := r.cri().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()})
			return err
		},
		"2 status": func(ctx context.Context) error {
			_, err := r.cri().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetContainerId()})
			return err
		},
		"3 stop": func(ctx context.Context) error {
			_, err := r.cri().StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.GetContainerId()})
			return err
		},
		"4 stop sandbox": func(ctx context.Context) error {
			_, err := r.cri().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.GetPodSandboxId()})
			return err
		},
		"5 remove": func(ctx context.Context) error {
			_, err := r.cri().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb.GetPodSandboxId()})
			return err
		},
	}
	for _, name := range []string{"1 start", "2 status", "3 stop", "4 stop sandbox", "5 remove"} {
		if err := steps[name](r.ctx()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFaultInDecodingLeavesTheCallWhole(t *testing.T) {
	r := newRig(t, func(r *rig, _ *Options) { r.hook = func(string) { panic("injected") } })
	r.hold("uid-1", holds.Killed, time.Now())
	want := uint64(0)
	for _, method := range []string{
		runtimeapi.RuntimeService_RunPodSandbox_FullMethodName, runtimeapi.RuntimeService_CreateContainer_FullMethodName,
		runtimeapi.RuntimeService_ContainerStatus_FullMethodName, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName,
		runtimeapi.ImageService_PullImage_FullMethodName, runtimeapi.RuntimeService_StopContainer_FullMethodName,
	} {
		answer := payload("whole")
		r.runtime.Inject(method, fakecri.Fault{Raw: [][]byte{answer}})
		got := exchange(r.ctx(), r.through, method, "", encode(t, sandboxRequest("uid-1", 0)))
		if got.code != codes.OK || len(got.messages) != 1 || string(got.messages[0]) != string(answer) {
			t.Errorf("%s: %+v", method, got)
		}
		if n := r.proxy.Status().Panics; n <= want {
			t.Errorf("%s: panics %d, not counted", method, n)
		} else {
			want = n
		}
	}
}

// brokenHolds panics, as a reader with a bug would.
type brokenHolds struct{ Holds }

func (brokenHolds) Held(string) (holds.Record, bool) { panic("injected") }

func TestFaultInHoldsLetsThePodPass(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.Holds = brokenHolds{o.Holds} })
	if _, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0)); err != nil {
		t.Fatal(err)
	}
	if r.proxy.Status().Panics == 0 {
		t.Error("not counted")
	}
}

func TestWithoutHoldsEverythingPasses(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.Holds = nil })
	sb, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.cri().CreateContainer(r.ctx(), containerRequest("uid-1", sb.GetPodSandboxId())); err != nil {
		t.Fatal(err)
	}
}

func TestOtherEncodingsAreNotLookedInto(t *testing.T) {
	r := newRig(t, nil)
	r.hold("uid-1", holds.Killed, time.Now())
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Raw: [][]byte{[]byte("{}")}})
	got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_RunPodSandbox_FullMethodName, "json", encode(t, sandboxRequest("uid-1", 0)))
	if got.code != codes.OK {
		t.Errorf("%+v", got)
	}
}
