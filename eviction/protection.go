package eviction

import (
	"slices"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Protection says which pods are never victims.
type Protection struct {
	// Static protects static pods and mirrors (protectStatic).
	Static bool
	// Namespaces are protectedNamespaces.
	Namespaces []string
	// Labels are protectedPodLabels: a pod of a trusted namespace that carries
	// one of them, key and value, is protected.
	Labels map[string]string
	// Trusted are trustedNamespaces.
	Trusted []string
}

// bars returns why the pod is protected, or "".
func (p *Protection) bars(pod *inventory.Pod) string {
	switch {
	case p.Static && pod.Static():
		return "protected: static pod"
	case pod.Priority.Value >= inventory.SystemCriticalPriority:
		return "protected: critical priority"
	case slices.Contains(p.Namespaces, pod.Namespace):
		return "protected: namespace " + pod.Namespace
	}
	if slices.Contains(p.Trusted, pod.Namespace) {
		for k, v := range p.Labels {
			if got, ok := pod.Labels[k]; ok && got == v {
				return "protected: label " + k + "=" + v
			}
		}
	}
	return ""
}
