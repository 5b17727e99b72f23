package cri_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

const patience = 20 * time.Second

func start(t *testing.T) (*fakecri.Server, *cri.Client, context.Context) {
	t.Helper()
	s, err := fakecri.Start(fakecri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := cri.Dial(s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return s, c, ctx
}

// runContainer starts a container in a sandbox of its own.
func runContainer(ctx context.Context, t *testing.T, c *cri.Client) (sandbox, id string) {
	t.Helper()
	sb, err := c.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Uid: "u", Namespace: "ns"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ct, err := c.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Runtime().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: ct.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	return sb.GetPodSandboxId(), ct.GetContainerId()
}

func TestClientListsAndStops(t *testing.T) {
	s, c, ctx := start(t)
	sandbox, id := runContainer(ctx, t, c)
	if list, err := c.ListSandboxes(ctx); err != nil || len(list) != 1 || list[0].GetMetadata().GetUid() != "u" {
		t.Errorf("%v %v", list, err)
	}
	if err := c.StopContainer(ctx, id, 7); err != nil {
		t.Error(err)
	}
	req := new(runtimeapi.StopContainerRequest)
	if err := s.Calls("StopContainer")[0].Decode(req); err != nil || req.GetTimeout() != 7 {
		t.Errorf("timeout %d %v", req.GetTimeout(), err)
	}
	if list, err := c.ListContainers(ctx); err != nil || len(list) != 1 || list[0].GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("%v %v", list, err)
	}
	if err := c.StopPodSandbox(ctx, sandbox); err != nil {
		t.Error(err)
	}
	if v, err := c.Version(ctx); err != nil || v.GetRuntimeName() != "fake" {
		t.Errorf("%v %v", v, err)
	}
}

func TestStopOfWhatIsNotThereSucceeds(t *testing.T) {
	s, c, ctx := start(t)
	gone := status.Error(codes.NotFound, "gone")
	s.Inject("StopPodSandbox", fakecri.Fault{Times: 1, Err: gone})
	if err := c.StopContainer(ctx, "nope", 0); err != nil {
		t.Error(err)
	}
	if err := c.StopPodSandbox(ctx, "nope"); err != nil {
		t.Error(err)
	}
	s.Inject("StopPodSandbox", fakecri.Fault{Err: status.Error(codes.Unknown, "network")})
	err := c.StopPodSandbox(ctx, "nope")
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "stop sandbox nope") {
		t.Errorf("got %v", err)
	}
}

func TestReadySignalsEachConnection(t *testing.T) {
	s, c, ctx := start(t)
	watch, cancel := context.WithCancel(ctx)
	ready := c.Ready(watch)
	for round := range 3 {
		select {
		case <-ready:
		case <-ctx.Done():
			t.Fatalf("round %d: not ready", round)
		}
		s.Crash()
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range ready { // ends because it is closed
	}
}

func TestClientPassesBigMessages(t *testing.T) {
	s, c, ctx := start(t)
	s.Inject("Version", fakecri.Fault{Raw: [][]byte{append([]byte{0x0a, 0x80, 0x80, 0x80, 0x0a}, make([]byte, 20<<20)...)}})
	v, err := c.Version(ctx)
	if err != nil || len(v.GetVersion()) != 20<<20 {
		t.Errorf("%d bytes, %v", len(v.GetVersion()), err)
	}
}

func TestListContainerStats(t *testing.T) {
	s, c, ctx := start(t)
	raw, err := proto.Marshal(&runtimeapi.ListContainerStatsResponse{Stats: []*runtimeapi.ContainerStats{{Attributes: &runtimeapi.ContainerAttributes{Id: "c"}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Inject("ListContainerStats", fakecri.Fault{Times: 1, Raw: [][]byte{raw}})
	if list, err := c.ListContainerStats(ctx); err != nil || len(list) != 1 || list[0].GetAttributes().GetId() != "c" {
		t.Errorf("%v %v", list, err)
	}
	s.Inject("ListContainerStats", fakecri.Fault{Err: status.Error(codes.Unimplemented, "no")})
	if _, err := c.ListContainerStats(ctx); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}
