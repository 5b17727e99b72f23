package kubelet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
	"github.com/cri-evictd/cri-evictd/kube/apiwatch"
	"github.com/cri-evictd/cri-evictd/kube/podsapi"
)

// watching is a store that is fed by the API server, with the node's identity.
func (c *cluster) watching() (*kube.Store, *apiwatch.Watcher) {
	c.t.Helper()
	kubeconfig := c.nodeKubeconfig()
	var w *apiwatch.Watcher
	ready := make(chan struct{})
	s := source(c.t, func(ctx context.Context, s *kube.Store) {
		w = apiwatch.New(apiwatch.Options{
			Node: nodeName, Feed: s.Feed(inventory.FromAPI), Clock: time.Now, Log: logger(c.t),
			Connect: func() (apiwatch.Pods, error) { return apiwatch.Connect(kubeconfig, "cri-evictd-test") },
		})
		close(ready)
		w.Run(ctx)
	})
	<-ready
	return s, w
}

// asking is a store that is fed by kubelet's Pods API.
func (n *node) asking() *kube.Store {
	n.t.Helper()
	return source(n.t, func(ctx context.Context, s *kube.Store) {
		podsapi.New(n.kubelet.PodsAPISocket, s.Feed(inventory.FromPodsAPI), time.Now, logger(n.t)).Run(ctx)
	})
}

// compare waits until the store has each pod with kubelet's figures.
func compare(t *testing.T, what string, s *kube.Store, want map[string]figures, names map[string]string) {
	t.Helper()
	var wrong []string
	deadline := time.Now().Add(30 * time.Second)
	for {
		wrong = nil
		for uid, w := range want {
			f, ok := s.Pod(uid)
			got := figures{f.Request.Value, f.StorageRequest.Value, f.Priority.Value}
			if !ok || got != w || !f.Request.Exact || !f.Priority.Exact {
				wrong = append(wrong, fmt.Sprintf("%s (%s): %s: known %t, %+v, kubelet has %+v", names[uid], uid, what, ok, f, w))
			}
		}
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d of %d pods differ:\n%s", len(wrong), len(want), strings.Join(wrong, "\n"))
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestRequestsAndPrioritiesAreKubelets(t *testing.T) {
	n := newCluster(t).newNode()
	watched, _ := n.watching()
	withFile, _ := n.watching()
	n.following(withFile)
	asked := n.asking()

	pods := generate(nodeName, seed, 30)
	names, twins := map[string]string{}, map[string]*v1.Pod{}
	for _, pod := range pods {
		created := n.createPod(pod)
		names[string(created.UID)] = created.Name
		if big := twin(pod); big != nil {
			created = n.createPod(big)
			twins[created.Name] = created
		}
	}
	if len(twins) < 10 {
		t.Fatalf("%d of %d pods have a twin, want at least 10", len(twins), len(pods))
	}

	var kubelets map[string]figures
	eventually(t, "kubelet has taken up the pods", time.Minute, func() bool {
		kubelets = ofKubelet(t, n.list())
		for uid := range names {
			if _, ok := kubelets[uid]; !ok {
				return false
			}
		}
		return true
	})
	for uid := range kubelets {
		if _, ours := names[uid]; !ours {
			delete(kubelets, uid) // a twin
		}
	}
	compare(t, "watch", watched, kubelets, names)
	compare(t, "watch and file", withFile, kubelets, names)
	if servesPodsAPI() {
		compare(t, "Pods API", asked, kubelets, names)
	} else if states := asked.States(); !states[0].Absent {
		t.Errorf("kubelet %s without a Pods API: %+v, want it absent", kubeletVersion(), states)
	}
	n.compareTwins(twins)
}

// compareTwins compares with what kubelet itself says that a pod asks for, when
// it refuses it.
func (n *node) compareTwins(twins map[string]*v1.Pod) {
	n.t.Helper()
	refused := map[string]v1.Pod{}
	eventually(n.t, "kubelet refuses the twins", time.Minute, func() bool {
		for _, p := range n.pods() {
			if _, ours := twins[p.Name]; ours && p.Status.Phase == v1.PodFailed {
				refused[p.Name] = p
			}
		}
		return len(refused) == len(twins)
	})
	for name, created := range twins {
		p := refused[name]
		var requested int64
		_, said, _ := strings.Cut(p.Status.Message, "resource: memory, ")
		if _, err := fmt.Sscanf(said, "requested: %d,", &requested); err != nil {
			n.t.Errorf("%s: %q says no request: %v", name, p.Status.Message, err)
			continue
		}
		if r := kube.NewRecord(created, inventory.FromAPI, false); r.Memory != requested {
			n.t.Errorf("%s: we take %d bytes for its request, kubelet %d", name, r.Memory, requested)
		}
	}
}
