package kube

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// tolerationsOf says which taints of node pressure a pod tolerates, as kubelet's
// admission asks for memory (Kubernetes 1.37, pkg/kubelet/eviction/eviction_manager.go
// Admit: key, no value, effect NoSchedule).
func tolerationsOf(list []v1.Toleration) inventory.Tolerations {
	tolerates := func(key string) bool {
		taint := v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule}
		for i := range list {
			// Comparing numbers (Lt, Gt) is not asked for: these taints have no value.
			if list[i].ToleratesTaint(klog.Logger{}, &taint, false) {
				return true
			}
		}
		return false
	}
	return inventory.Tolerations{
		MemoryPressure: tolerates(v1.TaintNodeMemoryPressure),
		DiskPressure:   tolerates(v1.TaintNodeDiskPressure),
		PIDPressure:    tolerates(v1.TaintNodePIDPressure),
	}
}
