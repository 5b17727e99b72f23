// Package kube knows pods as Kubernetes does: from kubelet's Pods API
// (kube/podsapi), from a watch of the API server (kube/apiwatch) and from
// kubelet's file of allocated resources.
//
// A reader turns each v1.Pod into a Record at once and gives it to its Feed of
// the Store; no v1.Pod is kept. The Store merges the feeds, best first, and is
// the inventory's source of facts.
package kube

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Keys of kubelet's (Kubernetes 1.37, pkg/kubelet/types/pod_update.go).
const (
	configSourceAnnotation = "kubernetes.io/config.source"
	configMirrorAnnotation = "kubernetes.io/config.mirror"
	apiSource              = "api"
)

// Record is what is kept of one pod. It is made by NewRecord and not changed
// afterwards.
type Record struct {
	// Ref's UID is the one the runtime knows: for a mirror pod that of the
	// static pod behind it.
	inventory.Ref
	// Source says who told.
	Source inventory.Source

	// Priority is valid when PriorityKnown; kubelet takes a pod without one for
	// 0, and the API server gives every pod one.
	Priority      int32
	PriorityKnown bool
	// QoS is the class as Kubernetes writes it, empty when it is not told.
	QoS v1.PodQOSClass
	// Memory and EphemeralStorage are the requests in bytes by kubelet's own
	// formula; Exact is false while a resize is under way and what kubelet
	// allocated is not told.
	Memory           int64
	EphemeralStorage int64
	Exact            bool

	// Static: a pod from a file or URL. Only the Pods API's word counts: kubelet
	// writes the annotation anew there, while at the API server a tenant can
	// write it, as he can make mirrors of pods that are none.
	Static bool
	// Mirror: the API server's picture of a static pod.
	Mirror bool
	// Phase is kubelet's own from the Pods API.
	Phase v1.PodPhase
	// Deleting is when the grace of its deletion is over (deletionTimestamp);
	// zero when it is not being deleted.
	Deleting time.Time
	// Grace is terminationGracePeriodSeconds, nil when it is not written.
	Grace *time.Duration
	// PreStop: at least one container has a preStop hook.
	PreStop bool
	// Owner is the kind of the controlling owner, empty for none.
	Owner string
	// Tolerates are the taints of node pressure that the pod tolerates.
	Tolerates inventory.Tolerations
	// Labels are kept of the pods of trusted namespaces only (Store.KeepLabels).
	Labels map[string]string

	shape shape
}

// NewRecord takes from a pod what is to be kept. It keeps no reference to pod.
func NewRecord(pod *v1.Pod, source inventory.Source, keepLabels bool) Record {
	r := Record{
		Ref:    inventory.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
		Source: source, QoS: pod.Status.QOSClass, Phase: pod.Status.Phase,
		Tolerates: tolerationsOf(pod.Spec.Tolerations),
		shape:     shapeOf(pod),
	}
	if p := pod.Spec.Priority; p != nil {
		r.Priority, r.PriorityKnown = *p, true
	}
	r.Memory, r.EphemeralStorage = r.shape.requests(nil)
	r.Exact = r.shape.settled
	mirrorOf, mirror := pod.Annotations[configMirrorAnnotation]
	from, told := pod.Annotations[configSourceAnnotation]
	r.Mirror = mirror
	r.Static = source == inventory.FromPodsAPI && told && from != apiSource
	if mirror {
		// The annotation of a mirror is the UID of its static pod, which is what
		// runs (Kubernetes 1.37, pkg/kubelet/pod/mirror_client.go). Deleting a
		// mirror does not end that.
		r.UID = mirrorOf
	} else if pod.DeletionTimestamp != nil {
		r.Deleting = pod.DeletionTimestamp.Time
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		d := time.Duration(*s) * time.Second
		r.Grace = &d
	}
	r.PreStop = slices.ContainsFunc(pod.Spec.Containers, hasPreStop) || slices.ContainsFunc(pod.Spec.InitContainers, hasPreStop)
	for i := range pod.OwnerReferences {
		if o := &pod.OwnerReferences[i]; o.Controller != nil && *o.Controller {
			r.Owner = o.Kind
		}
	}
	if keepLabels {
		r.Labels = maps.Clone(pod.Labels)
	}
	return r
}

// Key is what the record is kept under in a Feed. A mirror never takes the place
// of a pod that has its UID.
func (r *Record) Key() string {
	if r.Mirror {
		return mirrorKey(r.UID)
	}
	return r.UID
}

func mirrorKey(uid string) string { return "mirror of " + uid }

func hasPreStop(c v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PreStop != nil }

// Finished says whether kubelet will never start a container of the pod again.
func (r *Record) Finished() bool { return r.Phase == v1.PodSucceeded || r.Phase == v1.PodFailed }
