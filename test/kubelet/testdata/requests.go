// Command requests prints what kubelet's eviction takes for request and priority
// of each pod of a PodList, by kubelet's own code: rankMemoryPressure in
// pkg/kubelet/eviction/helpers.go asks these functions. It is built within the
// module k8s.io/kubernetes.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	v1resource "k8s.io/kubernetes/pkg/api/v1/resource"
)

type answer struct {
	Memory, EphemeralStorage int64
	Priority                 int32
}

func main() {
	var list v1.PodList
	if err := json.NewDecoder(os.Stdin).Decode(&list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := map[string]answer{}
	for i := range list.Items {
		pod := &list.Items[i]
		memory := v1resource.GetResourceRequestQuantity(pod, v1.ResourceMemory)
		storage := v1resource.GetResourceRequestQuantity(pod, v1.ResourceEphemeralStorage)
		out[string(pod.UID)] = answer{memory.Value(), storage.Value(), corev1helpers.PodPriority(pod)}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
