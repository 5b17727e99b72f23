// Package tell holds the tests of telling Kubernetes on a real API server, with
// a node's identity: Node authorizer and NodeRestriction are on. There is no
// kubelet; test/kubelet has those with one.
package tell

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/internal/lab/labtest"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube/tell"
)

const (
	nodeName  = "n1"
	otherNode = "n2"
	patience  = time.Minute
)

// plane is an API server.
type plane struct {
	*lab.ControlPlane
	dir string
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a real API server")
	}
	dir := labtest.Scratch(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // a cold cache builds them
	defer cancel()
	tools, err := lab.EnsureKubernetes(ctx, testWriter{t}, lab.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{dir: dir}
	p.ControlPlane, err = lab.StartControlPlane(ctx, lab.ControlPlaneOptions{Tools: tools, Dir: dir, Nodes: []string{nodeName, otherNode}, Log: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *plane) adminKubeconfig(t *testing.T) string {
	t.Helper()
	path, err := p.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// nodeKubeconfig is the identity of a node, which kubelet and cri-evictd have.
func (p *plane) nodeKubeconfig(t *testing.T, node string) string {
	t.Helper()
	path, err := p.NodeKubeconfig(node)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// userKubeconfig is the identity of a user with these rights in RBAC and no
// other.
func (p *plane) userKubeconfig(t *testing.T, user string, rules ...map[string]any) string {
	t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	p.do(t, http.MethodPost, rbac+"clusterroles", map[string]any{"metadata": map[string]any{"name": user}, "rules": rules}, nil)
	p.do(t, http.MethodPost, rbac+"clusterrolebindings", map[string]any{
		"metadata": map[string]any{"name": user},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}, nil)
	text, err := os.ReadFile(p.adminKubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.dir, user+".kubeconfig")
	as := strings.Replace(string(text), "user: {token:", fmt.Sprintf("user: {as: %q, token:", user), 1)
	if err := os.WriteFile(path, []byte(as), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func rule(verbs, resources string) map[string]any {
	return map[string]any{"apiGroups": []string{""}, "verbs": strings.Fields(verbs), "resources": strings.Fields(resources)}
}

// do asks as the administrator and fails unless the answer is 2xx.
func (p *plane) do(t *testing.T, method, path string, body, into any) {
	t.Helper()
	if err := p.Do(t.Context(), method, path, body, into); err != nil {
		t.Fatal(err)
	}
}

const podsPath = "/api/v1/namespaces/default/pods"

// run makes a pod that runs on the node, as far as the API server knows.
func (p *plane) run(t *testing.T, node, name string) *v1.Pod {
	t.Helper()
	no := false
	pod := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{NodeName: node, AutomountServiceAccountToken: &no, Containers: []v1.Container{{Name: "main", Image: "none"}}},
	}
	var made v1.Pod
	p.do(t, http.MethodPost, podsPath, pod, &made)
	p.running(t, name)
	return &made
}

// running sets the phase as kubelet's status manager does.
func (p *plane) running(t *testing.T, name string) {
	t.Helper()
	p.do(t, http.MethodPatch, podsPath+"/"+name+"/status", map[string]any{"status": map[string]any{"phase": "Running", "reason": nil, "message": nil}}, nil)
}

func (p *plane) pod(t *testing.T, name string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	p.do(t, http.MethodGet, podsPath+"/"+name, nil, pod)
	return pod
}

// eventsAbout are the events on an object.
func (p *plane) eventsAbout(t *testing.T, kind, name string) []v1.Event {
	t.Helper()
	list := &v1.EventList{}
	p.do(t, http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind="+kind+",involvedObject.name="+name, nil, list)
	return list.Items
}

// process is a teller as one process of ours has it.
type process struct {
	*tell.Teller
	stop func()
}

// start runs a teller with the ledger in this folder.
func start(t *testing.T, kubeconfig, mode, dir string) *process {
	t.Helper()
	log := logrus.New()
	log.SetOutput(testWriter{t})
	ledger, err := holds.OpenLedger(filepath.Join(dir, "ledger.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Teller: tell.New(tell.Options{
		Mode: mode, Node: nodeName, BootID: "boot", Clock: time.Now, Log: log, Queue: ledger,
		Connect: func() (tell.API, error) { return tell.Connect(kubeconfig, "test") },
	})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		if err := ledger.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(p.stop)
	return p
}

// evicted is a notice about the pod.
func evicted(id uint64, pod *v1.Pod) eviction.Notice {
	return eviction.Notice{
		ID: id, Pod: inventory.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}, Time: time.Now().UTC(),
		Signal: eviction.MemoryAvailable, Threshold: 500 << 20, Available: 400 << 20, Usage: 900 << 20, UsageKnown: true,
	}
}

// outcomes are the ends of tellings, by way and outcome.
func (p *process) outcomes() map[string]uint64 {
	out := map[string]uint64{}
	for _, n := range p.State().Told {
		if n.Count > 0 {
			out[n.Way+" "+n.Outcome] = n.Count
		}
	}
	return out
}

// until waits for something, which is said when it does not come.
func (p *process) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %+v", what, patience, p.State())
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}
