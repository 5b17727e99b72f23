package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
	"github.com/cri-evictd/cri-evictd/kube/apiwatch"
)

func TestWatchOverAnAbsence(t *testing.T) {
	c := newCluster(t)
	s, w := c.watching()
	first := c.createPod(small("first", 10*mi))
	eventually(t, "the pod is known", 30*time.Second, func() bool { return request(s, first) == 10*mi })
	if err := c.plane.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the absence is known", 30*time.Second, func() bool { return !w.Status().Connected && w.Status().Problem != "" })
	if got := request(s, first); got != 10*mi {
		t.Errorf("request %d while the API server is away, want what was known", got)
	}
	if err := c.plane.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := c.createPod(small("second", 20*mi))
	eventually(t, "following again", time.Minute, func() bool { return w.Status().Connected && request(s, second) == 20*mi })
	c.call(http.MethodDelete, "/api/v1/namespaces/default/pods/first?gracePeriodSeconds=0", nil, nil)
	eventually(t, "the deleted pod is forgotten", 30*time.Second, func() bool { return request(s, first) == -1 })
}

// The node's identity sees its own pods and nobody else's.
func TestWatchOfAnotherNodeIsRefused(t *testing.T) {
	c := newCluster(t)
	kubeconfig := c.nodeKubeconfig()
	w := apiwatch.New(apiwatch.Options{
		Node: "n2", Feed: kube.NewStore(time.Now).Feed(inventory.FromAPI), Clock: time.Now, Log: logger(t),
		Connect: func() (apiwatch.Pods, error) { return apiwatch.Connect(kubeconfig, "cri-evictd-test") },
	})
	source(t, func(ctx context.Context, _ *kube.Store) { w.Run(ctx) })
	eventually(t, "refused", 30*time.Second, func() bool { return strings.Contains(w.Status().Problem, "forbidden") })
}

// While a resize cannot be done kubelet ranks by what it has allocated, not by
// what the spec asks for.
func TestRequestOfADeferredResize(t *testing.T) {
	n := newCluster(t).newNode()
	watched, _ := n.watching()
	withFile, _ := n.watching()
	reader := n.following(withFile)
	// Two pods of six tenths of the node do not fit, one does.
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		t.Fatal(err)
	}
	large := int64(machine.Totalram) / 10 * 6
	n.createPod(small("other", large))
	pod := n.createPod(small("grows", 10*mi))
	for what, s := range map[string]*kube.Store{"watch": watched, "watch and file": withFile} {
		eventually(t, what+": the pod is known", time.Minute, func() bool { return request(s, pod) == 10*mi })
	}
	eventually(t, "kubelet's file has the pods", time.Minute, func() bool { return reader.Status().Pods == 2 })
	patch := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "main", "resources": map[string]any{"requests": map[string]any{"memory": fmt.Sprint(large)}},
	}}}}
	n.call(http.MethodPatch, "/api/v1/namespaces/default/pods/grows/resize", patch, nil)
	eventually(t, "kubelet defers the resize", time.Minute, func() bool {
		for _, p := range n.pods() {
			for _, cond := range p.Status.Conditions {
				if p.Name == pod.Name && cond.Type == v1.PodResizePending {
					return p.Spec.Containers[0].Resources.Requests.Memory().Value() == large
				}
			}
		}
		return false
	})
	eventually(t, "watch: the request is that of the status", 30*time.Second, func() bool {
		f, _ := watched.Pod(string(pod.UID))
		return f.Request.Value == 10*mi || !f.Request.Exact
	})
	f, _ := withFile.Pod(string(pod.UID))
	if f.Request.Value != 10*mi || !f.Request.Exact || f.Request.Source != inventory.FromAllocation {
		t.Errorf("request %+v, want the 10 MiB that kubelet's file has", f.Request)
	}
}
