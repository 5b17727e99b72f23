package tell

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type counts = map[string]uint64

func TestToldAndVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		tell := r.start()
		defer r.stop()
		pass(0)
		if s := tell.State(); !tell.Working() || s.Way != ByStatus || !s.Reachable || s.Server != "https://fake" {
			t.Errorf("before: %+v", s)
		}
		tell.Evicted(noticeOf(1, "hog"))
		tell.Evicted(noticeOf(1, "hog")) // again: the engine found it dead once more
		pass(0)
		r.want(counts{}, "status") // at once, and not over before it stood for long enough
		if s := tell.State(); s.Verifying != 1 || s.Queued != 0 {
			t.Errorf("while it is verified: %+v", s)
		}
		r.api.set(func() {
			p := r.api.pods["default/hog"]
			if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || p.Annotations[EvictedAnnotation] == "" || len(r.api.events) != 1 {
				t.Errorf("pod %+v %v, events %d", p.Status, p.Annotations, len(r.api.events))
			}
		})
		pass(14 * time.Second)
		r.want(counts{"status told": 1}, "status")
		tell.Evicted(noticeOf(1, "hog"))
		pass(time.Minute)
		r.want(counts{"status told": 1}, "status")
	})
}

// kubelet writes its own status back: told again until it sticks, each time with
// another annotation.
func TestOverwrittenIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		seen := map[string]bool{}
		r.api.patched = func(p *v1.Pod) {
			seen[p.Annotations[EvictedAnnotation]] = true
			if len(seen) < 3 {
				time.AfterFunc(5*time.Second, func() {
					r.api.set(func() { p.Status = v1.PodStatus{Phase: v1.PodRunning} })
				})
			}
		}
		tell := r.start()
		defer r.stop()
		tell.Evicted(noticeOf(1, "hog"))
		pass(time.Minute)
		r.want(counts{"status told": 1}, "status", "status", "status")
		if len(seen) != 3 {
			t.Errorf("annotations %v", seen)
		}
	})
}

// A pod whose containers all ended with 0 keeps no reason, whatever is set.
func TestReasonTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		r.api.patched = func(p *v1.Pod) { p.Status.Reason, p.Status.Message = "", "" }
		tell := r.start()
		defer r.stop()
		tell.Evicted(noticeOf(1, "hog"))
		pass(time.Minute)
		r.want(counts{"status withoutReason": 1}, "status", "status", "status")
	})
}

// The API server is away during the eviction and over a restart of ours: told
// once, the oldest first.
func TestQueuedOverOutageAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("a"), runningPod("b"))
		r.api.down = errRefused
		tell := r.start()
		tell.Evicted(noticeOf(7, "b"))
		tell.Evicted(noticeOf(3, "a"))
		pass(10 * time.Minute)
		if s := tell.State(); s.Queued != 2 || s.Reachable || s.Problem == "" || s.OldestAge != 10*time.Minute || tell.Working() {
			t.Errorf("while it is away: %+v", s)
		}
		r.stop()
		tell = r.start()
		tell.Evicted(noticeOf(3, "a")) // its hold stands: the engine says so again
		pass(time.Minute)
		var order []string
		r.api.set(func() {
			r.api.down = nil
			r.api.patched = func(p *v1.Pod) { order = append(order, p.Name) }
		})
		pass(awayLongest + sticksFor + 10*time.Second)
		r.want(counts{"status told": 2}, "status", "status")
		if len(order) != 2 || order[0] != "a" {
			t.Errorf("told %v, want the oldest first", order)
		}
		r.stop()
		tell = r.start()
		defer r.stop()
		tell.Evicted(noticeOf(3, "a"))
		tell.Evicted(noticeOf(7, "b"))
		pass(time.Minute)
		r.want(counts{}, "status", "status")
		r.api.set(func() {
			if len(r.api.events) != 2 {
				t.Errorf("%d events", len(r.api.events))
			}
		})
	})
}

// A process that told and did not live to write that down does not tell twice.
func TestToldByAProcessThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := runningPod("hog")
		pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}
		r := newRig(t, pod)
		tell := r.start()
		defer r.stop()
		tell.Evicted(noticeOf(1, "hog"))
		pass(time.Second)
		r.want(counts{"status told": 1})
	})
}

// The pod may run again before it could be told: it must not be ended by that.
func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"), runningPod("old"))
		r.api.down = errRefused
		tell := r.start()
		tell.Evicted(noticeOf(1, "hog"))
		pass(time.Minute)
		tell.Withdraw(1)
		tell.Evicted(noticeOf(2, "old"))
		pass(time.Second)
		r.stop()
		r.opt.BootID = "another boot"
		r.api.down = nil
		r.start()
		defer r.stop()
		pass(2 * time.Minute)
		r.want(counts{"status withdrawn": 1}) // that of the other boot; the first was counted before
		r.api.set(func() {
			if len(r.api.events) != 2 {
				t.Errorf("%d events: that they were evicted is true all the same", len(r.api.events))
			}
		})
	})
}

func TestPodsThatAreNotToldOf(t *testing.T) {
	deleting, mirrored, other := runningPod("deleting"), runningPod("mirrored"), runningPod("other")
	mirrored.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
	other.UID = "a new pod of that name"
	synctest.Test(t, func(t *testing.T) {
		deleting.DeletionTimestamp = nowTime()
		r := newRig(t, deleting, mirrored, other)
		tell := r.start()
		defer r.stop()
		for i, name := range []string{"deleting", "mirrored", "other", "gone"} {
			tell.Evicted(noticeOf(uint64(i+1), name))
		}
		static := noticeOf(9, "static")
		static.Static = true
		tell.Evicted(static)
		pass(time.Minute)
		r.want(counts{"status deleting": 1, "status static": 2, "status gone": 2})
	})
}

