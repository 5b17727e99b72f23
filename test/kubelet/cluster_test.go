package kubelet

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"os/exec"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// cluster is an API server.
type cluster struct {
	t     *testing.T
	dir   string
	plane *lab.ControlPlane
}

// newCluster starts etcd and the API server in a folder of their own, with
// identities for these nodes besides nodeName.
func newCluster(t *testing.T, others ...string) *cluster {
	t.Helper()
	dir := scratch(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // a cold cache builds them
	defer cancel()
	tools, err := lab.EnsureKubernetes(ctx, testWriter{t}, lab.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	plane, err := lab.StartControlPlane(ctx, lab.ControlPlaneOptions{Tools: tools, Dir: dir, Nodes: append(others, nodeName), Log: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{t: t, dir: dir, plane: plane}
	for name, value := range priorities {
		c.create("/apis/scheduling.k8s.io/v1/priorityclasses", &schedulingv1.PriorityClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
		})
	}
	for name := range overheads {
		c.create("/apis/node.k8s.io/v1/runtimeclasses", runtimeClass(name))
	}
	return c
}

// nodeKubeconfig is the identity of the node, which kubelet and cri-evictd have.
func (c *cluster) nodeKubeconfig() string {
	c.t.Helper()
	return c.kubeconfigOf(nodeName)
}

func (c *cluster) kubeconfigOf(node string) string {
	c.t.Helper()
	path, err := c.plane.NodeKubeconfig(node)
	if err != nil {
		c.t.Fatal(err)
	}
	return path
}

// call asks as the administrator.
func (c *cluster) call(method, path string, body, into any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if err := c.plane.Do(ctx, method, path, body, into); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) create(path string, object any) {
	c.t.Helper()
	c.call(http.MethodPost, path, object, nil)
}

// createPod creates the pod and returns it as the API server has it.
func (c *cluster) createPod(pod *v1.Pod) *v1.Pod {
	c.t.Helper()
	var got v1.Pod
	c.call(http.MethodPost, "/api/v1/namespaces/"+pod.Namespace+"/pods", pod, &got)
	return &got
}

func (c *cluster) pods() []v1.Pod {
	c.t.Helper()
	var list v1.PodList
	c.call(http.MethodGet, "/api/v1/pods", nil, &list)
	return list.Items
}

// newNode starts a kubelet of this cluster.
func (c *cluster) newNode() *node {
	c.t.Helper()
	n := startNode(c.t, c.dir, c.nodeKubeconfig())
	n.cluster = c
	return n
}

//go:embed testdata/requests.go
var requestsSource string

// figures are what kubelet's eviction ranks by.
type figures struct {
	Memory, EphemeralStorage int64
	Priority                 int32
}

// ofKubelet asks kubelet's own code for the figures of the pods in a PodList, by
// UID.
func ofKubelet(t *testing.T, list []byte) map[string]figures {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	program, err := lab.KubernetesProgram(ctx, testWriter{t}, lab.Kubernetes, "requests", requestsSource)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(list), testWriter{t}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]figures
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}
