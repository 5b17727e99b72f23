package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/holds"
)

// events are those on a pod.
func (s *stage) events(uid types.UID) []v1.Event {
	s.t.Helper()
	list := &v1.EventList{}
	s.call(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid="+string(uid), nil, list)
	return list.Items
}

// nodeEvents are those of this reason on the node.
func (s *stage) nodeEvents(reason string) []v1.Event {
	s.t.Helper()
	list := &v1.EventList{}
	s.call(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Node,reason="+reason, nil, list)
	return list.Items
}

// node is the node as the API server has it.
func (s *stage) node() *v1.Node {
	s.t.Helper()
	n := &v1.Node{}
	s.call(http.MethodGet, "/api/v1/nodes/"+nodeName, nil, n)
	return n
}

func condition(n *v1.Node, kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{}
}

// hold returns the record of a pod in the holds file.
func (s *stage) hold(uid types.UID) (holds.Record, bool) {
	r := holds.OpenReader(s.dir + "/run")
	defer func() { _ = r.Close() }() // read only
	for _, x := range r.Lookup(string(uid)) {
		if x.Holds() {
			return x, true
		}
	}
	return holds.Record{}, false
}

// awaitHold returns when a hold of the pod is visible: from now on it is being
// evicted.
func (s *stage) awaitHold(uid types.UID, within time.Duration) holds.Record {
	s.t.Helper()
	var found holds.Record
	eventually(s.t, "a hold", within, func() error {
		r, ok := s.hold(uid)
		if found = r; !ok {
			return errors.New("none")
		}
		return nil
	})
	return found
}

// awaitKilled returns when the pod is dead and held.
func (s *stage) awaitKilled(uid types.UID) {
	s.t.Helper()
	eventually(s.t, "the pod is killed", time.Minute, func() error {
		if r, ok := s.hold(uid); !ok || r.State != holds.Killed {
			return fmt.Errorf("held %t, %s", ok, r.State)
		}
		return nil
	})
}

// sandboxes says what is wrong with the sandboxes of an evicted pod: there was one
// attempt only, and it does not run.
func (s *stage) sandboxes(uid types.UID) error {
	r, err := s.direct.ListPodSandbox(s.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, b := range r.GetItems() {
		if b.GetMetadata().GetUid() != string(uid) {
			continue
		}
		if b.GetMetadata().GetAttempt() != 0 || b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return fmt.Errorf("sandbox %s: attempt %d, %s", b.GetId(), b.GetMetadata().GetAttempt(), b.GetState())
		}
	}
	return nil
}

// awaitEvicted waits until the pod's end is what it should be.
func (s *stage) awaitEvicted(pod *v1.Pod, want ending) history {
	s.t.Helper()
	if err := await(time.Minute, func() error { return evicted(s.pods.of(pod.UID), want) }); err != nil {
		s.t.Fatalf("%s is not evicted within a minute: %v\n%s", pod.Name, err, s.pods.of(pod.UID))
	}
	return s.pods.of(pod.UID)
}

// audit looks at everything about an evicted pod.
func (s *stage) audit(pod *v1.Pod, want ending, log int64) {
	s.t.Helper()
	if err := evicted(s.pods.of(pod.UID), want); err != nil {
		s.t.Errorf("%s: %v\n%s", pod.Name, err, s.pods.of(pod.UID))
	}
	if err := s.sandboxes(pod.UID); err != nil {
		s.t.Errorf("%s: %v", pod.Name, err)
	}
	// The event comes after the status.
	if err := await(20*time.Second, func() error { return said(s.events(pod.UID), want) }); err != nil {
		s.t.Errorf("%s: events: %v", pod.Name, err)
	}
	for _, l := range beyondRefusal(s.logged(log), pod) {
		if want.noReason && strings.HasPrefix(l.text, illegalTransition) {
			continue
		}
		s.t.Errorf("%s: kubelet's log: %c %s %s", pod.Name, l.level, l.file, l.text)
	}
}

// mustBeUntouched: whoever did nothing wrong has not noticed anything, these pods and
// the neighbours.
func (s *stage) mustBeUntouched(pods ...*v1.Pod) {
	s.t.Helper()
	for _, pod := range slices.Concat(s.beside, pods) {
		if err := untouched(s.pods.of(pod.UID)); err != nil {
			s.t.Errorf("%s, which did nothing wrong: %v", pod.Name, err)
		}
	}
}

// metric is a number of kubelet's own metrics, summed over its labels; 0 when
// there is none.
func (s *stage) metric(name string) float64 {
	s.t.Helper()
	sum, err := s.kubeletMetric(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return sum
}

func (s *stage) kubeletMetric(ctx context.Context, name string) (float64, error) {
	b, err := s.kubelet.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for text := range strings.SplitSeq(string(b), "\n") {
		rest, ok := strings.CutPrefix(text, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		var n float64
		if _, err := fmt.Sscan(rest[strings.LastIndex(rest, " ")+1:], &n); err == nil {
			sum += n
		}
	}
	return sum, nil
}
