package inventory

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// Facts is a source of pod facts better than CRI, such as kubelet's Pods API.
// ok is false when the source does not know the pod or the number.
type Facts interface {
	Priority(uid string) (v Value[int32], ok bool)
	MemoryRequest(uid string) (v Value[int64], ok bool)
}

// SystemCriticalPriority is kubelet's limit of critical pods
// (Kubernetes 1.37, pkg/apis/scheduling.SystemCriticalPriority).
const SystemCriticalPriority = 2_000_000_000

// nodeCriticalOOMScoreAdj is given to system-node-critical and to Guaranteed
// pods (Kubernetes 1.37, pkg/kubelet/qos/policy.go).
const nodeCriticalOOMScoreAdj = -997

// requestFromOOMScoreAdj inverts kubelet's formula for Burstable containers,
// oom_score_adj = 1000 − ⌊1000 × request ÷ MemTotal⌋ clamped to [3, 999]
// (Kubernetes 1.37, pkg/kubelet/qos/policy.go GetContainerOOMScoreAdjust). It
// returns the largest request, in bytes, that leads to this score, so that an
// estimate never makes a pod look further over its request than it is; slack
// is how much smaller the request may be.
func requestFromOOMScoreAdj(adj int64, memTotal uint64) (request, slack int64) {
	total := int64(min(memTotal, 1<<62))
	k := 1000 - min(max(adj, 0), 1000)
	if k == 0 {
		return 0, 0
	}
	upper := total/1000*(k+1) + total%1000*(k+1)/1000
	lower := total/1000*k + total%1000*k/1000
	if adj >= 999 { // a request of zero is clamped to 999 too
		lower = 0
	}
	upper = min(upper, total)
	return upper, upper - lower
}

// priorityOf finds the priority: facts, the annotation of a trusted namespace
// (capped below the critical range), the node-critical mark in CRI, or 0.
func priorityOf(p *Pod, f Facts, trusted map[string]bool) Value[int32] {
	if f != nil {
		if v, ok := f.Priority(p.UID); ok {
			return v
		}
	}
	if trusted[p.Namespace] {
		if s, ok := p.Annotations[PriorityAnnotation]; ok {
			if n, err := strconv.ParseInt(s, 10, 32); err == nil {
				return Value[int32]{Value: int32(min(n, SystemCriticalPriority-1)), Source: FromAnnotation, Exact: true}
			}
		}
	}
	// Only where the cgroup proves that the pod is not Guaranteed is −997 the
	// sign of system-node-critical.
	if q := p.QoS; q.Exact && q.Value != cgroupfs.Guaranteed.String() {
		for _, c := range p.Containers {
			if c.OOMScoreAdj != nil && *c.OOMScoreAdj == nodeCriticalOOMScoreAdj {
				return Value[int32]{Value: SystemCriticalPriority, Source: FromCRI}
			}
		}
	}
	return Value[int32]{Source: FromDefault}
}

// requestOf finds the memory request in bytes. A value with source default is
// unknown, not zero.
func requestOf(p *Pod, f Facts, trusted map[string]bool, memTotal uint64) Value[int64] {
	if f != nil {
		if v, ok := f.MemoryRequest(p.UID); ok {
			return v
		}
	}
	if trusted[p.Namespace] {
		if s, ok := p.Annotations[MemoryRequestAnnotation]; ok {
			if q, err := resource.ParseQuantity(s); err == nil && q.Sign() >= 0 {
				return Value[int64]{Value: q.Value(), Source: FromAnnotation, Exact: true}
			}
		}
	}
	switch p.QoS.Value {
	case cgroupfs.BestEffort.String():
		return Value[int64]{Value: 0, Source: FromCRI, Exact: p.QoS.Exact}
	case cgroupfs.Guaranteed.String():
		return guaranteedRequest(p)
	case cgroupfs.Burstable.String():
		return burstableRequest(p, memTotal)
	}
	return requestOutsideKubepods(p, memTotal)
}

// requestOutsideKubepods estimates the request of a pod whose cgroup tells no
// QoS class, container by container: kubelet's oom_score_adj where it looks like
// one, otherwise the limit, otherwise nothing was asked for.
func requestOutsideKubepods(p *Pod, memTotal uint64) Value[int64] {
	v := Value[int64]{Source: FromCRI}
	known := false
	for _, c := range p.RunningContainers() {
		if c.OOMScoreAdj == nil {
			continue
		}
		known = true
		switch adj := *c.OOMScoreAdj; {
		case adj >= 3 && adj <= 999 && c.limit() == 0:
			r, slack := requestFromOOMScoreAdj(adj, memTotal)
			v.Value += r
			v.Slack += slack
		case adj >= 1000:
		default:
			v.Value += c.limit()
		}
	}
	if !known {
		return Value[int64]{Source: FromDefault}
	}
	return v
}

func (c *Container) limit() int64 {
	if c.MemoryLimit == nil {
		return 0
	}
	return max(*c.MemoryLimit, 0)
}

func guaranteedRequest(p *Pod) Value[int64] {
	v := Value[int64]{Source: FromCRI, Exact: true}
	for _, c := range p.RunningContainers() {
		if c.limit() == 0 {
			v.Exact = false
			continue
		}
		v.Value += c.limit()
	}
	if v.Value == 0 {
		return Value[int64]{Source: FromDefault}
	}
	return v
}

func burstableRequest(p *Pod, memTotal uint64) Value[int64] {
	v := Value[int64]{Source: FromCRI}
	known := false
	for _, c := range p.RunningContainers() {
		if c.OOMScoreAdj == nil {
			continue
		}
		known = true
		r, slack := requestFromOOMScoreAdj(*c.OOMScoreAdj, memTotal)
		v.Value += r
		v.Slack += slack
	}
	if !known {
		return Value[int64]{Source: FromDefault}
	}
	return v
}
