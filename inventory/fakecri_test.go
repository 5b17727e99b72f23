package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// everyName is a Tree in which each container's cgroup is found by its name.
type everyName struct{}

func (everyName) Pods() ([]cgroupfs.PodPath, error) { return nil, nil }

func (everyName) Recover(_ string, c Container) (Recovered, bool) {
	return Recovered{ContainerID: c.ID, OOMScoreAdj: 1000}, true
}

func (everyName) Container(_, id string) (string, bool) { return "/" + id, true }

func (everyName) CgroupOf(int) (string, error) { return "", errors.New("not asked for") }

func fake(t *testing.T) (*fakecri.Server, *cri.Client) {
	t.Helper()
	server, err := fakecri.Start(fakecri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client, err := cri.Dial(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return server, client
}

func runPod(t *testing.T, client *cri.Client, uid string, containers int) (sandbox string) {
	t.Helper()
	rt := client.Runtime()
	sb, err := rt.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "p-" + uid, Uid: uid, Attempt: 3},
		Labels:   map[string]string{"app": uid}, Annotations: map[string]string{configSourceAnnotation: "file"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range containers {
		c, err := rt.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprint("c", i)}, Image: &runtimeapi.ImageSpec{Image: "docker.io/x"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
			t.Fatal(err)
		}
	}
	return sb.GetPodSandboxId()
}

// follow runs a Syncer on the client, as the daemon does.
func follow(t *testing.T, client *cri.Client) (*Syncer, *Store) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	store := NewStore(Options{MemTotal: 1 << 30})
	s := NewSyncer(store, CRIRuntime{Lister: client}, everyName{}, time.Now, log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	marked := make(chan struct{})
	go func() {
		defer close(marked)
		for range client.Ready(ctx) {
			s.MarkDirty()
		}
	}()
	t.Cleanup(func() { cancel(); <-done; <-marked })
	return s, store
}

// until waits for a condition that changes of the inventory bring about.
func until(t *testing.T, s *Syncer, what string, cond func() bool) {
	t.Helper()
	end := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-s.Changed():
		case <-end:
			t.Fatal("not within 30 s: " + what)
		}
	}
}

// countingTree tells when it was walked for the third time: then the search for
// cgroups that follows a walk was done at least once with the lists read.
type countingTree struct {
	everyName
	walks atomic.Int32
	third chan struct{}
}

func (c *countingTree) Pods() ([]cgroupfs.PodPath, error) {
	if c.walks.Add(1) == 3 {
		close(c.third)
	}
	return nil, nil
}

