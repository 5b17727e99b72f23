// Package kubelet holds the tests on a real kubelet with a real API server: what
// is known of pods is what they say.
package kubelet

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const nodeName = "n1"

// cluster is an API server, and a client that may do everything.
type cluster struct {
	t     *testing.T
	dir   string
	plane *lab.ControlPlane
	admin *http.Client
}

// newCluster starts etcd and the API server in a folder of their own.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a real kubelet with real containers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // a cold cache builds them
	defer cancel()
	tools, err := lab.EnsureKubernetes(ctx, testWriter{t}, lab.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	dir, remove, err := lab.NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		remove()
		for _, l := range lab.Leftovers(dir) {
			t.Errorf("left behind: %s", l)
		}
	})
	plane, err := lab.StartControlPlane(ctx, lab.ControlPlaneOptions{Tools: tools, Dir: dir, Nodes: []string{nodeName}, Log: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{t: t, dir: dir, plane: plane}
	kubeconfig, err := plane.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if c.admin, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
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
	path, err := c.plane.NodeKubeconfig(nodeName)
	if err != nil {
		c.t.Fatal(err)
	}
	return path
}

// call sends a request as admin and decodes the answer.
func (c *cluster) call(method, path, contentType string, body, into any) {
	c.t.Helper()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		content = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.plane.URL+path, content)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.admin.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode/100 != 2 {
		c.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) create(path string, object any) {
	c.t.Helper()
	c.call(http.MethodPost, path, "application/json", object, nil)
}

// createPod creates the pod and returns it as the API server has it.
func (c *cluster) createPod(pod *v1.Pod) *v1.Pod {
	c.t.Helper()
	var got v1.Pod
	c.call(http.MethodPost, "/api/v1/namespaces/"+pod.Namespace+"/pods", "application/json", pod, &got)
	return &got
}

func (c *cluster) pods() []v1.Pod {
	c.t.Helper()
	var list v1.PodList
	c.call(http.MethodGet, "/api/v1/pods", "application/json", nil, &list)
	return list.Items
}

// node is a kubelet of this cluster on a containerd of its own.
type node struct {
	*cluster
	ctd     *lab.Containerd
	kubelet *lab.Kubelet
}

// newNode starts containerd 2.4 and a kubelet of this version.
func (c *cluster) newNode(version string) *node {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Minute) // as in newCluster
	defer cancel()
	tools, err := lab.EnsureRuntime(ctx, testWriter{c.t}, lab.Current)
	if err != nil {
		c.t.Fatal(err)
	}
	binary, err := lab.EnsureKubelet(ctx, testWriter{c.t}, version)
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{cluster: c}
	n.ctd, err = lab.StartContainerd(ctx, lab.ContainerdOptions{Tools: tools, Version: lab.Current, Dir: c.dir, Log: testWriter{c.t}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := n.ctd.Cleanup(); err != nil {
			c.t.Errorf("cleanup: %v", err)
		}
	})
	n.kubelet, err = lab.StartKubelet(ctx, lab.KubeletOptions{
		Binary: binary, Dir: c.dir, Runtime: n.ctd.Socket, Node: nodeName, Kubeconfig: c.nodeKubeconfig(), Log: testWriter{c.t},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := n.kubelet.Stop(); err != nil {
			c.t.Error(err)
		}
		if c.t.Failed() {
			n.showLog()
		}
	})
	return n
}

// showLog prints the end of kubelet's log.
func (n *node) showLog() {
	b, err := os.ReadFile(n.kubelet.LogFile)
	if err != nil {
		n.t.Log(err)
		return
	}
	lines := strings.Split(string(b), "\n")
	n.t.Logf("kubelet's log ends with\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
}

// list returns kubelet's own list of its pods, as JSON.
func (n *node) list() []byte {
	n.t.Helper()
	b, err := n.kubelet.Get(n.t.Context(), "/pods")
	if err != nil {
		n.t.Fatal(err)
	}
	return b
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

// eventually waits for a condition with a deadline that a loaded machine can
// hold.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, within)
}

// testWriter writes lines to the test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil { // after the end of the test Log panics
		w.t.Log(strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}

func logger(t *testing.T) logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(testWriter{t})
	return l
}
