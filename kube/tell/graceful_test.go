package tell

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// kubeletTakes makes the fake kubelet take up the pod a while after it was told,
// and its container end with this code a while after that.
func (r *rig) kubeletTakes(after, ends time.Duration, code int32) {
	taken := false
	r.api.patched = func(p *v1.Pod) {
		if taken {
			if code == 0 {
				p.Status.Reason, p.Status.Message = "", ""
			}
			return
		}
		taken = true
		time.AfterFunc(after, func() {
			r.api.set(func() {
				p.Status.Reason, p.Status.Message = "", ""
				p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "PodFailed"})
				p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
			})
		})
		time.AfterFunc(after+ends, func() {
			r.api.set(func() {
				p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
				if code != 0 {
					p.Status.Reason, p.Status.Message = "Evicted", "said"
				}
			})
		})
	}
}

// A pod that kubelet is to end: that it has begun is known at once, and how it went
// when the last container has ended.
func TestKubeletIsToldToEndAPod(t *testing.T) {
	for _, tt := range []struct {
		code     int32
		outcome  string
		requests []string
	}{
		{143, Told, []string{"status"}},
		{0, WithoutReason, []string{"status", "status", "status"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, runningPod("hog"))
			r.kubeletTakes(400*time.Millisecond, 20*time.Second, tt.code)
			tell := r.start()
			defer func() { r.stop() }()
			n := noticeOf(1, "hog")
			n.Grace = 30 * time.Second
			tell.Evicted(n)
			pass(300 * time.Millisecond)
			if tell.Ending(1) {
				t.Error("kubelet had not begun")
			}
			pass(700 * time.Millisecond)
			if !tell.Ending(1) || tell.Ending(2) {
				t.Error("kubelet had begun with the first, and is told of no other")
			}
			pass(15 * time.Second)
			r.want(counts{}, "status")
			if x, ok := tell.Telling(1); !ok || x.Outcome != "" || x.Requests != 1 || x.Way != ByStatus || !x.Event {
				t.Errorf("under way: %+v", x)
			}
			pass(time.Minute)
			r.want(counts{"status " + tt.outcome: 1}, tt.requests...)
			if x, ok := tell.Telling(1); !ok || x.Outcome != tt.outcome || x.Done.IsZero() {
				t.Errorf("in the end: %+v", x)
			}
			if _, ok := tell.Telling(2); ok {
				t.Error("a telling of nothing")
			}
			r.stop()
			if again := r.start(); !again.Ending(1) {
				t.Error("that kubelet had begun is not known after a restart")
			}
		})
	}
}

// A deletion has the pod's grace while its containers run, and 1 s when they are
// dead.
func TestGraceOfADeletion(t *testing.T) {
	for grace, want := range map[time.Duration]int64{0: 1, 1500 * time.Millisecond: 2, 30 * time.Second: 30} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, runningPod("hog"))
			r.opt.Mode = ByDelete
			tell := r.start()
			defer func() { r.stop() }()
			n := noticeOf(1, "hog")
			n.Grace = grace
			tell.Evicted(n)
			pass(time.Second)
			r.api.set(func() {
				if r.api.grace != want {
					t.Errorf("grace %v: %d s, want %d", grace, r.api.grace, want)
				}
			})
			pass(10 * time.Second)
			if !tell.Ending(1) {
				t.Error("a pod that is being deleted is ended by kubelet")
			}
		})
	}
}