// bugs.md B82: 2,000 sandboxes, one list of each kind, no call per container.
func TestTwoThousandSandboxes(t *testing.T) {
	const pods = 2000
	server, client := fake(t)
	sandboxes, containers := &runtimeapi.ListPodSandboxResponse{}, &runtimeapi.ListContainersResponse{}
	for i := range pods {
		id := fmt.Sprint(i)
		sandboxes.Items = append(sandboxes.Items, &runtimeapi.PodSandbox{Id: "s" + id, Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "p" + id, Uid: "u" + id}})
		containers.Containers = append(containers.Containers, &runtimeapi.Container{Id: "c" + id, PodSandboxId: "s" + id, State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	}
	for method, m := range map[string]proto.Message{"ListPodSandbox": sandboxes, "ListContainers": containers} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		server.Inject(method, fakecri.Fault{Raw: [][]byte{b}})
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	store := NewStore(Options{MemTotal: 1 << 30})
	tree := &countingTree{third: make(chan struct{})}
	s := NewSyncer(store, CRIRuntime{Lister: client}, tree, time.Now, log)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	begun := time.Now()
	until(t, s, "the inventory is full", func() bool { return len(store.Snapshot().Pods) == pods })
	t.Logf("filled in %s", time.Since(begun))
	select {
	case <-tree.third:
	case <-time.After(30 * time.Second):
		t.Fatal("the tree is not walked")
	}
	cancel()
	<-done
	for method, want := range map[string]int{"ListPodSandbox": 1, "ListContainers": 1, "ContainerStatus": 0, "PodSandboxStatus": 0} {
		if n := len(server.Calls(method)); n != want {
			t.Errorf("%d calls of %s, want %d", n, method, want)
		}
	}
	for _, p := range store.Snapshot().Pods {
		if len(p.Containers) != 1 || p.Containers[0].OOMScoreAdj == nil {
			t.Fatalf("%+v", p)
		}
	}
}

func TestListOverTheSocket(t *testing.T) {
	_, client := fake(t)
	id := runPod(t, client, "u1", 2)
	s, store := follow(t, client)
	until(t, s, "the pod is known", func() bool { _, ok := store.Snapshot().Pod("u1"); return ok })
	p, _ := store.Snapshot().Pod("u1")
	if p.Ref != (Ref{"default", "p-u1", "u1"}) || p.Labels["app"] != "u1" || !p.Static() || len(p.Sandboxes) != 1 || p.Sandboxes[0].ID != id ||
		p.Sandboxes[0].Attempt != 3 || !p.Sandboxes[0].Ready || p.Sandboxes[0].Created.IsZero() || len(p.Containers) != 2 {
		t.Errorf("%+v", p)
	}
	if c := p.Containers[0]; c.Name != "c0" || c.Image != "docker.io/x" || !c.Running || c.SandboxID != id {
		t.Errorf("%+v", c)
	}
}

// The runtime dies, changes while it is down and comes back: the inventory
// equals a fresh list.
func TestReconnect(t *testing.T) {
	server, client := fake(t)
	gone := runPod(t, client, "gone", 1)
	stays := runPod(t, client, "stays", 1)
	s, store := follow(t, client)
	until(t, s, "both pods are known", func() bool { return len(store.Snapshot().Pods) == 2 })
	server.Crash()
	server.Vanish(gone)
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	until(t, s, "the pod that went away is forgotten", func() bool { return len(store.Snapshot().Pods) == 1 })
	if p, ok := store.Snapshot().Pod("stays"); !ok || p.Sandboxes[0].ID != stays {
		t.Error("the other one was lost")
	}
}

// bugs.md B89: the first list fails.
func TestFirstListFails(t *testing.T) {
	server, client := fake(t)
	runPod(t, client, "u1", 1)
	server.Inject("ListPodSandbox", fakecri.Fault{Times: 3, Err: status.Error(codes.Internal, "recovery failed")})
	s, store := follow(t, client)
	until(t, s, "the pod is known", func() bool { return len(store.Snapshot().Pods) == 1 })
	if n := len(server.Calls("ListPodSandbox")); n < 4 {
		t.Errorf("%d lists", n)
	}
	until(t, s, "the state is good", func() bool { st := s.State(); return st.Listed && st.ListError == "" })
}

func TestSecondListFails(t *testing.T) {
	server, client := fake(t)
	server.Inject("ListContainers", fakecri.Fault{Err: status.Error(codes.Internal, "no")})
	if _, err := (CRIRuntime{Lister: client}).List(t.Context()); status.Code(err) != codes.Internal {
		t.Errorf("half a list was taken for a whole one: %v", err)
	}
}

func TestPID(t *testing.T) {
	server, client := fake(t)
	rt := CRIRuntime{Lister: client}
	for _, tt := range []struct {
		name string
		info map[string]string
		want int
		fail bool
	}{
		{"containerd's", map[string]string{"info": `{"sandboxID":"x","pid":4711,"config":{"pid":1}}`}, 4711, false},
		{"ended", map[string]string{"info": `{"pid":0}`}, 0, false},
		{"without pid", map[string]string{"info": `{}`}, 0, false},
		{"not JSON", map[string]string{"info": `pid=1`}, 0, true},
		{"a word", map[string]string{"info": `{"pid":"1"}`}, 0, true},
		{"none", nil, 0, true},
	} {
		server.Inject("ContainerStatus", fakecri.Fault{Times: 1, Handle: func(_ []byte, ss grpc.ServerStream) error {
			return ss.SendMsg(&runtimeapi.ContainerStatusResponse{Info: tt.info})
		}})
		if got, err := rt.PID(t.Context(), "c1"); got != tt.want || (err != nil) != tt.fail {
			t.Errorf("%s: %d, %v", tt.name, got, err)
		}
	}
	var req runtimeapi.ContainerStatusRequest
	if err := server.Calls("ContainerStatus")[0].Decode(&req); err != nil || !req.GetVerbose() || req.GetContainerId() != "c1" {
		t.Errorf("asked %v %v", &req, err)
	}
	if _, err := rt.PID(t.Context(), "c1"); status.Code(err) != codes.NotFound {
		t.Errorf("unknown container: %v", err)
	}
}
