package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A kubelet without an API server evicts nothing: all its pods are static, which it
// takes for critical. With protectStatic: false we do, and hold and release them.
func TestStandAlone(t *testing.T) {
	s := newStage(t, stageOptions{alone: true})
	threshold := s.podsThreshold()
	full := s.manifest(ballast("ballast", ballastSize))
	s.manifest(neighbour("neighbour"))
	s.awaitStatic("ballast", isRunning)
	s.awaitStatic("neighbour", isRunning)

	// The control first: the hog runs as it likes, and is told to end.
	control := s.manifest(smallHog("control"))
	s.awaitStatic("control", isRunning)
	s.awaitPodsCrossing(threshold)
	time.Sleep(withoutEviction / 2)
	if err := s.static("control", isHeld); err == nil {
		t.Error("nothing is found wrong without the evictor")
	}
	s.unlink(control)
	eventually(t, "the control is gone", time.Minute, func() error {
		if s.static("control", func(*v1.Pod) error { return nil }) == nil {
			return errors.New("it is still there")
		}
		return nil
	})

	s.evictor(policy{pods: threshold, settings: "protectStatic: false\nprotectedNamespaces: []\n"})
	log := s.logSize()
	s.manifest(smallHog("hog"))
	s.awaitStatic("hog", isHeld)
	eventually(t, "kubelet is refused, with one text", 45*time.Second, func() error { return s.refused(log, "hog-"+nodeName, times(t, 2)) })
	s.unlink(full)
	s.awaitStatic("hog", func(pod *v1.Pod) error {
		c := pod.Status.ContainerStatuses
		if len(c) != 1 || c[0].State.Running == nil || c[0].RestartCount != 1 {
			return fmt.Errorf("want one restart: %s", jsonText(pod.Status))
		}
		return nil
	})
	if err := s.static("neighbour", isRunning); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

func isRunning(pod *v1.Pod) error {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil && c.RestartCount == 0 {
			return nil
		}
	}
	return fmt.Errorf("does not run: %s", jsonText(pod.Status))
}

// isHeld: ended by us, and not started again.
func isHeld(pod *v1.Pod) error {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.Reason == "Evicted" && strings.HasPrefix(t.Message, killed.message()) && c.RestartCount == 0 {
			return nil
		}
	}
	return fmt.Errorf("is not held: %s", jsonText(pod.Status))
}

// static asks kubelet for a static pod by the name of its manifest.
func (s *stage) static(name string, is func(*v1.Pod) error) error {
	b, err := s.kubelet.Get(s.t.Context(), "/pods")
	if err != nil {
		return err
	}
	var list v1.PodList
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for i := range list.Items {
		if list.Items[i].Name == name+"-"+nodeName {
			return is(&list.Items[i])
		}
	}
	return fmt.Errorf("kubelet has no pod %s", name)
}

func (s *stage) awaitStatic(name string, is func(*v1.Pod) error) {
	s.t.Helper()
	eventually(s.t, name, 90*time.Second, func() error { return s.static(name, is) })
}

func (s *stage) unlink(path string) {
	s.t.Helper()
	if err := os.Remove(path); err != nil {
		s.t.Fatal(err)
	}
}

// refused: kubelet tried to start the pod at least so often, and was told the same.
func (s *stage) refused(log int64, pod string, often int) error {
	texts := map[string]int{}
	for _, l := range s.logged(log) {
		_, refusal, found := strings.Cut(l.text, "code = ResourceExhausted desc = pod default/"+pod+" ")
		if found && strings.HasPrefix(l.text, `"RunPodSandbox from runtime service failed"`) {
			texts[refusal]++
		}
	}
	if len(texts) != 1 {
		return fmt.Errorf("texts: %v", texts)
	}
	for _, n := range texts {
		if n < often {
			return fmt.Errorf("refused %d times", n)
		}
	}
	return nil
}
