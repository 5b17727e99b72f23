package eviction

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// handOverWithin is how long kubelet may take to begin once it was told.
	handOverWithin = 3 * time.Second
	// handOverEvery is the time between two looks at a pod that kubelet ends.
	handOverEvery = 100 * time.Millisecond
)

// handsOver says whether kubelet, which can be told, is to end the pod of a soft
// eviction: it knows the order of the containers. It gives a pod its own grace and
// cannot be told of another, so this is for pods that get more than the least; and
// for all where no proxy enforces holds, because kubelet would start what we stop.
// A static pod has no status to tell by, and without a cgroup nobody could see the
// pod's end.
func handsOver(static, visible, unheld bool, grace time.Duration) bool {
	return !static && visible && (unheld || grace > leastGrace)
}

// handed is how far a pod that kubelet was told of has come.
type handed uint8

const (
	handedWait   handed = iota
	handedEnded         // no process is left
	handedUnseen        // kubelet has not begun in time
	handedLate          // it has begun, and the grace is over
)

// judgeHanded decides from what is seen at now: whether a process is left, and
// whether kubelet is known to have begun. Kubelet gives what comes after a hook at
// least leastGrace.
func judgeHanded(populated, begun bool, told, now time.Time, grace time.Duration) handed {
	switch {
	case !populated:
		return handedEnded
	case !begun && now.Sub(told) >= handOverWithin:
		return handedUnseen
	case now.Sub(told) >= grace+leastGrace:
		return handedLate
	}
	return handedWait
}

// handOver tells Kubernetes of a soft eviction and lets kubelet end the pod. took is
// false when that is not to be had, or kubelet did not begin in time: then nothing
// was asked of the pod. The error says that it did not end within its grace.
func (e *Engine) handOver(ctx context.Context, ev *softEviction, containers []string, log logrus.FieldLogger) (took bool, err error) {
	d := ev.d
	pod := d.pod()
	begun := ev.resumed && e.teller != nil && e.teller.Ending(d.ID) // a previous process told
	if len(containers) == 0 || !begun && (ev.resumed || !e.tells()) {
		return false, nil
	}
	annotations := e.annotations(ctx, containers[0], log)
	grace := graceFor(annotations, e.maxPodGrace())
	if !handsOver(e.isStatic(pod.UID), len(pod.cgroups) > 0, e.unheld(), grace) {
		return false, nil
	}
	told := e.clock()
	if begun {
		told = d.At // the grace goes on where it was
	} else {
		n := e.notice(d)
		n.Grace = grace
		e.teller.Evicted(n)
	}
	ev.report.Asked, ev.report.PodGrace = told.UTC(), grace
	if own, known := podGrace(annotations); known {
		ev.report.PodAsked = &own
	}
	d.kill.sentAt.Store(told.UnixNano())
	return e.followKubelet(ctx, ev, told, grace, log)
}

// followKubelet looks at the pod until kubelet has ended it, or is not going to.
func (e *Engine) followKubelet(ctx context.Context, ev *softEviction, told time.Time, grace time.Duration, log logrus.FieldLogger) (took bool, err error) {
	tick := time.NewTicker(handOverEvery)
	defer tick.Stop()
	begun := false
	for {
		if now := e.endedByKubelet(ev.d); now && !begun {
			begun = true
			log.Info("kubelet ends the pod")
		}
		populated, err := ev.d.pod().populated()
		switch judgeHanded(populated || err != nil, begun, told, e.clock(), grace) {
		case handedEnded:
			ev.report.ByKubelet = true
			return true, nil
		case handedLate:
			ev.report.ByKubelet = true
			return true, fmt.Errorf("kubelet was told, and the pod had %s", grace)
		case handedUnseen:
			ev.report.NotByKubelet = fmt.Sprintf("kubelet had not begun %s after it was told", handOverWithin)
			ev.report.Asked = time.Time{}
			log.Warn("kubelet was told of the soft eviction and has not begun to end the pod: it is ended through the runtime")
			return false, nil
		}
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-tick.C:
		}
	}
}

// endedByKubelet says whether kubelet is known to be ending the pod: it then runs
// the hooks as well.
func (e *Engine) endedByKubelet(d *Decision) bool {
	return e.terminating != nil && e.terminating(d.pod().UID) || e.teller != nil && e.teller.Ending(d.ID)
}
