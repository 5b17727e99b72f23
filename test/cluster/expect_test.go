package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// These say what is wrong with what was recorded, nil when nothing is. They are
// the assertions; a control run, without the evictor, must fail them.

// ending is what an eviction has to look like in the API.
type ending struct {
	resource string // of kubelet's message; memory when empty
	exit     int32  // of every container that ran at the time
	// noReason: every container ended with 0, and kubelet takes the reason back
	// (Kubernetes issues 120182 and 141483).
	noReason bool
	// unseen: the runtime was killed meanwhile, and may say 255 of an end that it has
	// not seen itself.
	unseen bool
	// settling is how long kubelet may take it for what it was; 0: see below.
	settling time.Duration
}

// killed is the end by SIGKILL.
var killed = ending{exit: 137}

// evicted: the pod is Failed, reason Evicted, kubelet's message, DisruptionTarget,
// nothing of it was started again, and it never was anything else afterwards.
func evicted(h history, want ending) error {
	if len(h) == 0 {
		return errors.New("nothing is recorded")
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	last := h[len(h)-1].pod
	st := &last.Status
	reason, message := "Evicted", want.message()
	if want.noReason {
		reason, message = "", ""
	}
	if st.Phase != v1.PodFailed || st.Reason != reason {
		wrong("phase %q, reason %q; want Failed, %q", st.Phase, st.Reason, reason)
	}
	if !strings.HasPrefix(st.Message, message) || want.noReason && st.Message != "" {
		wrong("message %q, want %q…", st.Message, message)
	}
	if err := disrupted(last, want); err != nil {
		errs = append(errs, err)
	}
	ended := 0
	for _, c := range allContainers(last) {
		if c.RestartCount != 0 {
			wrong("container %s was restarted %d times", c.Name, c.RestartCount)
		}
		switch t := c.State.Terminated; {
		case t == nil:
			wrong("container %s has not ended: %s", c.Name, jsonText(c.State))
		case t.ExitCode == want.exit, want.unseen && t.ExitCode == 255:
			ended++
		case t.Reason != "Completed":
			wrong("container %s ended with %d (%s), want %d", c.Name, t.ExitCode, t.Reason, want.exit)
		}
	}
	if ended == 0 {
		wrong("no container ended with %d", want.exit)
	}
	return errors.Join(append(errs, settled(h, cmp.Or(want.settling, settling))...)...)
}

// message is how kubelet's begins (Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go evictionMessage).
func (e ending) message() string {
	r := e.resource
	if r == "" {
		r = "memory"
	}
	return "The node was low on resource: " + r + ". Threshold quantity: "
}

// disrupted: the condition that controllers look at.
func disrupted(pod *v1.Pod, want ending) error {
	for _, c := range pod.Status.Conditions {
		if c.Type != v1.DisruptionTarget {
			continue
		}
		if c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonTerminationByKubelet || !strings.HasPrefix(c.Message, want.message()) {
			return fmt.Errorf("condition %s", jsonText(c))
		}
		return nil
	}
	return errors.New("no condition DisruptionTarget")
}

// settling is how long kubelet may take a pod that is Failed for what it was: it
// writes once more what it was about to write when it was told, which takes the
// longer the more the machine has to do (1.06 s was seen).
const settling = 5 * time.Second

// settled: once Failed a pod stays Failed.
func settled(h history, settling time.Duration) (errs []error) {
	failed := time.Time{}
	for _, m := range h {
		switch phase := m.pod.Status.Phase; {
		case phase == v1.PodFailed && failed.IsZero():
			failed = m.at
		case phase != v1.PodFailed && !failed.IsZero() && m.at.Sub(failed) > settling:
			errs = append(errs, fmt.Errorf("%s after it was Failed it became %s", m.at.Sub(failed).Round(time.Millisecond), phase))
		}
	}
	return errs
}

// firstFailed is when it became so.
func (h history) firstFailed() time.Time {
	for _, m := range h {
		if m.pod.Status.Phase == v1.PodFailed {
			return m.at
		}
	}
	return time.Time{}
}

// stableSince is from when on phase, reason, message, conditions and containers
// were what they are now.
func (h history) stableSince() time.Time {
	var since time.Time
	for i := len(h) - 1; i >= 0; i-- {
		if !sameEnd(h[i].pod, h[len(h)-1].pod) {
			break
		}
		since = h[i].at
	}
	return since
}

func sameEnd(a, b *v1.Pod) bool {
	return a.Status.Phase == b.Status.Phase && a.Status.Reason == b.Status.Reason && a.Status.Message == b.Status.Message &&
		jsonText(a.Status.Conditions) == jsonText(b.Status.Conditions) && jsonText(allContainers(a)) == jsonText(allContainers(b))
}

func allContainers(pod *v1.Pod) []v1.ContainerStatus {
	return append(append([]v1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

// untouched: the pod runs in the containers it had from the beginning, and has been
// ready ever since it was for the first time.
func untouched(h history) error {
	var errs []error
	ids, ready := map[string]string{}, false
	for _, m := range h {
		if m.deleted {
			errs = append(errs, errors.New("it was deleted"))
		}
		for _, c := range m.pod.Status.ContainerStatuses {
			switch {
			case c.Ready && ids[c.Name] == "":
				ids[c.Name] = c.ContainerID
				ready = true
			case ids[c.Name] == "":
			case c.ContainerID != ids[c.Name]:
				errs = append(errs, fmt.Errorf("container %s is another one: %s", c.Name, c.ContainerID))
			case !c.Ready:
				errs = append(errs, fmt.Errorf("container %s is not ready: %s", c.Name, jsonText(c.State)))
			}
		}
	}
	if !ready {
		errs = append(errs, errors.New("it never was ready"))
	}
	return errors.Join(errs...)
}

// said: kubelet's event on the pod, from us, with kubelet's annotations, once; and
// kubelet's refused attempts in one event, counted.
func said(events []v1.Event, want ending) error {
	var errs []error
	ours, refused := 0, 0
	for _, e := range events {
		switch {
		case e.Reason == "Evicted" && e.Source.Component == "cri-evictd":
			ours++
			if !strings.HasPrefix(e.Message, want.message()) || e.Annotations["starved_resource"] == "" || e.Type != v1.EventTypeWarning {
				errs = append(errs, fmt.Errorf("event %s", jsonText(e)))
			}
		case e.Reason == "FailedCreatePodSandBox":
			refused++
		case e.Reason == "Evicted":
			errs = append(errs, fmt.Errorf("kubelet's own event: %s", e.Message))
		}
	}
	if ours != 1 || refused > 1 {
		errs = append(errs, fmt.Errorf("%d events Evicted, want 1; %d FailedCreatePodSandBox, want at most 1", ours, refused))
	}
	return errors.Join(errs...)
}

// held: the pod was ended on the node and is kept from starting, and its owner can
// see why. refusals is how often kubelet must have tried.
func held(pod *v1.Pod, events []v1.Event, refusals int32) error {
	var errs []error
	for _, c := range pod.Status.ContainerStatuses {
		t := c.State.Terminated
		if t == nil || t.Reason != "Evicted" || !strings.HasPrefix(t.Message, killed.message()) {
			errs = append(errs, fmt.Errorf("container %s: %s", c.Name, jsonText(c.State)))
		}
		if c.RestartCount != 0 {
			errs = append(errs, fmt.Errorf("container %s was restarted", c.Name))
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		errs = append(errs, errors.New("no container has a status"))
	}
	var refused []v1.Event
	for _, e := range events {
		if e.Reason == "FailedCreatePodSandBox" {
			refused = append(refused, e)
		}
	}
	if len(refused) != 1 || refused[0].Count < refusals || !strings.Contains(refused[0].Message, "was evicted for allocatableMemory.available by cri-evictd and is held until the pressure is over") {
		errs = append(errs, fmt.Errorf("want one event, counted at least %d times, with our text: %s", refusals, jsonText(refused)))
	}
	return errors.Join(errs...)
}
