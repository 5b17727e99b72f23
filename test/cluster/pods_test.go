package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const podsPath = "/api/v1/namespaces/default/pods"

// mebi writes bytes for the workload.
func mebi(n int64) string { return fmt.Sprintf("%dMi", n/mi) }

// workload is a container that runs the workload.
func workload(name string, args ...string) v1.Container {
	return v1.Container{Name: name, Image: lab.WorkloadImage, ImagePullPolicy: v1.PullNever, Args: args}
}

// podOf is a pod that a node without a network runs.
func podOf(name string, restart v1.RestartPolicy, containers ...v1.Container) *v1.Pod {
	no, grace := false, int64(1)
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{
			NodeName: nodeName, HostNetwork: true, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			TerminationGracePeriodSeconds: &grace, Tolerations: []v1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: v1.TolerationOpExists}},
			RestartPolicy: restart, Containers: containers,
		},
	}
}

func amount(bytes int64) resource.Quantity { return *resource.NewQuantity(bytes, resource.BinarySI) }

// asking gives a container a request for memory.
func asking(c v1.Container, bytes int64) v1.Container {
	c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: amount(bytes), v1.ResourceCPU: resource.MustParse("1m")}
	return c
}

// guaranteed gives a container a limit that is its request as well.
func guaranteed(c v1.Container, bytes int64) v1.Container {
	c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: amount(bytes), v1.ResourceCPU: resource.MustParse("100m")}
	c.Resources.Requests = c.Resources.Limits.DeepCopy()
	return c
}

// allocating takes this much memory at a rate per second, and ends with 0 at
// SIGTERM.
func allocating(bytes, rate int64) v1.Container {
	return asking(workload("main", "alloc", "--total", mebi(bytes), "--rate", mebi(rate)), 64*mi)
}

// hog crosses the pods' margin by itself.
func hog(name string, restart v1.RestartPolicy) *v1.Pod {
	return podOf(name, restart, allocating(hogSize, 1000*mi))
}

// bigHog crosses the machine's.
func bigHog(name string, restart v1.RestartPolicy) *v1.Pod {
	return podOf(name, restart, allocating(bigHogSize, 1000*mi))
}

// slowHog leaves a few seconds before it crosses the pods' margin.
func slowHog(name string) *v1.Pod {
	return podOf(name, v1.RestartPolicyAlways, allocating(hogSize, 200*mi))
}

// smallHog crosses it beside a ballast only.
func smallHog(name string) *v1.Pod {
	return podOf(name, v1.RestartPolicyAlways, allocating(smallHogSize, 500*mi))
}

// ballast fills memory inside its request.
func ballast(name string, bytes int64) *v1.Pod {
	c := workload("main", "alloc", "--total", mebi(bytes), "--rate", "1000Mi")
	return podOf(name, v1.RestartPolicyAlways, asking(c, 2*bytes))
}

// neighbour is well-behaved.
func neighbour(name string) *v1.Pod {
	return podOf(name, v1.RestartPolicyAlways, guaranteed(workload("main", "beat"), 128*mi))
}

// call asks the API server as the administrator.
func (s *stage) call(method, path string, body, into any) {
	s.t.Helper()
	if err := s.plane.Do(s.t.Context(), method, path, body, into); err != nil {
		s.t.Fatal(err)
	}
}

// create creates the pod and returns it as the API server has it.
func (s *stage) create(pod *v1.Pod) *v1.Pod {
	s.t.Helper()
	var made v1.Pod
	s.call(http.MethodPost, podsPath, pod, &made)
	if s.made != nil {
		*s.made = append(*s.made, &made)
	}
	return &made
}

// delete asks for the pod's end.
func (s *stage) delete(pod *v1.Pod) {
	s.t.Helper()
	s.call(http.MethodDelete, podsPath+"/"+pod.Name+"?gracePeriodSeconds=1", nil, nil)
}

// remove deletes the pod and waits until it has gone; also from a cleanup, when the
// test's context has ended.
func (s *stage) remove(pod *v1.Pod) {
	s.t.Helper()
	var last error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		ctx, cancel := patience()
		if len(pod.Finalizers) > 0 {
			// When this fails the deletion does not end, and is tried again.
			_ = s.plane.Do(ctx, http.MethodPatch, podsPath+"/"+pod.Name, map[string]any{"metadata": map[string]any{"finalizers": nil}}, nil)
		}
		last = s.plane.Do(ctx, http.MethodDelete, podsPath+"/"+pod.Name+"?gracePeriodSeconds=1", nil, nil)
		cancel()
		if last != nil && strings.Contains(last.Error(), "404") {
			return
		}
	}
	s.t.Errorf("pod %s did not go within a minute: %v", pod.Name, last)
}

// awaitRunning returns when kubelet says that the pod runs.
func (s *stage) awaitRunning(pod *v1.Pod) {
	s.t.Helper()
	eventually(s.t, pod.Name+" runs", time.Minute, func() error {
		last, ok := s.pods.last(pod.UID)
		if !ok || last.Status.Phase != v1.PodRunning {
			return fmt.Errorf("known %t, %s", ok, jsonText(last.Status))
		}
		for _, c := range last.Status.ContainerStatuses {
			if c.State.Running == nil {
				return fmt.Errorf("container %s: %s", c.Name, jsonText(c.State))
			}
		}
		return nil
	})
}

// manifest puts a static pod into kubelet's folder.
func (s *stage) manifest(pod *v1.Pod) (path string) {
	s.t.Helper()
	pod = pod.DeepCopy()
	pod.Spec.NodeName = ""
	b, err := json.Marshal(pod)
	if err != nil {
		s.t.Fatal(err)
	}
	path = s.kubelet.StaticPods + "/" + pod.Name + ".json"
	s.write(path, b)
	return path
}

func jsonText(v any) string {
	b, _ := json.MarshalIndent(v, "", "  ")
	return string(b)
}
