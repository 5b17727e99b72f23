package apiwatch

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
)

// rig is a watcher on a server with faults; the clock is the bubble's.
type rig struct {
	*server
	t        *testing.T
	store    *kube.Store
	feed     *kube.Feed
	watcher  *Watcher
	log      *logtest.Hook
	connects int
	connect  error
}

// play runs test in a bubble with a running watcher.
func play(t *testing.T, setUp, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		r := &rig{server: &server{version: 100}, t: t, store: kube.NewStore(time.Now), log: hook}
		r.feed = r.store.Feed(inventory.FromAPI)
		r.watcher = New(Options{Node: "n1", Feed: r.feed, Clock: time.Now, Log: log, Connect: func() (Pods, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.connects++
			return r.server, r.connect
		}})
		setUp(r)
		go r.watcher.Run(t.Context())
		synctest.Wait()
		test(r)
	})
}

// priority returns the record's priority, -1 if there is no record.
func (r *rig) priority(name string) int32 {
	rec, ok := r.store.Record("uid-" + name)
	if !ok {
		return -1
	}
	return rec.Priority
}

func (r *rig) lines(level logrus.Level) (n int) {
	for _, e := range r.log.AllEntries() {
		if e.Level == level {
			n++
		}
	}
	return n
}

// connected counts how often the kubeconfig was read.
func (r *rig) connected() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connects
}

func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func nothing(*rig) {}

func TestListThenWatch(t *testing.T) {
	play(t, func(r *rig) {
		for i := range 2*page + 1 {
			r.pods = append(r.pods, *pod(strings.Repeat("x", i+1), 1, int32(i)))
		}
	}, func(r *rig) {
		if got := len(r.feed.UIDs()); got != 2*page+1 {
			t.Errorf("%d pods after the list, want %d", got, 2*page+1)
		}
		if len(r.lists) != 3 || r.lists[0].FieldSelector != "spec.nodeName=n1" {
			t.Errorf("asked for %d pages (%+v), want 3 of this node's pods", len(r.lists), r.lists)
		}
		if w := r.watches[0]; w.ResourceVersion != "100" || w.FieldSelector != "spec.nodeName=n1" || !w.AllowWatchBookmarks {
			t.Errorf("watch from %+v, want the list's version", w)
		}
		r.stream.Add(pod("new", 101, 7))
		r.stream.Modify(pod("x", 102, 8))
		r.stream.Delete(pod("xx", 103, 1))
		synctest.Wait()
		if a, b, c := r.priority("new"), r.priority("x"), r.priority("xx"); a != 7 || b != 8 || c != -1 {
			t.Errorf("priorities after the events are %d, %d, %d, want 7, 8, none", a, b, c)
		}
		if s := r.watcher.Status(); !s.Connected || s.Lists != 1 || s.Watches != 1 {
			t.Errorf("status %+v, want connected after one list and one watch", s)
		}
	})
}

func TestBookmarksKeepTheFeedFreshAndMoveTheVersion(t *testing.T) {
	play(t, nothing, func(r *rig) {
		r.after(3 * time.Minute)
		r.stream.Action(watch.Bookmark, &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "150"}})
		synctest.Wait()
		if age := time.Since(r.feed.State().At); age != 0 {
			t.Errorf("the feed is %v old after a bookmark, want 0", age)
		}
		r.stream.Stop()
		synctest.Wait()
		if lists, watches := r.calls(); lists != 1 || watches != 2 || r.watches[1].ResourceVersion != "150" {
			t.Errorf("after the watch's end %d lists and watches %+v, want one list, and a watch from 150", lists, r.watches)
		}
		if r.lines(logrus.WarnLevel) != 0 {
			t.Error("the ordinary end of a watch was warned of")
		}
	})
}

