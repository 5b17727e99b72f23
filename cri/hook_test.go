package cri_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func answer(t *testing.T, m proto.Message) fakecri.Fault {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return fakecri.Fault{Raw: [][]byte{b}}
}

func TestContainerAnnotations(t *testing.T) {
	_, c, ctx := start(t)
	sb, err := c.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Uid: "u", Namespace: "ns"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ct, err := c.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sb.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{Annotations: map[string]string{"a": "b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.ContainerAnnotations(ctx, ct.GetContainerId()); err != nil || got["a"] != "b" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.ContainerAnnotations(ctx, "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("unknown container: %v", err)
	}
}

func TestContainerEndedAt(t *testing.T) {
	s, c, ctx := start(t)
	ended := time.Unix(1700000000, 5)
	of := func(state runtimeapi.ContainerState) fakecri.Fault {
		f := answer(t, &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "c", State: state, FinishedAt: ended.UnixNano()}})
		f.Times = 1
		return f
	}
	for _, tt := range []struct {
		name  string
		fault fakecri.Fault
		want  time.Time
		fails bool
	}{
		{"ended", of(runtimeapi.ContainerState_CONTAINER_EXITED), ended, false},
		{"running", of(runtimeapi.ContainerState_CONTAINER_RUNNING), time.Time{}, false},
		{"gone", fakecri.Fault{Times: 1, Err: status.Error(codes.NotFound, "gone")}, time.Time{}, false},
		{"no answer", fakecri.Fault{Times: 1, Err: status.Error(codes.Unavailable, "down")}, time.Time{}, true},
	} {
		s.Inject("ContainerStatus", tt.fault)
		if got, err := c.ContainerEndedAt(ctx, "c"); !got.Equal(tt.want) || (err != nil) != tt.fails {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

func TestPodIP(t *testing.T) {
	s, c, ctx := start(t)
	s.Inject("PodSandboxStatus", answer(t, &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.1.2.3"}},
	}))
	if ip, err := c.PodIP(ctx, "s1"); err != nil || ip != "10.1.2.3" {
		t.Errorf("%q, %v", ip, err)
	}
	s.Heal("PodSandboxStatus")
	if _, err := c.PodIP(ctx, "s1"); err == nil {
		t.Error("an unknown sandbox has an address")
	}
}

func TestExec(t *testing.T) {
	s, c, ctx := start(t)
	var asked runtimeapi.ExecSyncRequest
	s.Inject("ExecSync", fakecri.Fault{Times: 1, Handle: func(req []byte, ss grpc.ServerStream) error {
		if err := proto.Unmarshal(req, &asked); err != nil {
			return err
		}
		return ss.SendMsg(&runtimeapi.ExecSyncResponse{})
	}})
	if err := c.Exec(ctx, "c1", []string{"/bin/drain", "now"}, 7); err != nil {
		t.Error(err)
	}
	if asked.GetContainerId() != "c1" || asked.GetTimeout() != 7 || strings.Join(asked.GetCmd(), " ") != "/bin/drain now" {
		t.Errorf("asked for %v", &asked)
	}
	s.Inject("ExecSync", answer(t, &runtimeapi.ExecSyncResponse{ExitCode: 3, Stderr: []byte(strings.Repeat("x", 300) + " no such file\n")}))
	err := c.Exec(ctx, "c1", []string{"/bin/drain"}, 7)
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "no such file") || len(err.Error()) > 400 {
		t.Errorf("%v", err)
	}
}

func TestExited(t *testing.T) {
	_, c, ctx := start(t)
	_, id := runContainer(ctx, t, c)
	if got, err := c.Exited(ctx, id); err != nil || got {
		t.Errorf("running: %t, %v", got, err)
	}
	if err := c.StopContainer(ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{id, "nobody"} {
		if got, err := c.Exited(ctx, id); err != nil || !got {
			t.Errorf("%s: %t, %v", id, got, err)
		}
	}
}
