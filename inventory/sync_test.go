package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// scripted is a Runtime and a Tree whose answers a test sets.
type scripted struct {
	mu       sync.Mutex
	listing  Listing
	listErr  error
	listTime time.Duration
	lists    []time.Time
	asked    []string // containers whose process was asked for
	pid      func(id string) (int, error)
	pods     []cgroupfs.PodPath
	treeErr  error
	byName   map[string]bool // containers whose cgroup is found by name
}

func (r *scripted) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *scripted) List(ctx context.Context) (Listing, error) {
	r.mu.Lock()
	r.lists = append(r.lists, time.Now())
	l, err, took := r.listing, r.listErr, r.listTime
	r.mu.Unlock()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return Listing{}, ctx.Err()
		}
	}
	return l, err
}

func (r *scripted) PID(ctx context.Context, id string) (int, error) {
	r.mu.Lock()
	r.asked = append(r.asked, id)
	pid := r.pid
	r.mu.Unlock()
	if pid == nil {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return pid(id)
}

func (r *scripted) Pods() ([]cgroupfs.PodPath, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods, r.treeErr
}

func (r *scripted) Recover(_ string, c Container) (Recovered, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Recovered{ContainerID: c.ID, OOMScoreAdj: 900}, c.Cgroup != "" || r.byName[c.ID]
}

func (r *scripted) Container(_, id string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return "/x/" + id, r.byName[id]
}

func (r *scripted) CgroupOf(pid int) (string, error) {
	if pid < 0 {
		return "", errors.New("no such process")
	}
	return fmt.Sprintf("/of/%d", pid), nil
}

func (r *scripted) listCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lists)
}

// syncing runs a Syncer in a bubble of made-up time until test returns.
func syncing(t *testing.T, r *scripted, test func(t *testing.T, s *Syncer, store *Store, log *logtest.Hook)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		logger, hook := logtest.NewNullLogger()
		logger.SetLevel(logrus.DebugLevel)
		store := NewStore(Options{MemTotal: 1 << 30})
		s := NewSyncer(store, r, r, time.Now, logger)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		synctest.Wait()
		test(t, s, store, hook)
		cancel()
		<-done
	})
}

// after lets d pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d) // made-up time of the bubble
	synctest.Wait()
}

func messages(h *logtest.Hook) []string {
	var out []string
	for _, e := range h.AllEntries() {
		out = append(out, e.Level.String()+": "+e.Message)
	}
	return out
}

func TestListsAtStartAndEveryFiveMinutes(t *testing.T) {
	r := &scripted{listing: Listing{Sandboxes: []ListedSandbox{listed("s1", "a", true)}}}
	syncing(t, r, func(t *testing.T, s *Syncer, store *Store, log *logtest.Hook) {
		if r.listCount() != 1 || state(store) != "a[s1|]" || !s.State().Listed {
			t.Fatalf("%d lists, %q, %+v", r.listCount(), state(store), s.State())
		}
		select {
		case <-s.Changed():
		default:
			t.Error("not told that something changed")
		}
		after(5*time.Minute - time.Second)
		if n := r.listCount(); n != 1 {
			t.Errorf("%d lists before five minutes were over", n)
		}
		after(2 * time.Second)
		if n := r.listCount(); n != 2 {
			t.Errorf("%d lists after five minutes", n)
		}
		if got := messages(log); len(got) != 1 {
			t.Errorf("said %v, want one line", got)
		}
	})
}

func TestDirtyListsAtOnce(t *testing.T) {
	r := &scripted{}
	syncing(t, r, func(t *testing.T, s *Syncer, store *Store, _ *logtest.Hook) {
		after(time.Millisecond)
		s.Take(Event{Type: Dirty})
		synctest.Wait()
		if n := r.listCount(); n != 2 {
			t.Errorf("%d lists, want one for the dirty event", n)
		}
		s.Take(started(1, "s1", "a", "")) // older than the list, which lacks it
		e := started(1, "s2", "b", "")
		e.Time = time.Now().Add(time.Millisecond)
		s.Take(e)
		if state(store) != "b[s2|]" {
			t.Errorf("%q", state(store))
		}
	})
}

// bugs.md B89: a list that fails is tried again, said once, and what is known is
// not taken for current.
func TestFailingListIsRetriedAndSaidOnce(t *testing.T) {
	r := &scripted{listErr: errors.New("no runtime")}
	unknown, _ := cgroupfs.ParsePodPath("/kubepods/podx")
	r.pods = []cgroupfs.PodPath{unknown} // as on every node that has pods
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, log *logtest.Hook) {
		after(time.Minute)
		if n := r.listCount(); n < 10 || n > 20 {
			t.Errorf("%d tries in a minute, want them to become rarer up to every %s", n, retryLongest)
		}
		st := s.State()
		if st.Listed || st.ListError != "listing sandboxes and containers: no runtime" {
			t.Errorf("%+v", st)
		}
		if got := messages(log); len(got) != 1 || got[0] != "warning: the inventory is not current; nothing new is judged by it" {
			t.Errorf("said %v", got)
		}
		r.set(func() { r.listErr, r.pods = nil, nil })
		after(retryLongest)
		if st := s.State(); !st.Listed || st.ListError != "" {
			t.Errorf("after the runtime is back: %+v", st)
		}
		n := r.listCount()
		after(time.Minute)
		if r.listCount() != n {
			t.Error("still retrying after a success")
		}
		if got := messages(log); len(got) != 2 || got[1] != "info: inventory read from the runtime" {
			t.Errorf("said %v", got)
		}
	})
}

