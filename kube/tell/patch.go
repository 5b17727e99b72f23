package tell

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EvictedAnnotation is changed by the same request that sets the status: a
// change of the status alone does not wake kubelet's worker, and kubelet writes
// its own status back within 10 s; a change of an annotation does wake it
// (Kubernetes 1.37, pkg/kubelet/config/config.go checkAndUpdatePod). A node may
// change annotations through pods/status.
const EvictedAnnotation = "cri-evictd.io/evicted"

// statusPatch is the part of a pod that a patch of pods/status carries.
type statusPatch struct {
	Metadata patchMeta    `json:"metadata"`
	Status   patchedState `json:"status"`
}

type patchMeta struct {
	// UID is a precondition: the API server refuses the patch with a conflict when
	// the pod of this name is another one.
	UID         types.UID         `json:"uid"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type patchedState struct {
	Phase      v1.PodPhase       `json:"phase,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Message    string            `json:"message,omitempty"`
	Conditions []v1.PodCondition `json:"conditions,omitempty"`
}

// evictedPatch is the strategic merge patch of pods/status that makes a pod what
// kubelet's own eviction makes it (Kubernetes 1.37,
// pkg/kubelet/eviction/eviction_manager.go evictPod and synchronize). try numbers
// the requests of one eviction, so that each changes the annotation. pod is as
// the API server has it, nil when that is not known.
func evictedPatch(uid types.UID, id uint64, try int, message string, pod *v1.Pod, now time.Time) ([]byte, error) {
	p := statusPatch{
		Metadata: patchMeta{UID: uid, Annotations: map[string]string{
			EvictedAnnotation: fmt.Sprintf("%s decision %d try %d", now.UTC().Format(time.RFC3339), id, try),
		}},
		Status: patchedState{
			Phase: v1.PodFailed, Reason: reasonEvicted, Message: message,
			Conditions: []v1.PodCondition{disruption(message, pod, now)},
		},
	}
	return encode(p)
}

// disruptedPatch only adds the condition: before a deletion, so that a Job can
// tell an eviction from a failure of its own.
func disruptedPatch(uid types.UID, message string, pod *v1.Pod, now time.Time) ([]byte, error) {
	return encode(statusPatch{
		Metadata: patchMeta{UID: uid},
		Status:   patchedState{Conditions: []v1.PodCondition{disruption(message, pod, now)}},
	})
}

func encode(p statusPatch) ([]byte, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("patch of pods/status: %w", err)
	}
	return b, nil
}

// disruption is the condition that kubelet sets. A generation is observed where
// kubelet tells that of the pod
// (Kubernetes 1.37, pkg/api/v1/pod/util.go CalculatePodConditionObservedGeneration).
func disruption(message string, pod *v1.Pod, now time.Time) v1.PodCondition {
	c := v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
		Message: message, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	if pod != nil && pod.Status.ObservedGeneration != 0 {
		c.ObservedGeneration = pod.Generation
	}
	return c
}
