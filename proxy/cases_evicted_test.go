package proxy

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// bugs.md B24: a kill from user space looks like a crash. The status of u1's
// container says Evicted with the numbers and keeps its exit code, its other
// fields are the runtime's; other containers' answers are so byte by byte.
func TestCaseB24(t *testing.T) {
	r := newRig(t, nil)
	at := time.Now()
	r.hold("u1", holds.Killed, at)
	answers := map[string][]byte{}
	for _, c := range []struct{ id, uid string }{{"c1", "u1"}, {"c2", "u2"}, {"c3", "u3"}} {
		s := exited(c.uid, at)
		s.Id = c.id
		answers[c.id] = withUnknown(encode(t, &runtimeapi.ContainerStatusResponse{Status: s, Info: map[string]string{"info": "{}"}}))
	}
	ask := func(id string) []byte {
		t.Helper()
		r.runtime.Inject("ContainerStatus", fakecri.Fault{Times: 1, Raw: [][]byte{answers[id]}})
		got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, "", encode(t, &runtimeapi.ContainerStatusRequest{ContainerId: id}))
		if got.code != codes.OK || len(got.messages) != 1 {
			t.Fatalf("%s: %+v", id, got)
		}
		return got.messages[0]
	}
	first := ask("c1")
	have, want := new(runtimeapi.ContainerStatusResponse), new(runtimeapi.ContainerStatusResponse)
	if err := proto.Unmarshal(first, have); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(answers["c1"], want); err != nil {
		t.Fatal(err)
	}
	want.Status.Reason, want.Status.Message = "Evicted", kubeletForm
	if !proto.Equal(have, want) || have.GetStatus().GetExitCode() != 137 {
		t.Errorf("got %v\nwant %v", have, want)
	}
	if n := bytes.Count(first, []byte("Evicted")); n != 1 {
		t.Errorf("the reason is set %d times", n)
	}
	if again := ask("c1"); !bytes.Equal(again, first) {
		t.Error("the second answer is another one")
	}
	for _, id := range []string{"c2", "c3"} {
		if !bytes.Equal(ask(id), answers[id]) {
			t.Errorf("%s: changed", id)
		}
	}
}

// bugs.md B35: kubelet starts what was stopped again within a second. The same
// UID is refused with one constant text, by RunPodSandbox and by CreateContainer
// in its old sandbox, until the hold is over; a new UID of the same name is let
// in unless it is BestEffort and the node is under pressure. (How long a hold
// lasts, 10, 20, 40 s … 5 min after the pressure and an hour at most, is the
// evictor's: TestCaseB35 of package eviction. The code is the design's.)
func TestCaseB35(t *testing.T) {
	r := admissionRig(t, nil)
	u1 := newPod("u1", "burstable", nil)
	old, err := r.cri().RunPodSandbox(r.ctx(), u1)
	if err != nil {
		t.Fatal(err)
	}
	r.pressure(true, false, false)
	rec := r.hold("u1", holds.Intent, time.Now().Add(-time.Second))
	again := newPod("u1", "burstable", func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Attempt = 1 })
	err = r.runs(again)
	checkRefusal(t, err, rec)
	text := status.Convert(err).Message()
	rec.State, rec.KilledAt = holds.Killed, time.Now().UTC()
	if err := r.writer.Update(rec); err != nil {
		t.Fatal(err)
	}
	for range 3 { // kubelet's events are merged by their text
		if got := status.Convert(r.runs(again)).Message(); got != text {
			t.Errorf("text %q, then %q", text, got)
		}
	}
	_, err = r.cri().CreateContainer(r.ctx(), containerRequest("u1", old.GetPodSandboxId()))
	checkRefusal(t, err, rec)

	if err := r.runs(newPod("u2", "burstable", nil)); err != nil {
		t.Errorf("a new UID of the same name: %v", err)
	}
	checkNotAdmitted(t, r.runs(newPod("u3", "besteffort", nil)), "u3", MemoryPressure)

	rec.State, rec.ReleasedAt, rec.ReleaseReason = holds.Released, time.Now().UTC(), "pressure-over"
	if err := r.writer.Update(rec); err != nil {
		t.Fatal(err)
	}
	if err := r.writer.SetConditions(holds.Conditions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.runs(again); err != nil {
		t.Errorf("u1 after its release: %v", err)
	}
	if err := r.runs(newPod("u3", "besteffort", nil)); err != nil {
		t.Errorf("u3 after the pressure: %v", err)
	}
	if n := len(r.runtime.Calls("CreateContainer")); n != 0 {
		t.Errorf("%d CreateContainer calls reached the runtime", n)
	}
}

// bugs.md B36: kubelet finds the sandbox that was stopped for it not ready, stops
// it again and removes everything. All of that passes and succeeds, however often.
func TestCaseB36(t *testing.T) {
	r := newRig(t, nil)
	sb, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("u1", 0))
	if err != nil {
		t.Fatal(err)
	}
	id := sb.GetPodSandboxId()
	c, err := r.cri().CreateContainer(r.ctx(), containerRequest("u1", id))
	if err != nil {
		t.Fatal(err)
	}
	rec := r.hold("u1", holds.Killed, time.Now())
	// The evictor's own stop goes to the runtime directly.
	direct := runtimeapi.NewRuntimeServiceClient(r.direct)
	if _, err := direct.StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	st, err := r.cri().PodSandboxStatus(r.ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil || st.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Fatalf("status %v, %v", st, err)
	}
	for range 2 {
		for name, call := range map[string]func() error{
			"StopContainer": func() error {
				_, err := r.cri().StopContainer(r.ctx(), &runtimeapi.StopContainerRequest{ContainerId: c.GetContainerId()})
				if status.Code(err) == codes.NotFound { // the runtime's own word the second time
					return nil
				}
				return err
			},
			"StopPodSandbox": func() error {
				_, err := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
				return err
			},
			"RemoveContainer": func() error {
				_, err := r.cri().RemoveContainer(r.ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: c.GetContainerId()})
				return err
			},
			"RemovePodSandbox": func() error {
				_, err := r.cri().RemovePodSandbox(r.ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
				return err
			},
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	_, err = r.cri().RunPodSandbox(r.ctx(), sandboxRequest("u1", 1))
	checkRefusal(t, err, rec) // that it may not start again has not changed
	if got := r.runtime.Calls("RemovePodSandbox", "RemoveContainer"); len(got) != 4 {
		t.Errorf("%d calls of Remove reached the runtime, want 4", len(got))
	}
}