// A reconnect is worth a try at once, whatever the retries are at.
func TestReconnectListsAtOnceWhileFailing(t *testing.T) {
	r := &scripted{listErr: errors.New("no runtime")}
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, _ *logtest.Hook) {
		after(time.Minute + 7*time.Millisecond)
		r.set(func() { r.listErr = nil })
		s.MarkDirty()
		synctest.Wait()
		if !s.State().Listed {
			t.Error("not listed at once")
		}
	})
}

// bugs.md B90: our lists are spaced out when the runtime is slow.
func TestSlowRuntimeIsSpacedOut(t *testing.T) {
	r := &scripted{listTime: 3 * time.Second}
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, _ *logtest.Hook) {
		for range 120 {
			s.MarkDirty()
			after(time.Second)
		}
		if n := r.listCount(); n < 3 || n > 5 {
			t.Errorf("%d lists of 3 s in 2 min although dirty all the time, want one every 33 s", n)
		}
	})
}

// A runtime that does not answer in time gets as much time again, also when
// something makes the inventory dirty all the time.
func TestHangingRuntimeIsSpacedOut(t *testing.T) {
	unknown, _ := cgroupfs.ParsePodPath("/kubepods/podx")
	r := &scripted{listTime: time.Hour, pods: []cgroupfs.PodPath{unknown}}
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, log *logtest.Hook) {
		for range 10 * 60 {
			s.MarkDirty()
			after(time.Second)
		}
		if n := r.listCount(); n < 25 || n > 31 {
			t.Errorf("%d lists in 10 min, want one every 20 s: 10 s of waiting, 10 s of rest", n)
		}
		if got := messages(log); len(got) != 1 {
			t.Errorf("said %v", got)
		}
	})
}

func TestRefresh(t *testing.T) {
	r := &scripted{}
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, _ *logtest.Hook) {
		after(9 * time.Second)
		if err := s.Refresh(t.Context(), 10*time.Second); err != nil || r.listCount() != 1 {
			t.Errorf("9 s old: %v, %d lists", err, r.listCount())
		}
		after(2 * time.Second)
		if err := s.Refresh(t.Context(), 10*time.Second); err != nil || r.listCount() != 2 {
			t.Errorf("11 s old: %v, %d lists", err, r.listCount())
		}
		after(time.Minute)
		r.set(func() { r.listErr = errors.New("gone") })
		if err := s.Refresh(t.Context(), 10*time.Second); err == nil {
			t.Error("the failure is not returned")
		}
	})
}

func TestOutOfBandContainerIsNoticedThroughTheTree(t *testing.T) {
	r := &scripted{}
	syncing(t, r, func(t *testing.T, _ *Syncer, store *Store, _ *logtest.Hook) {
		after(20 * time.Second)
		p, _ := cgroupfs.ParsePodPath("/kubepods/burstable/poduid-a")
		r.set(func() {
			r.pods = []cgroupfs.PodPath{p}
			r.listing = Listing{Sandboxes: []ListedSandbox{listed("s1", "a", true)}, Containers: []Container{run("c1", "s1")}}
			r.byName = map[string]bool{"c1": true}
		})
		after(treeEvery)
		got, ok := store.Snapshot().Pod("uid-a")
		if !ok || got.Cgroup != p.Path || got.Containers[0].OOMScoreAdj == nil || got.Request.Source != FromCRI {
			t.Errorf("a second later: %+v", got)
		}
		if n := r.listCount(); n != 2 {
			t.Errorf("%d lists", n)
		}
	})
}

func TestTreeThatCannotBeReadIsSaidOnce(t *testing.T) {
	r := &scripted{treeErr: errors.New("input/output error")}
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, log *logtest.Hook) {
		after(10 * time.Second)
		if st := s.State(); st.TreeError != "input/output error" || !st.Listed {
			t.Errorf("%+v", st)
		}
		r.set(func() { r.treeErr = nil })
		after(10 * time.Second)
		if st := s.State(); st.TreeError != "" {
			t.Errorf("%+v", st)
		}
		want := []string{"warning: the pods' cgroup tree cannot be read; out-of-band changes go unnoticed until the next list", "info: inventory read from the runtime", "info: the pods' cgroup tree can be read again"}
		if got := messages(log); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("said %v\nwant %v", got, want)
		}
	})
}
