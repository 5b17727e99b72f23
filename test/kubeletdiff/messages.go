package kubeletdiff

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// amountsOf are a threshold and its minimum reclaim of kubelet's as numbers. sig
// may be one of containerfs.
func (k *kubeletSide) amountsOf(l line) (threshold, reclaim *resource.Quantity, ok bool) {
	from := k.w.sc.Layout.thresholdsOf(l.signal)
	capacity := quantityOf(l.signal, capacityOf(l.signal))
	for i := range k.thresholds {
		t := &k.thresholds[i]
		if eviction.Signal(t.Signal) != from || (t.GracePeriod > 0) != l.soft {
			continue
		}
		threshold, reclaim = evictionapi.GetThresholdQuantity(t.Value, capacity), quantityOf(l.signal, 0)
		if t.MinReclaim != nil {
			reclaim = evictionapi.GetThresholdQuantity(*t.MinReclaim, capacity)
		}
		return threshold, reclaim, true
	}
	return nil, nil, false
}

// quantityOf writes a number as kubelet does for the signal.
func quantityOf(sig eviction.Signal, n uint64) *resource.Quantity {
	if sig.Unit() == eviction.Bytes {
		return resource.NewQuantity(int64(n), resource.BinarySI)
	}
	return resource.NewQuantity(int64(n), resource.DecimalSI)
}

// resourceOf is what kubelet's messages call what a signal is about (Kubernetes
// 1.37, pkg/kubelet/eviction/helpers.go signalToResource).
func resourceOf(sig eviction.Signal) string {
	switch {
	case sig.Memory():
		return "memory"
	case sig == eviction.PIDAvailable:
		return "pids"
	case sig.Unit() == eviction.Inodes:
		return "inodes"
	}
	return "ephemeral-storage"
}

// texts are how kubelet's message names each threshold now. Two that have the
// same numbers have the same text.
func (k *kubeletSide) texts() map[line]string {
	out := map[line]string{}
	for _, sig := range eviction.Signals() {
		for _, soft := range []bool{false, true} {
			threshold, _, ok := k.amountsOf(line{sig, soft})
			if !ok {
				continue
			}
			out[line{sig, soft}] = fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %v, available: %v. ",
				resourceOf(sig), threshold, quantityOf(sig, k.w.available(kubeletView, sig)))
		}
	}
	return out
}

// about lists the thresholds that a pass may have taken its pod for: those that
// its message and its grace do not tell apart.
func (v verdict) about(softGrace func(pod string) int64) []line {
	var out []line
	for _, t := range v.killed {
		for l, text := range v.texts {
			if grace := int64(1); strings.HasPrefix(t.message, text) {
				if l.soft {
					grace = softGrace(t.pod)
				}
				if t.grace == grace {
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// isClear says whether kubelet sees a threshold cleared, its minimum reclaim
// included.
func (k *kubeletSide) isClear(l line) bool {
	threshold, reclaim, ok := k.amountsOf(l)
	if !ok {
		return true
	}
	threshold.Add(*reclaim)
	return threshold.Cmp(*quantityOf(l.signal, k.w.available(kubeletView, l.signal))) <= 0
}

// met lists the thresholds whose amount there is less than.
func (k *kubeletSide) met() map[line]bool {
	out := map[line]bool{}
	for _, sig := range eviction.Signals() {
		for _, soft := range []bool{false, true} {
			l := line{sig, soft}
			if threshold, _, ok := k.amountsOf(l); ok {
				out[l] = threshold.Cmp(*quantityOf(sig, k.w.available(kubeletView, sig))) > 0
			}
		}
	}
	return out
}
