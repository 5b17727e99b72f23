package tell

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// The ways to tell, and the values of reportMode.
const (
	ByStatus = "status" // the pod is Failed, reason Evicted, as after kubelet's own eviction
	ByEvict  = "evict"  // the eviction API: budgets of disruption are heard
	ByDelete = "delete" // the pod is deleted
	None     = "none"
)

// Outcomes of a telling.
const (
	Told          = "told"          // Failed and Evicted, and kubelet let it be
	WithoutReason = "withoutReason" // it ended, but kubelet took the reason back: every container ended with 0
	Ended         = "ended"         // it had ended by itself and been recorded as such
	Deleting      = "deleting"      // it is being deleted, by us or by others
	Gone          = "gone"          // no pod of this UID is left
	Static        = "static"        // kubelet's own pod: it has no status to set
	Withdrawn     = "withdrawn"     // it may run again, before it could be told
	Refused       = "refused"       // the API server does not take it
	Expired       = "expired"       // it could not be told for a day
	Dropped       = "dropped"       // too many were waiting
)

// Outcomes lists them all.
func Outcomes() []string {
	return []string{Told, WithoutReason, Ended, Deleting, Gone, Static, Withdrawn, Refused, Expired, Dropped}
}

// entry is one eviction in the queue, as it is kept on disk.
type entry struct {
	Notice eviction.Notice `json:"notice"`
	// Boot is the boot it was killed in: after another the pod runs again.
	Boot string `json:"boot,omitempty"`
	// Way is how it was asked for last, Tries how often, the last time at Asked.
	Way   string    `json:"way,omitempty"`
	Tries int       `json:"tries,omitempty"`
	Asked time.Time `json:"asked,omitzero"`
	// Message and Annotations are what was said of it first.
	Message     string            `json:"message,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Event: the pod's event was sent.
	Event bool `json:"event,omitempty"`
	// Taken: kubelet was seen to end the pod.
	Taken bool `json:"taken,omitempty"`
	// Outcome is empty until the status is settled, at Done.
	Outcome string    `json:"outcome,omitempty"`
	Done    time.Time `json:"done,omitzero"`

	// Of this process only:
	due      time.Time // of the next look
	looks    int       // since Asked
	refusals int       // answers in a row that this pod alone had
}

// finished says whether nothing is left to do.
func (e *entry) finished() bool { return e.Outcome != "" && e.Event }

// end settles the status.
func (e *entry) end(outcome string, now time.Time) { e.Outcome, e.Done = outcome, now.UTC() }

const (
	// sticksFor is how long a status must have stood to be kubelet's as well: its
	// status manager writes its own back every 10 s (Kubernetes 1.37,
	// pkg/kubelet/status/status_manager.go syncPeriod).
	sticksFor = 12 * time.Second
	// patchSpacing is the least time between two requests for one pod, longest
	// between two that kubelet undid.
	patchSpacing        = time.Second
	patchSpacingLongest = 10 * time.Second
	// reasonTries is how often a reason is set that kubelet takes back from a pod
	// that ended.
	reasonTries = 3
	// endsLate is how long past its grace a pod that kubelet ends may look as if it
	// ran: a hook that took all of it leaves 2 s, and statuses come late.
	endsLate = 10 * time.Second
	// expiresAfter is when nobody wants to know any more.
	expiresAfter = 24 * time.Hour
)

// action is what to do about an entry.
type action uint8

const (
	look  action = iota // again, later
	ask                 // send the request of the way
	ended               // with an outcome
)

// judge decides from the pod as the API server has it, nil for none of this
// name, what is to be done now. It changes nothing.
func judge(e *entry, pod *v1.Pod, way string, now time.Time) (do action, outcome string) {
	switch {
	case pod == nil || pod.UID != types.UID(e.Notice.Pod.UID):
		return ended, Gone
	case mirror(pod):
		return ended, Static
	case pod.DeletionTimestamp != nil:
		return ended, Deleting
	}
	if e.stillEnding(pod, now) {
		return look, ""
	}
	asked, spacing := e.Tries > 0, min(time.Duration(e.Tries)*patchSpacing, patchSpacingLongest)
	again := !asked || now.Sub(e.Asked) >= spacing
	switch pod.Status.Phase {
	case v1.PodFailed:
		if pod.Status.Reason == reasonEvicted && way == ByStatus {
			// Without a request of ours it is kubelet's own eviction, or was told by a
			// process that did not live to write that down.
			if !asked || now.Sub(e.Asked) >= sticksFor {
				return ended, Told
			}
			return look, ""
		}
		if way != ByStatus || e.Tries < reasonTries {
			break
		}
		if now.Sub(e.Asked) >= sticksFor {
			return ended, WithoutReason
		}
		return look, ""
	case v1.PodSucceeded:
		return ended, Ended
	}
	if again {
		return ask, ""
	}
	return look, ""
}

// stillEnding says whether kubelet is ending the pod as it was told to. Its reason
// stands, or not, only when the last container has ended (Kubernetes 1.37,
// pkg/kubelet/kubelet.go SyncTerminatingPod).
func (e *entry) stillEnding(pod *v1.Pod, now time.Time) bool {
	return e.Notice.Grace > 0 && e.Tries > 0 && takenUp(pod) && running(pod) && now.Sub(e.Notice.Time) < e.Notice.Grace+endsLate
}

// takenUp says whether kubelet's worker has the pod as one that ends: then kubelet's
// own status says that it is not ready because of that (Kubernetes 1.37,
// pkg/kubelet/status/generate.go GeneratePodReadyCondition). Our requests leave that
// condition alone.
func takenUp(pod *v1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return true
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionFalse && (c.Reason == podFailed || c.Reason == podCompleted) {
			return true
		}
	}
	return false
}

// Reasons of the condition Ready of a pod that has ended (Kubernetes 1.37,
// pkg/kubelet/status/generate.go).
const (
	podFailed    = "PodFailed"
	podCompleted = "PodCompleted"
)

func running(pod *v1.Pod) bool {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil {
				return true
			}
		}
	}
	return false
}

// mirror says whether the object is the mirror of a static pod (Kubernetes 1.37,
// pkg/kubelet/types/pod_update.go).
func mirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations["kubernetes.io/config.mirror"]
	return ok
}

// lookForKubelet is the time between two looks at a pod that kubelet was told to
// end and has not begun to, looksForKubelet how many of them come after a request.
const (
	lookForKubelet  = 300 * time.Millisecond
	looksForKubelet = 12
)

// lookAfter is when to look again after a request: soon, because a worker of
// kubelet's that won the race has written its status by then, and once more when
// its status manager must have been there.
func (e *entry) lookAfter() time.Duration {
	if e.Notice.Grace > 0 && !e.Taken && e.looks < looksForKubelet {
		return lookForKubelet // somebody waits to hear that kubelet has begun
	}
	steps := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 7 * time.Second}
	return steps[min(e.looks, len(steps)-1)]
}
