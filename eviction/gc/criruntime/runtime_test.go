package criruntime

import (
	"errors"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func TestSandboxImages(t *testing.T) {
	for _, c := range []struct {
		config string
		want   string
		err    bool
	}{
		{`{"sandboxImage":"registry.local/pause:3.5","other":1}`, "registry.local/pause:3.5", false},
		{`{"pinned_images":{"sandbox":"registry.local/pause:3.10","b":"x:1"}}`, "registry.local/pause:3.10 x:1", false},
		{`{"PauseImage":"registry.local/pause:4"}`, "registry.local/pause:4", false},
		{`[crio.image]`, "", false},
		{``, "", false},
		{`{"sandboxImage":`, "", true},
	} {
		got, err := sandboxImages(map[string]string{"config": c.config})
		slices.Sort(got)
		if strings.Join(got, " ") != c.want || (err != nil) != c.err {
			t.Errorf("%s: %q, %v", c.config, got, err)
		}
	}
}

// What a runtime lists, says and removes, as garbage collection sees it.
func TestRuntime(t *testing.T) {
	s, err := fakecri.Start(fakecri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, r := t.Context(), Runtime{c}
	s.AddImage("registry.example/app:1", 10, true)
	sandbox, err := c.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "ns", Name: "n", Uid: "u", Attempt: 3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	created, err := c.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 4}, Image: &runtimeapi.ImageSpec{Image: "registry.example/app:1", UserSpecifiedImage: "app"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.List(ctx)
	if err != nil || len(l.Sandboxes) != 1 || len(l.Containers) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	if b := l.Sandboxes[0]; b.ID != sandbox.GetPodSandboxId() || b.Pod.UID != "u" || b.Pod.String() != "ns/n" || b.Attempt != 3 || !b.Ready || b.Created.IsZero() {
		t.Errorf("%+v", b)
	}
	x := l.Containers[0]
	if x.ID != created.GetContainerId() || x.SandboxID != sandbox.GetPodSandboxId() || x.Name != "main" || x.Attempt != 4 || x.State != gc.Created ||
		x.Created.IsZero() || !slices.Contains(x.Images, "registry.example/app:1") || !slices.Contains(x.Images, "app") {
		t.Errorf("%+v", x)
	}
	images, err := r.Images(ctx)
	if err != nil || len(images) != 1 || !images[0].Pinned || images[0].Size != 10 || images[0].Names[0] != "registry.example/app:1" {
		t.Fatalf("%+v, %v", images, err)
	}
	if id, err := r.ResolveImage(ctx, "registry.example/app:1"); err != nil || id != images[0].ID {
		t.Errorf("%q, %v", id, err)
	}
	if id, err := r.ResolveImage(ctx, "nobody:1"); err != nil || id != "" {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := r.SandboxImage(ctx, "nobody"); !errors.Is(err, gc.ErrNoSuch) {
		t.Errorf("an unknown sandbox: %v", err)
	}
	if _, err := r.MountedImages(ctx, "nobody"); !errors.Is(err, gc.ErrNoSuch) {
		t.Errorf("an unknown container: %v", err)
	}
	if names, err := r.MountedImages(ctx, x.ID); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	for state, want := range map[runtimeapi.ContainerState]gc.ContainerState{
		runtimeapi.ContainerState_CONTAINER_CREATED: gc.Created, runtimeapi.ContainerState_CONTAINER_RUNNING: gc.Running,
		runtimeapi.ContainerState_CONTAINER_EXITED: gc.Exited, runtimeapi.ContainerState_CONTAINER_UNKNOWN: gc.Unknown, 99: gc.Unknown,
	} {
		if got := stateOf(state); got != want {
			t.Errorf("%s: %s", state, got)
		}
	}
	for _, remove := range []func() error{
		func() error { return r.RemoveContainer(ctx, x.ID) }, func() error { return r.RemoveSandbox(ctx, sandbox.GetPodSandboxId()) },
		func() error { return r.RemoveImage(ctx, images[0].ID) },
	} {
		for range 2 { // what is not there is removed
			if err := remove(); err != nil {
				t.Error(err)
			}
		}
	}
	l, err = r.List(ctx)
	images, imagesErr := r.Images(ctx)
	if err != nil || imagesErr != nil || len(l.Sandboxes)+len(l.Containers)+len(images) != 0 {
		t.Errorf("left: %+v %+v, %v %v", l, images, err, imagesErr)
	}
}
