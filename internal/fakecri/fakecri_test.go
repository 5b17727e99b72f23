package fakecri

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
)

func start(t *testing.T, opts Options) (*Server, *cri.Client, context.Context) {
	t.Helper()
	s, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return s, c, ctx
}

func TestLifeOfAPod(t *testing.T) {
	now := time.Unix(1000, 0)
	s, c, ctx := start(t, Options{Now: func() time.Time { return now }})
	rt := c.Runtime()
	req := &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Uid: "u", Namespace: "ns"}}}
	sb, err := rt.RunPodSandbox(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.RunPodSandbox(ctx, req); status.Code(err) != codes.AlreadyExists {
		t.Errorf("same attempt again: %v", err)
	}
	ct, err := rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: ct.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.GetPodSandboxId()}); err != nil {
		t.Fatal(err)
	}
	st, err := rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: ct.GetContainerId()})
	if err != nil || st.GetStatus().GetExitCode() != 137 || st.GetStatus().GetFinishedAt() != now.UnixNano() {
		t.Errorf("%v %v", st, err)
	}
	if _, err := rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId()}); err == nil {
		t.Error("container created in a stopped sandbox")
	}
	// Its state is that of the machine: it survives a crash.
	s.Crash()
	if _, err := rt.Version(ctx, &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("after the crash: %v", err)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	for list := []*runtimeapi.PodSandbox(nil); len(list) != 1; {
		if list, err = c.ListSandboxes(ctx); ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	s.Vanish(sb.GetPodSandboxId())
	if list, err := c.ListContainers(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

func TestFaultsAreUsedUpInOrder(t *testing.T) {
	s, c, ctx := start(t, Options{})
	s.Inject("Version", Fault{Times: 1, Err: status.Error(codes.NotFound, "first")})
	s.Inject("Version", Fault{Times: 2, Err: status.Error(codes.Aborted, "then")})
	for _, want := range []codes.Code{codes.NotFound, codes.Aborted, codes.Aborted, codes.OK} {
		if _, err := c.Runtime().Version(ctx, &runtimeapi.VersionRequest{}); status.Code(err) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if n := len(s.Calls("Version")); n != 4 {
		t.Errorf("%d calls recorded", n)
	}
}

func TestEventsAreStreamed(t *testing.T) {
	s, c, ctx := start(t, Options{})
	stream, err := c.Runtime().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Until(ctx, func() bool { return len(s.Calls("GetContainerEvents")) == 1 }); err != nil {
		t.Fatal(err)
	}
	sb, err := c.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{}}})
	if err != nil {
		t.Fatal(err)
	}
	// The stream is registered a moment after its call was recorded: create
	// until an event comes.
	got := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		got <- err
	}()
	for {
		if _, err := c.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId()}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-got:
			if err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return
		default:
		}
	}
}
