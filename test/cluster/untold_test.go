package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Without a kubeconfig Kubernetes is not told, and the node alone keeps the pod
// down: refused as long as it would not fit, for a reason its owner can read; it
// can be deleted meanwhile, and runs again when there is room.
func heldWhileNotTold(s *stage) {
	s.evictor(policy{pods: s.podsThreshold(), untold: true})
	full := s.create(ballast("ballast", ballastSize))
	s.awaitRunning(full)

	doomed := s.create(smallHog("doomed"))
	s.awaitKilled(doomed.UID)
	pod := s.create(smallHog("patient"))
	s.awaitKilled(pod.UID)
	begun := time.Now()
	s.delete(doomed)
	eventually(s.t, "a held pod is deleted", 30*time.Second, func() error {
		if !s.pods.gone(doomed.UID) {
			return errors.New("it is still there")
		}
		return nil
	})
	s.t.Logf("a held pod was deleted within %v", time.Since(begun).Round(time.Millisecond))

	// kubelet tries every 10 to 15 s by itself.
	wake := s.waker(pod)
	eventually(s.t, "the pod is refused, and says why", 45*time.Second, func() error {
		wake()
		last, _ := s.pods.last(pod.UID)
		return held(last, s.events(pod.UID), 2)
	})
	if _, ok := s.hold(pod.UID); !ok {
		s.t.Error("its hold has ended although there is no room")
	}
	s.delete(full)
	eventually(s.t, "the pod runs again", 90*time.Second, func() error {
		if _, ok := s.hold(pod.UID); !ok {
			wake()
		}
		last, _ := s.pods.last(pod.UID)
		for _, c := range last.Status.ContainerStatuses {
			if c.State.Running != nil && c.RestartCount == 1 {
				return nil
			}
		}
		return fmt.Errorf("%s", jsonText(last.Status.ContainerStatuses))
	})
	s.mustBeUntouched()
	if last, _ := s.pods.last(pod.UID); last.Status.Phase != v1.PodRunning {
		s.t.Errorf("phase %s", last.Status.Phase)
	}
}

// waker returns what makes kubelet look at the pod at once, every 3 s at most, so
// that its back-off is not waited for; in `make soak` it is.
func (s *stage) waker(pod *v1.Pod) func() {
	last := time.Now()
	return func() {
		if soak(s.t) > 0 || time.Since(last) < 3*time.Second {
			return
		}
		last = time.Now()
		s.call(http.MethodPatch, podsPath+"/"+pod.Name, map[string]any{"metadata": map[string]any{"annotations": map[string]string{"awake": last.String()}}}, nil)
	}
}