func TestAwayIsOneLineAndAges(t *testing.T) {
	play(t, func(r *rig) { r.pods = []v1.Pod{*pod("a", 1, 5)} }, func(r *rig) {
		r.set(func() { r.down = errRefused })
		r.stream.Error(&apierrors.NewInternalError(errRefused).ErrStatus)
		r.after(time.Hour)
		if n := r.lines(logrus.WarnLevel); n != 1 {
			t.Errorf("an hour without the API server is %d lines, want 1", n)
		}
		lists, _ := r.calls()
		if most := int(time.Hour/(longestWait/2)) + 20; lists > most || lists < 100 {
			t.Errorf("asked %d times in an hour, want 100 to %d", lists, most)
		}
		s, f := r.watcher.Status(), r.feed.State()
		if s.Connected || s.Problem == "" || time.Since(s.Since) < time.Hour-time.Minute || f.OK || time.Since(f.At) < time.Hour-time.Minute {
			t.Errorf("status %+v, feed %+v: want an absence of an hour", s, f)
		}
		if r.priority("a") != 5 {
			t.Error("what was known of the pod is gone")
		}
		r.set(func() { r.down, r.pods = nil, []v1.Pod{*pod("b", 2, 6)} })
		r.after(longestWait)
		if r.priority("a") != -1 || r.priority("b") != 6 {
			t.Error("the list after the absence was not taken over")
		}
		if n := r.lines(logrus.InfoLevel); n != 2 || !r.watcher.Status().Connected {
			t.Errorf("%d lines of being there, want 2", n)
		}
	})
}

func TestAwayAtTheStart(t *testing.T) {
	play(t, func(r *rig) { r.connect = fs.ErrNotExist }, func(r *rig) {
		r.after(10 * time.Minute)
		if n, c := r.lines(logrus.WarnLevel), r.connected(); n != 1 || c < 10 {
			t.Errorf("%d lines and %d attempts in ten minutes without a kubeconfig, want 1 line and one attempt in 30 s", n, c)
		}
		r.set(func() { r.connect = nil })
		r.after(longestWait)
		if !r.watcher.Status().Connected {
			t.Error("not connected after the kubeconfig came")
		}
	})
}

func TestExpiredVersionIsListedAgain(t *testing.T) {
	for name, expire := range map[string]func(r *rig){
		"event": func(r *rig) { r.stream.Error(&apierrors.NewResourceExpired("too old").ErrStatus) },
		"call": func(r *rig) {
			r.set(func() { r.watchErr = apierrors.NewResourceExpired("too old") })
			r.stream.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nothing, func(r *rig) {
				r.after(time.Minute)
				r.set(func() { r.pods = []v1.Pod{*pod("a", 200, 9)} })
				expire(r)
				synctest.Wait()
				if r.priority("a") != 9 || r.lines(logrus.WarnLevel) != 0 {
					t.Errorf("priority %d and %d warnings, want the new list at once and none", r.priority("a"), r.lines(logrus.WarnLevel))
				}
			})
		})
	}
}

func TestUnauthorizedReadsTheKubeconfigAgain(t *testing.T) {
	play(t, nothing, func(r *rig) {
		r.set(func() { r.down = apierrors.NewUnauthorized("token expired") })
		r.stream.Error(&apierrors.NewUnauthorized("token expired").ErrStatus)
		r.after(time.Minute)
		before := r.connected()
		if before < 3 {
			t.Errorf("connected %d times, want again after each refusal", before)
		}
		r.set(func() { r.down = errRefused })
		r.after(10 * time.Minute)
		if r.connected() > before+1 {
			t.Error("a server that is away made the kubeconfig be read again")
		}
	})
}

func TestWatchesThatEndAtOnce(t *testing.T) {
	play(t, nothing, func(r *rig) {
		for range 5 {
			r.stream.Stop() // nothing but ended watches, for a second each
			synctest.Wait()
		}
		_, watches := r.calls()
		if watches > 2 {
			t.Errorf("%d watches in no time, want a wait in between", watches)
		}
	})
}

func TestForbiddenIsSaid(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("not this node"))
	play(t, func(r *rig) { r.down = forbidden }, func(r *rig) {
		r.after(time.Minute)
		if !strings.Contains(r.watcher.Status().Problem, "not this node") {
			t.Errorf("status %+v does not say what the API server said", r.watcher.Status())
		}
		if !slices.ContainsFunc(r.log.AllEntries(), func(e *logrus.Entry) bool { return e.Level == logrus.WarnLevel }) {
			t.Error("nothing in the log")
		}
	})
}
