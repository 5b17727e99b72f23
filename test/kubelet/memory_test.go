package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/inventory"
)

const (
	manyPods    = 500
	memoryBound = 48 * mi
)

// ordinary is a pod as a Deployment makes them: what is heavy of it is what a
// watcher has to throw away.
func ordinary(i int) *v1.Pod {
	pod := bare(nodeName, fmt.Sprintf("web-7f6d9c5b8-%05d", i))
	pod.Labels = map[string]string{"app": "web", "pod-template-hash": "7f6d9c5b8", "team": "shop"}
	pod.Annotations = map[string]string{"prometheus.io/scrape": "true", "note": strings.Repeat("x", 1024)}
	for _, name := range []string{"web", "proxy", "logs"} {
		c := pause(name)
		c.Resources.Requests = amounts(int64(16+i)*mi/16, 1, 0)
		for e := range 20 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: strings.Repeat("v", 40)})
		}
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/bin/true"}}}}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// runAll gives the runtime a sandbox and the containers of each pod.
func runAll(t *testing.T, endpoint cri.Endpoint, pods []*v1.Pod) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+endpoint.Path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	rt := runtimeapi.NewRuntimeServiceClient(conn)
	for _, pod := range pods {
		spec := lab.PodSpec{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), CgroupParent: lab.QoSParent("Burstable", string(pod.UID)), Labels: pod.Labels, Annotations: pod.Annotations}
		for _, c := range pod.Spec.Containers {
			spec.Containers = append(spec.Containers, lab.ContainerSpec{Name: c.Name, OOMScoreAdj: 999})
		}
		if _, err := lab.RunPod(t.Context(), rt, spec); err != nil {
			t.Fatal(err)
		}
	}
}

// anon returns RssAnon of a process in bytes.
func anon(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // read only
	for s := bufio.NewScanner(f); s.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(s.Text(), "RssAnon: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("no RssAnon")
}

// TestMemoryWith500Pods is the figure of docs/performance.md: the evictor beside
// a runtime with 500 pods of three containers and the watch of all of them, over
// a restart of the API server, after which everything is listed anew.
func TestMemoryWith500Pods(t *testing.T) {
	c := newCluster(t)
	pods := make([]*v1.Pod, manyPods)
	for i := range pods {
		pods[i] = c.createPod(ordinary(i))
	}
	runtime, err := fakecri.Start(fakecri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Close)
	runAll(t, runtime.Endpoint(), pods)

	client, pid := c.evict(runtime.Endpoint().Path, filepath.Join(c.dir, "kubelet"))

	// The largest value of any moment counts.
	peak := make(chan int64)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		var most int64
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if now, err := anon(pid); err == nil {
				most = max(most, now)
			}
			select {
			case <-ctx.Done():
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	complete := func() bool {
		x, err := client.Explain(t.Context(), "")
		return err == nil && manyPods == count(x.Candidates, func(p eviction.CandidateReport) bool {
			return p.Request.Exact && p.Request.Source == inventory.FromAPI
		})
	}
	eventually(t, "every pod's request is known exactly", 2*time.Minute, complete)
	if err := c.plane.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	if err := c.plane.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "following again", 2*time.Minute, func() bool {
		s, err := client.Status(t.Context())
		return err == nil && count(s.Engine.Sources, func(s eviction.SourceNow) bool {
			return s.Name == string(inventory.FromAPI) && s.OK && s.At.After(back)
		}) == 1
	})
	settled, err := anon(pid)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	most := <-peak
	t.Logf("RssAnon with %d pods: %.1f MiB at the end, at most %.1f MiB (bound: %d MiB)", manyPods, float64(settled)/mi, float64(most)/mi, memoryBound/mi)
	if most > memoryBound {
		t.Errorf("RssAnon was %.1f MiB, want at most %d MiB", float64(most)/mi, memoryBound/mi)
	}
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, x := range all {
		if is(x) {
			n++
		}
	}
	return n
}
