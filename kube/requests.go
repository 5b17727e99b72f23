package kube

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// Allocation is what kubelet has allocated to a pod. It differs from the spec
// while an in-place resize is deferred or infeasible, and it is what kubelet's
// eviction counts with.
type Allocation struct {
	// Containers are the requests by container name, init containers included; a
	// container without any has an entry too.
	Containers map[string]v1.ResourceList
	// Pod are the pod-level resources, nil for none.
	Pod *v1.ResourceRequirements
	// ContainersOnly: this kubelet does not tell what it allocated at the pod
	// level, where the spec's numbers count (Kubernetes 1.33 and 1.34).
	ContainersOnly bool
}

// amounts are the two resources that eviction ranks by. Quantities, because the
// sum of fractions of a byte is rounded once, as in kubelet.
type amounts struct{ memory, storage resource.Quantity }

func amountsOf(l v1.ResourceList) amounts {
	return amounts{memory: l[v1.ResourceMemory].DeepCopy(), storage: l[v1.ResourceEphemeralStorage].DeepCopy()}
}

func (a amounts) list() v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: a.memory, v1.ResourceEphemeralStorage: a.storage}
}

// containerShape is what a request depends on of one container.
type containerShape struct {
	name          string
	init, sidecar bool
	requests      amounts
}

// shape is what a pod's requests depend on: so much is kept that they can be
// computed again when the allocation is learned later.
type shape struct {
	containers []containerShape
	overhead   *amounts                 // nil for none
	pod        *v1.ResourceRequirements // pod-level, nil for none
	// settled is false while a resize is under way and what was allocated to
	// some container is not told.
	settled bool
}

// shapeOf takes the resources of a pod, and where its status tells what kubelet
// allocated, that in place of what the spec asks for
// (Kubernetes 1.37, pkg/kubelet/kubelet_pods.go convertToAPIContainerStatuses:
// status.allocatedResources is the allocated container's requests, and
// status.resources is there exactly when the kubelet tells them).
func shapeOf(pod *v1.Pod) shape {
	s := shape{settled: true, containers: make([]containerShape, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))}
	resizing := resizing(pod)
	add := func(list []v1.Container, statuses []v1.ContainerStatus, init bool) {
		for i := range list {
			c := &list[i]
			requests, told := c.Resources.Requests, false
			for j := range statuses {
				if st := &statuses[j]; st.Name == c.Name && (st.Resources != nil || st.AllocatedResources != nil) {
					requests, told = st.AllocatedResources, true
				}
			}
			s.settled = s.settled && (told || !resizing)
			s.containers = append(s.containers, containerShape{
				name: c.Name, init: init,
				sidecar:  init && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways,
				requests: amountsOf(requests),
			})
		}
	}
	add(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true)
	add(pod.Spec.Containers, pod.Status.ContainerStatuses, false)
	if pod.Spec.Overhead != nil {
		o := amountsOf(pod.Spec.Overhead)
		s.overhead = &o
	}
	if podresource.IsPodLevelResourcesSet(pod) {
		s.pod = podLevelOf(pod)
	}
	return s
}

// podLevelOf returns the pod-level resources with the allocated memory request
// where the status has it: it is the pod's whole request, overhead included
// (Kubernetes 1.37, pkg/kubelet/kubelet_pods.go generateAPIPodStatus).
func podLevelOf(pod *v1.Pod) *v1.ResourceRequirements {
	r := pod.Spec.Resources.DeepCopy()
	allocated, told := pod.Status.AllocatedResources[v1.ResourceMemory]
	if _, asked := r.Requests[v1.ResourceMemory]; told && asked {
		allocated = allocated.DeepCopy()
		allocated.Sub(pod.Spec.Overhead[v1.ResourceMemory])
		r.Requests[v1.ResourceMemory] = allocated
	}
	return r
}

// resizing says whether an in-place resize is pending or in progress.
func resizing(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		switch pod.Status.Conditions[i].Type {
		case v1.PodResizePending, v1.PodResizeInProgress:
			return true
		}
	}
	return false
}

// requests computes the pod's requests in bytes as kubelet's
// GetResourceRequestQuantity does (Kubernetes 1.37,
// pkg/api/v1/resource/helpers.go): what PodRequests says without overhead, of
// the pod level alone when the pod has resources there; then the overhead, but
// only on top of a request that is not zero. An allocation, where it is known,
// takes the place of the spec's numbers as in kubelet's
// updatePodFromAllocation (pkg/kubelet/allocation/allocation_manager.go).
func (s *shape) requests(a *Allocation) (memory, storage int64) {
	pod := s.pod
	if a != nil && !a.ContainersOnly {
		pod = a.Pod
	}
	skeleton := &v1.Pod{Spec: v1.PodSpec{Resources: pod}}
	always := v1.ContainerRestartPolicyAlways
	for i := range s.containers {
		c := &s.containers[i]
		out := v1.Container{Name: c.name, Resources: v1.ResourceRequirements{Requests: c.requests.list()}}
		if a != nil {
			if allocated, ok := a.Containers[c.name]; ok {
				out.Resources.Requests = amountsOf(allocated).list()
			}
		}
		switch {
		case !c.init:
			skeleton.Spec.Containers = append(skeleton.Spec.Containers, out)
			continue
		case c.sidecar:
			out.RestartPolicy = &always
		}
		skeleton.Spec.InitContainers = append(skeleton.Spec.InitContainers, out)
	}
	sums := podresource.PodRequests(skeleton, podresource.PodResourcesOptions{
		SkipContainerLevelResources: podresource.IsPodLevelResourcesSet(skeleton), ExcludeOverhead: true,
	})
	var over amounts
	if s.overhead != nil {
		over = *s.overhead
	}
	return total(sums[v1.ResourceMemory], over.memory), total(sums[v1.ResourceEphemeralStorage], over.storage)
}

// total adds the overhead to a request that is not zero.
func total(sum, overhead resource.Quantity) int64 {
	if sum.IsZero() {
		return 0
	}
	sum = sum.DeepCopy()
	sum.Add(overhead)
	return sum.Value()
}

// bounds tells the memory and ephemeral-storage requests as far as they follow
// from an allocation alone, when nobody knows which of the containers are init
// containers: at most the sum of all, at least the largest.
func (a *Allocation) bounds() (memory, storage [2]int64) {
	if r := a.Pod; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		m := amountsOf(r.Requests).memory
		return [2]int64{m.Value(), m.Value()}, [2]int64{}
	}
	for _, l := range a.Containers {
		x := amountsOf(l)
		m, d := x.memory.Value(), x.storage.Value()
		memory = [2]int64{max(memory[0], m), memory[1] + m}
		storage = [2]int64{max(storage[0], d), storage[1] + d}
	}
	return memory, storage
}
