package tell

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestJudge(t *testing.T) {
	pod := func(phase v1.PodPhase, reason string) *v1.Pod {
		p := runningPod("hog")
		p.Status = v1.PodStatus{Phase: phase, Reason: reason}
		return p
	}
	deleting := pod(v1.PodRunning, "")
	deleting.DeletionTimestamp = &metav1.Time{Time: moment}
	for _, tt := range []struct {
		what    string
		pod     *v1.Pod
		way     string
		tries   int
		ago     time.Duration // since the last request
		do      action
		outcome string
	}{
		{"first", pod(v1.PodRunning, ""), ByStatus, 0, 0, ask, ""},
		{"pending", pod(v1.PodPending, ""), ByStatus, 0, 0, ask, ""},
		{"kubelet wrote Failed before us", pod(v1.PodFailed, ""), ByStatus, 0, 0, ask, ""},
		{"kubelet's own eviction", pod(v1.PodFailed, "Evicted"), ByStatus, 0, 0, ended, Told},
		{"it just stands", pod(v1.PodFailed, "Evicted"), ByStatus, 1, 11 * time.Second, look, ""},
		{"it stands", pod(v1.PodFailed, "Evicted"), ByStatus, 1, 12 * time.Second, ended, Told},
		{"undone, at once", pod(v1.PodRunning, ""), ByStatus, 1, 900 * time.Millisecond, look, ""},
		{"undone", pod(v1.PodRunning, ""), ByStatus, 1, time.Second, ask, ""},
		{"undone again and again", pod(v1.PodRunning, ""), ByStatus, 50, 9 * time.Second, look, ""},
		{"undone again and again", pod(v1.PodRunning, ""), ByStatus, 50, 10 * time.Second, ask, ""},
		{"the reason is gone", pod(v1.PodFailed, ""), ByStatus, 2, 2 * time.Second, ask, ""},
		{"the reason is gone for good", pod(v1.PodFailed, ""), ByStatus, 3, 11 * time.Second, look, ""},
		{"the reason is gone for good", pod(v1.PodFailed, ""), ByStatus, 3, 12 * time.Second, ended, WithoutReason},
		{"it had succeeded", pod(v1.PodSucceeded, ""), ByStatus, 0, 0, ended, Ended},
		{"a failed pod is deleted as well", pod(v1.PodFailed, "Evicted"), ByDelete, 0, 0, ask, ""},
		{"put off by a budget", pod(v1.PodRunning, ""), ByEvict, 0, 0, ask, ""},
		{"being deleted", deleting, ByStatus, 1, 0, ended, Deleting},
		{"gone", nil, ByStatus, 1, 0, ended, Gone},
	} {
		e := &entry{Notice: notice("memory.available"), Tries: tt.tries}
		if tt.tries > 0 {
			e.Asked = moment.Add(-tt.ago)
		}
		if do, outcome := judge(e, tt.pod, tt.way, moment); do != tt.do || outcome != tt.outcome {
			t.Errorf("%s: %d %q, want %d %q", tt.what, do, outcome, tt.do, tt.outcome)
		}
	}
}

// A pod that kubelet was told to end is looked at until its last container has
// ended: before that kubelet's own status says nothing final.
func TestJudgeWhileKubeletEndsIt(t *testing.T) {
	pod := func(change ...func(p *v1.Pod)) *v1.Pod {
		p := runningPod("hog")
		p.Status.Phase = v1.PodFailed
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	taken := func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "PodFailed"}}
	}
	dead := func(p *v1.Pod) {
		p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 143}}
	}
	reason := func(p *v1.Pod) { p.Status.Reason = "Evicted" }
	runs := func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }
	for _, tt := range []struct {
		what    string
		pod     *v1.Pod
		ago     time.Duration // since the decision and the request
		do      action
		outcome string
	}{
		{"taken up, the reason is gone", pod(taken), 2 * time.Second, look, ""},
		{"still, long after", pod(taken), 39 * time.Second, look, ""},
		{"longer than it can be", pod(taken), 40 * time.Second, ask, ""},
		{"not taken up", pod(), 2 * time.Second, ask, ""},
		{"undone", pod(runs), 2 * time.Second, ask, ""},
		{"ended, the reason is there", pod(taken, dead, reason), 12 * time.Second, ended, Told},
		{"ended, the reason is gone", pod(taken, dead), 2 * time.Second, ask, ""},
	} {
		e := &entry{Notice: notice("memory.available"), Tries: 1, Asked: moment.Add(-tt.ago)}
		e.Notice.Time, e.Notice.Grace = e.Asked, 30*time.Second
		if do, outcome := judge(e, tt.pod, ByStatus, moment); do != tt.do || outcome != tt.outcome {
			t.Errorf("%s: %d %q, want %d %q", tt.what, do, outcome, tt.do, tt.outcome)
		}
	}
}
