package tell

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// Component is the source of our events.
const Component = "cri-evictd"

const reasonThresholdMet = "EvictionThresholdMet"

// evictedEvent is the event on the pod. Its name is made of the pod and the time
// of the decision, so that sending it again makes no second one.
func evictedEvent(n *eviction.Notice, node, message string, annotations map[string]string) *v1.Event {
	e := event(node, n.Pod.Name, n.Time, v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: n.Pod.Namespace, Name: n.Pod.Name, UID: types.UID(n.Pod.UID),
	})
	e.Namespace, e.Annotations, e.Reason, e.Message = n.Pod.Namespace, annotations, reasonEvicted, message
	return e
}

// thresholdEvent is the event on the node. Like kubelet's own of this reason it
// names the node without its UID (Kubernetes 1.37, pkg/kubelet/kubelet.go nodeRef).
func thresholdEvent(r v1.ResourceName, node string, at time.Time) *v1.Event {
	e := event(node, node, at, v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node})
	e.Namespace, e.Reason, e.Message = metav1.NamespaceDefault, reasonThresholdMet, fmt.Sprintf("Attempting to reclaim %s", r)
	return e
}

func event(node, name string, at time.Time, about v1.ObjectReference) *v1.Event {
	t := metav1.NewTime(at.UTC().Truncate(time.Second))
	return &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", trimmed(name), at.UnixNano())},
		InvolvedObject: about,
		Source:         v1.EventSource{Component: Component, Host: node}, ReportingController: Component, ReportingInstance: node,
		FirstTimestamp: t, LastTimestamp: t, Count: 1, Type: v1.EventTypeWarning,
	}
}

// trimmed leaves room for the number: the name of an event has at most 253 bytes.
func trimmed(name string) string {
	const most = 253 - 1 - 16
	return name[:min(len(name), most)]
}

// countedPatch makes an event that happened again count.
func countedPatch(count int32, at time.Time) ([]byte, error) {
	b, err := json.Marshal(map[string]any{"count": count, "lastTimestamp": metav1.NewTime(at.UTC().Truncate(time.Second))})
	if err != nil {
		return nil, fmt.Errorf("patch of an event: %w", err)
	}
	return b, nil
}

const (
	// thresholdEvery is the least time between two events on the node for one
	// resource.
	thresholdEvery = time.Minute
	// thresholdSame is how long it is the same event, counted.
	thresholdSame = time.Hour
)

// nodeEvent is the event on the node for one resource: one that is counted, no
// more often than once a minute.
type nodeEvent struct {
	due   bool
	at    time.Time // when it last happened
	name  string    // of the event there is; empty for none
	first time.Time
	sent  time.Time
	count int32
}

// happened takes note of it.
func (e *nodeEvent) happened(now time.Time) { e.due, e.at = true, now }

// ready says when it may be sent; zero for nothing to send.
func (e *nodeEvent) ready() time.Time {
	if !e.due {
		return time.Time{}
	}
	if e.sent.IsZero() {
		return e.at
	}
	return e.sent.Add(thresholdEvery)
}

// anew says whether another event is to be made.
func (e *nodeEvent) anew() bool { return e.name == "" || e.at.Sub(e.first) >= thresholdSame }
