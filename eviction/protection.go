package eviction

import (
	"slices"
	"strings"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Protection says which pods are never victims.
type Protection struct {
	// Static protects static pods and mirrors (protectStatic).
	Static bool
	// StaticNames are static pods that stay protected without Static, with or
	// without the node's name behind it.
	StaticNames []string
	// Namespaces are protectedNamespaces.
	Namespaces []string
	// Labels are protectedPodLabels: a pod of a trusted namespace that carries
	// one of them, key and value, is protected.
	Labels map[string]string
	// Trusted are trustedNamespaces.
	Trusted []string
}

// systemNamespace is where Kubernetes' own pods live.
const systemNamespace = "kube-system"

// doubts are what makes more pods protected than the configuration says.
type doubts struct {
	// controlPlane are static pods of the control plane that the configuration
	// leaves unprotected: no static pod is a victim then.
	controlPlane []string
	// expected: there is a source of pod facts, so that a priority nobody has
	// told is one that is not told yet.
	expected bool
}

// bars returns why the pod is protected, or "".
func (p *Protection) bars(pod *inventory.Pod, d doubts) string {
	static := pod.Static()
	switch {
	case static && p.Static:
		return "protected: static pod"
	case static && p.names(pod):
		return "protected: static pod, by its name"
	case static && len(d.controlPlane) > 0:
		return "protected: static pod, because static pods of the control plane are here: " + strings.Join(d.controlPlane, ", ")
	case pod.Priority.Value >= inventory.SystemCriticalPriority:
		return "protected: critical priority"
	case slices.Contains(p.Namespaces, pod.Namespace):
		return "protected: namespace " + pod.Namespace
	case d.expected && pod.Namespace == systemNamespace && pod.Priority.Source == inventory.FromDefault:
		return "protected: namespace " + systemNamespace + ", as long as its priority is not known"
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

// names says whether a static pod is one of those that stay protected by name.
func (p *Protection) names(pod *inventory.Pod) bool {
	return slices.ContainsFunc(p.StaticNames, func(n string) bool { return staticNamed(pod.Name, n) })
}

// staticNamed says whether a static pod has this name: kubelet puts the node's
// name behind it (Kubernetes 1.37, pkg/kubelet/config/common.go generatePodName).
func staticNamed(pod, name string) bool { return pod == name || strings.HasPrefix(pod, name+"-") }

// controlPlane are the components whose loss costs more than this node.
func controlPlane() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "cloud-controller-manager", "etcd"}
}

// unprotectedControlPlane lists the static pods of the control plane that the
// configuration would make victims, by what kubeadm labels them with, their name
// or that of a container.
func (p *Protection) unprotectedControlPlane(pods []*inventory.Pod) []string {
	if p.Static {
		return nil
	}
	var out []string
	for _, pod := range pods {
		if pod.Static() && IsControlPlane(pod.Name, pod.Labels, pod.Containers) && !p.names(pod) && !slices.Contains(out, pod.Name) {
			out = append(out, pod.Name)
		}
	}
	slices.Sort(out)
	return out
}

// IsControlPlane says whether a static pod is a component of the control plane.
func IsControlPlane(name string, labels map[string]string, containers []inventory.Container) bool {
	if labels["tier"] == "control-plane" {
		return true
	}
	return slices.ContainsFunc(controlPlane(), func(c string) bool {
		return staticNamed(name, c) || slices.ContainsFunc(containers, func(x inventory.Container) bool { return x.Name == c })
	})
}
