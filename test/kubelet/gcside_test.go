package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// gcSide is a node whose pods are followed: by what its runtime has, and by what
// the API server says.
type gcSide struct {
	*node
	name, suffix string
	client       *cri.Client
	// restarted is when kubelet was started again: it has forgotten its back-offs
	// then.
	restarted time.Time

	mu        sync.Mutex
	instances map[string]map[string]instance // by pod/container, and by ID
	fates     map[string]*fate               // by pod/container
}

// instance is a container that the runtime had.
type instance struct {
	attempt uint32
	created time.Time
}

// fate is what the API server said of a container.
type fate struct {
	restarts int32
	phase    v1.PodPhase // the pod's
	end      string      // how it ended last
}

// newGCSide starts a node of the cluster; the kubelet keeps five dead instances of
// each name, because with the one of its defaults little would be left to others.
func (c *cluster) newGCSide(name, suffix, dir string, front func(string) string) *gcSide {
	t := c.t
	t.Helper()
	s := &gcSide{name: name, suffix: suffix, instances: map[string]map[string]instance{}, fates: map[string]*fate{}}
	s.node = startNodeWith(t, dir, front, lab.KubeletOptions{
		Node: name, Kubeconfig: c.kubeconfigOf(name), Args: []string{"--maximum-dead-containers-per-container=5"},
	})
	s.cluster = c
	client, err := cri.Dial(cri.Endpoint{Path: s.ctd.Socket})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for tick := time.NewTicker(250 * time.Millisecond); ; {
			if err := s.record(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		_ = client.Close()
	})
	return s
}

// record takes what the runtime has now.
func (s *gcSide) record(ctx context.Context) error {
	containers, err := s.client.ListContainers(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range containers {
		unit := s.unit(c.GetLabels()["io.kubernetes.pod.name"], c.GetMetadata().GetName())
		if s.instances[unit] == nil {
			s.instances[unit] = map[string]instance{}
		}
		s.instances[unit][c.GetId()] = instance{c.GetMetadata().GetAttempt(), time.Unix(0, c.GetCreatedAt())}
	}
	return nil
}

// unit is how a container is called on both sides.
func (s *gcSide) unit(pod, container string) string {
	return strings.TrimSuffix(pod, s.suffix) + "/" + container
}

// observe takes what the API server says.
func (s *gcSide) observe(pods []v1.Pod) {
	for i := range pods {
		p := &pods[i]
		if !strings.HasSuffix(p.Name, s.suffix) {
			continue
		}
		for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			unit := s.unit(p.Name, st.Name)
			f := s.fates[unit]
			if f == nil {
				f = &fate{}
				s.fates[unit] = f
			}
			if over := f.phase == v1.PodSucceeded || f.phase == v1.PodFailed; over && p.Status.Phase != f.phase {
				s.t.Errorf("%s%s: phase %s after %s", unit, s.suffix, p.Status.Phase, f.phase)
			}
			if st.RestartCount < f.restarts {
				s.t.Errorf("%s%s: %d restarts after %d", unit, s.suffix, st.RestartCount, f.restarts)
			}
			f.restarts, f.phase, f.end = st.RestartCount, p.Status.Phase, ""
			if end := cmp.Or(st.State.Terminated, st.LastTerminationState.Terminated); end != nil {
				f.end = fmt.Sprintf("%s, code %d, %q", end.Reason, end.ExitCode, end.Message)
			}
		}
	}
}

// seen are the instances of one container, the oldest first.
func (s *gcSide) seen(unit string) []instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.instances[unit]), func(a, b instance) int { return a.created.Compare(b.created) })
}

// loseSandboxes stops the sandboxes of the pods that are there to lose them.
func (s *gcSide) loseSandboxes() {
	s.t.Helper()
	sandboxes, err := s.client.ListSandboxes(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, b := range sandboxes {
		if b.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || !strings.HasPrefix(b.GetMetadata().GetName(), gcLosesSandbox) {
			continue
		}
		if err := s.client.StopPodSandbox(s.t.Context(), b.GetId()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// restartKubelet ends it with SIGKILL and starts it again: it knows then what the
// records tell.
func (s *gcSide) restartKubelet() {
	s.t.Helper()
	if err := s.kubelet.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.restarted = time.Now()
	if err := s.kubelet.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// touch has kubelet look at all pods of this side again, by a changed annotation.
func (s *gcSide) touch(pods []v1.Pod, i int) {
	s.t.Helper()
	for _, p := range pods {
		if strings.HasSuffix(p.Name, s.suffix) && p.DeletionTimestamp == nil {
			s.call(http.MethodPatch, podPath(p.Name), map[string]any{"metadata": map[string]any{"annotations": map[string]string{"touched": fmt.Sprint(i)}}}, nil)
		}
	}
}

func podPath(name string) string { return "/api/v1/namespaces/default/pods/" + name }

// checkBackOff wants the instances of a container to have kubelet's distances: the
// first restart at once, then after 10 s, doubling (kubelet forgets at its own
// restart), and each attempt to be the next. Init containers that ran again in a new
// sandbox are none of that.
func (s *gcSide) checkBackOff(unit string) {
	s.t.Helper()
	if strings.HasPrefix(unit, gcLosesSandbox) {
		return
	}
	const first, slack = 10 * time.Second, 1500 * time.Millisecond
	wait := time.Duration(0)
	all := s.seen(unit)
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		gap := b.created.Sub(a.created)
		if b.attempt != a.attempt+1 {
			s.t.Errorf("%s%s: attempt %d follows attempt %d", unit, s.suffix, b.attempt, a.attempt)
		}
		if a.created.Before(s.restarted) && b.created.After(s.restarted) {
			wait = 0
		}
		if gap < wait-slack {
			s.t.Errorf("%s%s: attempt %d came %s after the one before, kubelet waits %s", unit, s.suffix, b.attempt, gap.Round(100*time.Millisecond), wait)
		}
		if wait *= 2; wait == 0 {
			wait = first
		}
	}
}

// behindProxy starts a proxy in front of the runtime until the test ends.
func behindProxy(t *testing.T, dir string) func(runtime string) string {
	return func(runtime string) string {
		t.Helper()
		socket := filepath.Join(dir, "cri.sock")
		p, err := proxy.New(proxy.Options{
			Listen: cri.Endpoint{Path: socket}, Upstream: cri.Endpoint{Path: runtime}, EventsSocket: filepath.Join(dir, "events.sock"),
			DrainTimeout: time.Second, Log: logger(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		over := make(chan error, 1)
		go func() { over <- p.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
		select {
		case <-p.Serving():
		case <-t.Context().Done():
		}
		return socket
	}
}
