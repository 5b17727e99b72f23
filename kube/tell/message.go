// Package tell tells Kubernetes of evictions: the pod's status, or its deletion,
// and events, in the form of kubelet's own.
package tell

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
)

// Kubelet's words and keys: what reads its events reads ours
// (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go).
const (
	reasonEvicted = "Evicted"

	nodeLowFormat      = "The node was low on resource: %v. "
	thresholdMetFormat = "Threshold quantity: %v, available: %v. "
	containerFormat    = "Container %s was using %s, request is %s, has larger consumption of %v. "
	podFormat          = "Pod %s was using %s, request is %s, has larger consumption of %v. "

	offendingContainersKey      = "offending_containers"
	offendingContainersUsageKey = "offending_containers_usage"
	offendingPodKey             = "offending_pod"
	offendingPodUsageKey        = "offending_pod_usage"
	starvedResourceKey          = "starved_resource"
)

// kubelet's names of what is no resource of a pod (the same file).
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// resourceOf is kubelet's signalToResource (the same file).
func resourceOf(s eviction.Signal) v1.ResourceName {
	switch s {
	case eviction.NodeFsAvailable, eviction.ImageFsAvailable, eviction.ContainerFsAvailable:
		return v1.ResourceEphemeralStorage
	case eviction.NodeFsInodesFree, eviction.ImageFsInodesFree, eviction.ContainerFsInodesFree:
		return resourceInodes
	case eviction.PIDAvailable:
		return resourcePIDs
	}
	return v1.ResourceMemory
}

// Message is what kubelet's evictionMessage says of the eviction, with the
// annotations of its event. pod is as the API server has it; nil when it is not
// known. kubelet names each container that uses more than its request; we know
// what the pod uses: that is its container's when it has one, and said of the
// pod, in kubelet's form for pods, when it has several.
func Message(n *eviction.Notice, pod *v1.Pod) (message string, annotations map[string]string) {
	r := resourceOf(n.Signal)
	message = fmt.Sprintf(nodeLowFormat, r)
	if n.Threshold > 0 {
		message += fmt.Sprintf(thresholdMetFormat, quantity(r, n.Threshold), quantity(r, n.Available))
	}
	annotations = map[string]string{offendingContainersKey: "", offendingContainersUsageKey: "", starvedResourceKey: string(r)}
	container, request, known := requestOf(n, pod, r)
	if !n.UsageKnown || !known {
		return message, annotations
	}
	usage := resource.NewQuantity(int64(min(n.Usage, 1<<62)), resource.BinarySI)
	if usage.Cmp(request) <= 0 {
		return message, annotations
	}
	if container != "" {
		message += fmt.Sprintf(containerFormat, container, usage, request.String(), r)
		annotations[offendingContainersKey], annotations[offendingContainersUsageKey] = container, usage.String()
		return message, annotations
	}
	message += fmt.Sprintf(podFormat, n.Pod.Name, usage, request.String(), r)
	annotations[offendingPodKey], annotations[offendingPodUsageKey] = n.Pod.Name, usage.String()
	return message, annotations
}

// requestOf finds the request to hold the usage against, and the container when
// it is that of the only one. Inodes and PIDs cannot be asked for.
func requestOf(n *eviction.Notice, pod *v1.Pod, r v1.ResourceName) (container string, request resource.Quantity, known bool) {
	if r != v1.ResourceMemory && r != v1.ResourceEphemeralStorage {
		return "", request, false
	}
	if pod == nil {
		return "", *resource.NewQuantity(n.Request, resource.BinarySI), n.RequestKnown && r == v1.ResourceMemory
	}
	if podresource.IsPodLevelResourcesSet(pod) {
		asked, ok := pod.Spec.Resources.Requests[r]
		return "", asked, ok
	}
	if long := longRunning(pod); len(long) == 1 {
		return long[0].Name, long[0].Resources.Requests[r], true
	}
	record := kube.NewRecord(pod, inventory.FromAPI, false)
	sum := record.Memory
	if r == v1.ResourceEphemeralStorage {
		sum = record.EphemeralStorage
	}
	return "", *resource.NewQuantity(sum, resource.BinarySI), true
}

// longRunning are the containers that run at the same time: regular ones and
// sidecars.
func longRunning(pod *v1.Pod) []v1.Container {
	var out []v1.Container
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return append(out, pod.Spec.Containers...)
}

// quantity writes an amount of the resource as kubelet does: bytes with binary
// suffixes, counts with decimal ones
// (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go makeSignalObservations).
func quantity(r v1.ResourceName, n uint64) string {
	format := resource.BinarySI
	if r == resourceInodes || r == resourcePIDs {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(int64(min(n, 1<<62)), format).String()
}
