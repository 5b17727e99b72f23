package inventory

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// Facts is a source of pod facts better than CRI, such as kubelet's Pods API. Its
// methods are quick; they are called while the inventory is locked and must not
// call it.
type Facts interface {
	// Pod returns what is known of the pod; ok is false when no source knows it.
	Pod(uid string) (f PodFacts, ok bool)
}

// PodFacts are what Kubernetes itself says of a pod. A value whose Source is
// empty is not known.
type PodFacts struct {
	Priority Value[int32]
	// Request and StorageRequest are the memory and ephemeral-storage requests
	// in bytes.
	Request        Value[int64]
	StorageRequest Value[int64]
	QoS            Value[string]
	// Spec is the source that knows the pod's spec and with it all that follows;
	// empty when only its requests are known. Ref is how that source names it.
	Spec   Source
	Ref    Ref
	Static bool
	// Labels are the pod's labels now; nil when they were not kept.
	Labels map[string]string
	// EndsBy is set when the pod is being deleted: kubelet is stopping it, or
	// will, and its grace is over then.
	EndsBy time.Time
	// Finished: kubelet never starts it again.
	Finished  bool
	Tolerates Tolerations
}

// Tolerations are the taints of node pressure that a pod tolerates.
type Tolerations struct {
	MemoryPressure bool `json:"memoryPressure,omitempty"`
	DiskPressure   bool `json:"diskPressure,omitempty"`
	PIDPressure    bool `json:"pidPressure,omitempty"`
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
// is how much smaller the request may be. Scores below kubelet's range tell
// nothing: anything up to the whole memory.
func requestFromOOMScoreAdj(adj int64, memTotal uint64) (request, slack int64) {
	const lowest, highest = 3, 999 // what scores are clamped to
	total := int64(min(memTotal, 1<<62))
	thousandths := func(k int64) int64 { return total/1000*k + total%1000*k/1000 }
	switch {
	case adj > highest:
		return 0, 0
	case adj == highest: // a request of zero is clamped too
		upper := min(thousandths(2), total)
		return upper, upper
	case adj > lowest:
		lower, upper := thousandths(1000-adj), thousandths(1001-adj)
		return upper, upper - lower
	case adj == lowest:
		return total, total - thousandths(1000-lowest)
	}
	return total, total
}

// priorityOf finds the priority: facts, the annotation of a trusted namespace
// (capped below the critical range), the node-critical mark in CRI, or 0.
func priorityOf(p *Pod, trusted map[string]bool) Value[int32] {
	if v := p.facts.Priority; v.Source != "" {
		return v
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
func requestOf(p *Pod, trusted map[string]bool, memTotal uint64) Value[int64] {
	if v := p.facts.Request; v.Source != "" {
		return v
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
// QoS class, container by container: the limit where there is one, as Kubernetes
// does when no request is written; kubelet's oom_score_adj where it looks like
// one; otherwise nothing was asked for.
func requestOutsideKubepods(p *Pod, memTotal uint64) Value[int64] {
	return sumOfContainers(p, false, func(c *Container) (request, slack int64, ok bool) {
		if c.OOMScoreAdj == nil {
			return 0, 0, false
		}
		switch adj := *c.OOMScoreAdj; {
		case adj >= 1000:
			return 0, 0, true
		case c.limit() > 0:
			return c.limit(), c.limit(), true // the request may be smaller
		case adj >= 3:
			request, slack = requestFromOOMScoreAdj(adj, memTotal)
			return request, slack, true
		}
		return 0, 0, true
	})
}

func (c *Container) limit() int64 {
	if c.MemoryLimit == nil {
		return 0
	}
	return max(*c.MemoryLimit, 0)
}

// guaranteedRequest is the sum of the limits. A container of kubelet's without
// one belongs to a pod with pod-level resources, whose sum CRI does not tell; one
// of somebody else's asked for nothing.
func guaranteedRequest(p *Pod) Value[int64] {
	return sumOfContainers(p, true, func(c *Container) (request, slack int64, ok bool) {
		others := c.OOMScoreAdj != nil && *c.OOMScoreAdj != nodeCriticalOOMScoreAdj
		return c.limit(), 0, c.limit() > 0 || others
	})
}

func burstableRequest(p *Pod, memTotal uint64) Value[int64] {
	return sumOfContainers(p, false, func(c *Container) (request, slack int64, ok bool) {
		switch {
		case c.OOMScoreAdj == nil:
			return 0, 0, false
		case *c.OOMScoreAdj != nodeCriticalOOMScoreAdj && (*c.OOMScoreAdj < 3 || *c.OOMScoreAdj > 999):
			// kubelet clamps to [3, 999]: crictl or another tool made it
			return c.limit(), c.limit(), true
		}
		request, slack = requestFromOOMScoreAdj(*c.OOMScoreAdj, memTotal)
		return request, slack, true
	})
}

// sumOfContainers adds up what the running containers asked for. One container
// that tells nothing makes the sum unknown: without its part the pod would look
// further over its request than it is.
func sumOfContainers(p *Pod, exact bool, of func(*Container) (request, slack int64, ok bool)) Value[int64] {
	v := Value[int64]{Source: FromCRI, Exact: exact}
	running := p.RunningContainers()
	for i := range running {
		request, slack, ok := of(&running[i])
		if !ok {
			return Value[int64]{Source: FromDefault}
		}
		v.Value += request
		v.Slack += slack
	}
	if len(running) == 0 {
		return Value[int64]{Source: FromDefault}
	}
	return v
}
