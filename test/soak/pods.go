package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// callTimeout bounds one pod's whole start or end.
const callTimeout = 20 * time.Second

// tally counts what happened, by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func newTally() *tally { return &tally{n: map[string]int{}} }

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n[what]++
}

func (t *tally) of(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n[what]
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, k := range slices.Sorted(maps.Keys(t.n)) {
		out = append(out, fmt.Sprintf("%s %d", k, t.n[k]))
	}
	return strings.Join(out, ", ")
}

func spec(name, qos string) lab.PodSpec {
	uid := lab.NewUID()
	return lab.PodSpec{
		Namespace: "soak", Name: name, UID: uid, CgroupParent: lab.QoSParent(qos, uid),
		Containers: []lab.ContainerSpec{{Name: "main", Args: []string{"pause"}, OOMScoreAdj: 1000}},
	}
}

// churn creates and deletes pods through the proxy until ctx ends. Errors are
// expected while something is down; what they leave is for sweep.
func (s *soak) churn(ctx context.Context, worker int) {
	qos := []string{"BestEffort", "Burstable", "Guaranteed"}
	for i := 0; ctx.Err() == nil; i++ {
		p := spec(fmt.Sprintf("w%d-%d", worker, i), qos[i%len(qos)])
		if err := s.live(ctx, p); err != nil {
			s.counts.add("failed with " + status.Code(err).String())
			// As kubelet's workers do: not again at once.
			_ = sleep(ctx, 50*time.Millisecond) // ctx is looked at above
			continue
		}
		s.counts.add("pods")
		removeCgroup(p.CgroupParent)
	}
}

// live is a pod's whole life.
func (s *soak) live(ctx context.Context, p lab.PodSpec) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := lab.RunPod(ctx, s.through, p)
	if err != nil {
		return err
	}
	for _, id := range r.ContainerIDs {
		if _, err := s.through.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}); err != nil {
			return err
		}
	}
	return lab.RemovePod(ctx, s.through, r.SandboxID)
}

// removeCgroup does what kubelet does when a pod has ended.
func removeCgroup(parent string) {
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, err := filepath.Glob(pattern + parent)
		if err != nil {
			continue // only for a malformed pattern
		}
		for _, d := range dirs {
			_ = os.Remove(d) // what is left goes in the lab's Cleanup
		}
	}
}

// sweep removes, as kubelet's garbage collection would, every sandbox of a pod
// that is not in keep.
func (s *soak) sweep(ctx context.Context, keep map[string]lab.Running) error {
	return await(ctx, "all other pods removed", func(ctx context.Context) error {
		list, err := s.through.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		for _, b := range list.GetItems() {
			if _, kept := keep[b.GetMetadata().GetUid()]; kept {
				continue
			}
			if err := lab.RemovePod(ctx, s.through, b.GetId()); err != nil {
				return err
			}
		}
		return nil
	})
}
