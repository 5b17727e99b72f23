// Package inventory knows which container and sandbox belongs to which pod, and
// what is known of each pod with its source.
//
// It is filled from three sides: what passes through the proxy (Event), the
// runtime's lists (Listing) and the tree of cgroups. Records handed out are
// immutable.
package inventory

import (
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// Source says where a value was learned.
type Source string

// The sources, best first.
const (
	FromPodsAPI    Source = "podsAPI"    // kubelet's Pods API
	FromAPI        Source = "api"        // a watch of the API server
	FromAllocation Source = "allocation" // kubelet's allocated_pods_state
	FromAnnotation Source = "annotation" // cri-evictd.io/… in a trusted namespace
	FromCRI        Source = "cri"        // fields of the CRI requests
	FromCgroup     Source = "cgroup"     // files of the pod's or container's cgroup
	FromProc       Source = "proc"       // /proc/<pid>/oom_score_adj
	FromDefault    Source = "default"    // nothing known
)

// Value is a number or word with its source.
type Value[T any] struct {
	Value  T      `json:"value"`
	Source Source `json:"source"`
	// Exact is false for an estimate; Slack is then how far, in the value's
	// unit, the truth can lie below it.
	Exact bool  `json:"exact"`
	Slack int64 `json:"slack,omitempty"`
}

// Ref names a pod.
type Ref struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// String is namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Sandbox is one pod sandbox of the runtime.
type Sandbox struct {
	ID           string
	Attempt      uint32
	Ready        bool
	Created      time.Time
	CgroupParent string // linux.cgroup_parent; empty when only listed
}

// Container is one container of the runtime.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Image     string
	Running   bool // CREATED or RUNNING
	Created   time.Time
	// OOMScoreAdj and MemoryLimit are those of the CreateContainer request;
	// nil when the container was only listed.
	OOMScoreAdj *int64
	MemoryLimit *int64 // bytes; 0 is no limit
	// Cgroup is the container's cgroup below the hierarchy root, known only
	// where it had to be asked for because it is not below the pod's.
	Cgroup string
}

// Pod is one pod as it is known at one moment; never changed after it was
// handed out.
type Pod struct {
	Ref
	Labels      map[string]string
	Annotations map[string]string
	Sandboxes   []Sandbox   // newest first
	Containers  []Container // by creation
	// Cgroup is the pod's cgroup below the hierarchy root, empty when unknown.
	Cgroup string
	// OwnCgroup: the last element of Cgroup carries this pod's UID, it lies
	// below kubepods or a QoS level, and no other pod's sandbox names it.
	OwnCgroup bool
	QoS       Value[string]
	Priority  Value[int32]
	Request   Value[int64] // memory request, bytes
	// StorageRequest is the ephemeral-storage request in bytes. CRI does not tell
	// it: source default is unknown.
	StorageRequest Value[int64]
	// LastWanted is when RunPodSandbox was last seen for this UID, refused
	// attempts included.
	LastWanted time.Time

	facts PodFacts
}

// Facts are what Kubernetes itself says of the pod.
func (p *Pod) Facts() *PodFacts { return &p.facts }

// Kubernetes' and our own keys.
const (
	configSourceAnnotation = "kubernetes.io/config.source"
	configMirrorAnnotation = "kubernetes.io/config.mirror"

	// PriorityAnnotation and MemoryRequestAnnotation count in trusted
	// namespaces only.
	PriorityAnnotation      = "cri-evictd.io/priority"
	MemoryRequestAnnotation = "cri-evictd.io/memory-request"
)

// Static says whether the pod is static or the mirror of one, as kubelet's
// IsStaticPod and IsMirrorPod do (Kubernetes 1.37, pkg/kubelet/types/pod_update.go).
func (p *Pod) Static() bool {
	if p.facts.Static {
		return true
	}
	if _, mirror := p.Annotations[configMirrorAnnotation]; mirror {
		return true
	}
	source, ok := p.Annotations[configSourceAnnotation]
	return ok && source != "api"
}

// Ready returns the newest sandbox that is ready.
func (p *Pod) Ready() (Sandbox, bool) {
	for _, s := range p.Sandboxes {
		if s.Ready {
			return s, true
		}
	}
	return Sandbox{}, false
}

// RunningContainers returns the containers that run or are about to.
func (p *Pod) RunningContainers() []Container {
	var out []Container
	for _, c := range p.Containers {
		if c.Running {
			out = append(out, c)
		}
	}
	return out
}

// qosOf derives the QoS class from the cgroup path (facts: kubelet puts
// Guaranteed pods directly under kubepods).
func qosOf(path string) Value[string] {
	if p, ok := cgroupfs.ParsePodPath(path); ok {
		return Value[string]{Value: p.QoS.String(), Source: FromCgroup, Exact: true}
	}
	switch {
	case strings.Contains(path, "besteffort"):
		return Value[string]{Value: cgroupfs.BestEffort.String(), Source: FromCgroup}
	case strings.Contains(path, "burstable"):
		return Value[string]{Value: cgroupfs.Burstable.String(), Source: FromCgroup}
	}
	return Value[string]{Source: FromDefault}
}