func TestFallback(t *testing.T) {
	for _, tt := range []struct {
		forbidden []string
		way       string
		outcome   string
		calls     []string
	}{
		{[]string{"status"}, ByEvict, Gone, []string{"evict"}},
		{[]string{"status", "evict"}, ByDelete, Deleting, []string{"status", "delete"}},
		{[]string{"status", "evict", "delete"}, None, "", nil},
		{[]string{"list"}, ByStatus, Told, []string{"status"}},
		{[]string{"list", "get"}, ByStatus, Told, []string{"status"}}, // blind
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, runningPod("hog"))
			for _, kind := range tt.forbidden {
				r.api.fails[kind] = errNoRight
			}
			tell := r.start()
			defer r.stop()
			tell.Evicted(noticeOf(1, "hog"))
			pass(30 * time.Second)
			want := counts{}
			if tt.outcome != "" {
				want[tt.way+" "+tt.outcome] = 1
			}
			r.want(want, tt.calls...)
			s := tell.State()
			if s.Way != tt.way || s.Fallback == "" || tell.Working() != (tt.way != None) {
				t.Errorf("%v: %+v", tt.forbidden, s)
			}
			r.api.set(func() {
				if len(r.api.events) != 1 {
					t.Errorf("%v: %d events", tt.forbidden, len(r.api.events))
				}
			})
		})
	}
}

// The right is taken away while we run, and given again.
func TestRightTakenAwayAndGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		tell := r.start()
		defer r.stop()
		pass(0)
		r.api.set(func() {
			r.api.fails = map[string]error{"status": errNoRight, "evict": errNoRight, "delete": errNoRight}
		})
		tell.Evicted(noticeOf(1, "hog"))
		pass(2 * time.Minute)
		if s := tell.State(); s.Way != None || s.Queued != 1 {
			t.Errorf("%+v", s)
		}
		r.api.set(func() { r.api.fails, r.api.calls = map[string]error{}, nil })
		pass(probeEvery + sticksFor + 10*time.Second)
		r.want(counts{"status told": 1}, "status")
	})
}

// A disruption budget puts an eviction off, and no longer.
func TestBudgetPutsItOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		r.opt.Mode = ByEvict
		r.api.fails["evict"] = apierrors.NewTooManyRequests("budget", 0)
		tell := r.start()
		defer r.stop()
		tell.Evicted(noticeOf(1, "hog"))
		pass(35 * time.Second)
		r.api.set(func() { delete(r.api.fails, "evict") })
		pass(laterAfter + 2*time.Second)
		r.want(counts{"evict gone": 1}, "evict", "evict", "evict", "evict", "evict")
	})
}

// Whatever the disk does, Kubernetes is told.
func TestDiskThatHangsOrFails(t *testing.T) {
	for name, q := range map[string]*fakeQueue{"fails": {err: errors.New("no space left")}, "hangs": {hangs: make(chan struct{})}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, runningPod("hog"))
			q.kept = r.queue.kept
			if q.hangs != nil {
				q.hangs = make(chan struct{})
			}
			r.queue, r.opt.Queue = q, q
			tell := r.start()
			defer r.stop()
			tell.Evicted(noticeOf(1, "hog"))
			pass(20 * time.Second)
			r.want(counts{"status told": 1}, "status")
			if s := tell.State(); (s.QueueProblem != "") != (name == "fails") {
				t.Errorf("%s: %+v", name, s)
			}
			if q.hangs != nil {
				close(q.hangs)
			}
			q.mu.Lock()
			q.err = nil
			q.mu.Unlock()
			pass(keepRetry)
			if q.mu.Lock(); len(q.kept) != 1 {
				t.Errorf("%s: kept %v when it is well again", name, q.kept)
			}
			q.mu.Unlock()
			if s := tell.State(); s.QueueProblem != "" {
				t.Errorf("%s: %+v", name, s)
			}
		})
	}
}

func TestCredentialsThatExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		tell := r.start()
		defer r.stop()
		pass(0)
		r.api.set(func() { r.api.down = apierrors.NewUnauthorized("expired") })
		tell.Evicted(noticeOf(1, "hog"))
		pass(time.Second)
		r.api.set(func() { r.api.down = nil })
		pass(20 * time.Second)
		r.want(counts{"status told": 1}, "status")
		if r.connects.Load() < 2 {
			t.Error("the kubeconfig was not read again")
		}
	})
}

// A kubeconfig that is not there yet, as before kubelet's bootstrap.
func TestKubeconfigThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		connect := r.opt.Connect
		var there atomic.Bool
		r.opt.Connect = func() (API, error) {
			if !there.Load() {
				return nil, errors.New("no such file")
			}
			return connect()
		}
		tell := r.start()
		defer r.stop()
		tell.Evicted(noticeOf(1, "hog"))
		pass(5 * time.Minute)
		there.Store(true)
		pass(time.Minute)
		r.want(counts{"status told": 1}, "status")
	})
}

func TestRefusedForOnePodAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, runningPod("hog"))
		tell := r.start()
		defer r.stop()
		pass(0)
		r.api.set(func() { r.api.fails["status"] = apierrors.NewBadRequest("a webhook says no") })
		tell.Evicted(noticeOf(1, "hog"))
		pass(9 * time.Minute)
		r.want(counts{"status refused": 1}, slices.Repeat([]string{"status"}, refusalsMost)...)
	})
}
