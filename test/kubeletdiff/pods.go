package kubeletdiff

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1resource "k8s.io/kubernetes/pkg/api/v1/resource"
)

// kube is the pod as the API server has it.
func (p *Pod) kube() *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.Name, UID: types.UID(p.Name), Annotations: p.annotations()},
		Spec:       v1.PodSpec{Priority: p.Priority, TerminationGracePeriodSeconds: p.Grace},
	}
	for i, m := range p.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, container(names[i], m))
	}
	for i, m := range p.Init {
		c := container("init-"+names[i], m)
		if p.Sidecars[i] {
			c.RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if p.Overhead > 0 {
		pod.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(p.Overhead, resource.BinarySI)}
	}
	if p.Storage > 0 {
		pod.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = *resource.NewQuantity(p.Storage, resource.BinarySI)
	}
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if p.PodLevel != nil {
		pod.Spec.Resources = ptr(requests(*p.PodLevel))
	}
	return pod
}

// annotations say where the pod comes from.
func (p *Pod) annotations() map[string]string {
	from := "api"
	if p.Static {
		from = "file"
	}
	return map[string]string{"kubernetes.io/config.source": from}
}

var names = [...]string{"a", "b", "c", "d"}

func container(name string, memory int64) v1.Container {
	return v1.Container{Name: name, Resources: requests(memory)}
}

func requests(memory int64) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)}}
}

// request is that for a resource by kubelet's own formula.
func (p *Pod) request(of v1.ResourceName) int64 {
	q := v1resource.GetResourceRequestQuantity(p.kube(), of)
	return q.Value()
}
