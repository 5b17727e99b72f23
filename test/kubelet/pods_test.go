package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/kube"
)

// bare is a pod that a node without a network runs.
func bare(node, name string) *v1.Pod {
	no, grace := false, int64(1)
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{
			NodeName: node, HostNetwork: true, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			TerminationGracePeriodSeconds: &grace, Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		},
	}
}

// small is a pod with one container that asks for this much memory.
func small(name string, memory int64) *v1.Pod {
	pod := bare(nodeName, name)
	c := pause("main")
	c.Resources.Requests = amounts(memory, 1, 0)
	pod.Spec.Containers = []v1.Container{c}
	return pod
}

// pause is a container that does nothing.
func pause(name string) v1.Container {
	return v1.Container{Name: name, Image: lab.PauseImage, ImagePullPolicy: v1.PullNever}
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }

func amounts(memory, milliCPU, storage int64) v1.ResourceList {
	l := v1.ResourceList{v1.ResourceMemory: quantity(memory), v1.ResourceCPU: *resource.NewMilliQuantity(milliCPU, resource.DecimalSI)}
	if storage > 0 {
		l[v1.ResourceEphemeralStorage] = quantity(storage)
	}
	return l
}

// request returns what the store has, -1 for an unknown pod.
func request(s *kube.Store, pod *v1.Pod) int64 {
	f, ok := s.Pod(string(pod.UID))
	if !ok {
		return -1
	}
	return f.Request.Value
}
