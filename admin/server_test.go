package admin

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/golden"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// The JSON others build upon.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct{ name, method, path string }{
		{"status", "GET", "/v1/status"},
		{"explain", "GET", "/v1/explain"},
		{"explain-running", "GET", "/v1/explain?pod=default/meek"},
		{"explain-held", "GET", "/v1/explain?pod=" + hog.UID},
		{"explain-past", "GET", "/v1/explain?pod=other/past"},
		{"holds", "GET", "/v1/holds"},
		{"release", "POST", "/v1/holds/release?pod=default/hog"},
		{"release-uid", "POST", "/v1/holds/release?pod=" + hog.UID},
		{"release-all", "POST", "/v1/holds/release?all=true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := serve(t, newFixed(), goodProxy)
			code, body := raw(t, socket, tt.method, tt.path)
			if code != http.StatusOK {
				t.Fatalf("%d: %s", code, body)
			}
			golden.Check(t, tt.name+".json", body)
		})
	}
}

// Lists are lists, also when nothing is in them.
func TestAnswersWithNothing(t *testing.T) {
	socket := serve(t, &fixed{explain: eviction.Explanation{NoNext: "no pod is known"}}, func(context.Context) ProxyStatus { return ProxyStatus{Error: "no socket"} })
	for name, path := range map[string]string{"empty-status": "/v1/status", "empty-explain": "/v1/explain", "empty-holds": "/v1/holds"} {
		code, body := raw(t, socket, "GET", path)
		if code != http.StatusOK {
			t.Fatalf("%d: %s", code, body)
		}
		if strings.Contains(string(body), "null") {
			t.Errorf("%s has null for a list", path)
		}
		golden.Check(t, name+".json", body)
	}
}

func TestWrongRequests(t *testing.T) {
	socket := serve(t, newFixed(), goodProxy)
	for _, tt := range []struct {
		method, path string
		code         int
		text         string
	}{
		{"GET", "/v1/explain?pod=default/none", 404, `no pod "default/none" is known`},
		{"GET", "/v1/explain?pod=hog", 404, `name it namespace/name or by its UID`},
		{"POST", "/v1/holds/release?pod=default/meek", 404, `pod "default/meek" is not held`},
		{"POST", "/v1/holds/release", 400, "name one pod"},
		{"POST", "/v1/holds/release?pod=%20", 400, "name one pod"},
		{"POST", "/v1/holds/release?pod=x&all=true", 400, "name one pod"},
		{"POST", "/v1/holds/release?all=1", 400, "name one pod"},
		{"GET", "/v1/holds/release?all=true", 405, ""},
		{"POST", "/v1/status", 405, ""},
		{"GET", "/v2/status", 404, ""},
	} {
		code, body := raw(t, socket, tt.method, tt.path)
		if code != tt.code || !strings.Contains(string(body), tt.text) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, code, body)
		}
	}
}

func TestReleaseAllWithNothingHeld(t *testing.T) {
	f := newFixed()
	f.held[0].State = holds.Released
	if h, err := client(serve(t, f, goodProxy)).Release(t.Context(), "", true); err != nil || len(h.Holds) != 0 {
		t.Errorf("%v %v", h, err)
	}
}

// Of many decisions the newest are sent, also of one pod.
func TestDecisionsAreLimited(t *testing.T) {
	f := newFixed()
	of := func(id uint64, victim *inventory.Ref) eviction.Report {
		return eviction.Report{ID: id, Victim: victim, Time: moment}
	}
	f.explain.Decisions = nil
	for i := range uint64(100) {
		f.explain.Decisions = append(f.explain.Decisions, of(1000-2*i, &hog), of(999-2*i, &past))
	}
	c := client(serve(t, f, goodProxy))
	for pod, first := range map[string]uint64{"": 1000, "default/hog": 1000, "other/past": 999} {
		x, err := c.Explain(t.Context(), pod)
		if err != nil || len(x.Decisions) != 20 || x.Decisions[0].ID != first {
			t.Errorf("%q: %d decisions, %v", pod, len(x.Decisions), err)
		}
	}
}

func TestProblems(t *testing.T) {
	fine := func() Status {
		f := newFixed()
		return Status{Engine: f.state, Proxy: goodProxy(context.Background())}
	}
	s := fine()
	if got := problems(&s); got == nil || len(got) != 0 {
		t.Errorf("nothing is wrong, but %q", got)
	}
	for _, tt := range []struct {
		name   string
		change func(*Status)
		want   string
	}{
		{"failing", func(s *Status) { s.Engine.Memory.Failing = true; s.Engine.Memory.Samples = 0 }, "memory cannot be read: nothing is decided"},
		{"no sample", func(s *Status) { s.Engine.Memory.Samples = 0 }, "no memory sample yet"},
		{"not listed", func(s *Status) { s.Engine.Inventory.Listed = false }, "the runtime has not been listed yet: no pod is known, nothing is killed"},
		{"list", func(s *Status) { s.Engine.Inventory.ListError = "listing: x" }, "listing: x"},
		{"tree", func(s *Status) { s.Engine.Inventory.TreeError = "x" }, "cgroup tree: x"},
		{"waiting", func(s *Status) { s.Engine.Waiting = "x" }, "memory.available is below its threshold and nothing is evicted: x"},
		{"not told", func(s *Status) { s.Engine.Telling = &eviction.TellingNow{Queued: 2, Problem: "x"} }, "the API server does not answer, 2 evictions are not told: x"},
		{"no right to tell", func(s *Status) { s.Engine.Telling = &eviction.TellingNow{Way: "none", Fallback: "x"} }, "Kubernetes cannot be told of evictions: x"},
		{"queue", func(s *Status) {
			s.Engine.Telling = &eviction.TellingNow{Reachable: true, QueueProblem: "x"}
		}, "evictions that are not told would be lost by a restart: x"},
		{"ledger", func(s *Status) { s.Engine.LedgerError = "x" }, "ledger: x"},
		{"holds", func(s *Status) { s.Engine.HoldsError = "x" }, "holds file: x"},
		{"proxy", func(s *Status) { s.Proxy = ProxyStatus{Error: "x"} }, "no proxy (x): holds are not enforced, pods may be started again"},
		{"upstream", func(s *Status) { s.Proxy.UpstreamError = "x" }, "runtime: x"},
		{"proxy's holds", func(s *Status) { s.Proxy.HoldsProblem = "x" }, "holds file: x"},
		{"panics", func(s *Status) { s.Proxy.Panics = 2 }, "the proxy caught 2 panics; see its log"},
	} {
		s := fine()
		tt.change(&s)
		if got := problems(&s); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	s = fine()
	s.Engine.Memory.Met, s.Engine.Waiting = false, "x"
	s.Engine.Memory.Threshold, s.Engine.Memory.Samples = 0, 0
	if got := problems(&s); len(got) != 0 {
		t.Errorf("turned off and clear: %q", got)
	}
}

// A proxy that hangs does not keep status from answering in time.
func TestStatusWithAHangingProxy(t *testing.T) {
	socket := serve(t, newFixed(), func(ctx context.Context) ProxyStatus {
		<-ctx.Done()
		return ProxyStatus{Error: ctx.Err().Error()}
	})
	begun := time.Now()
	s, err := client(socket).Status(t.Context())
	if err != nil || s.Proxy.Reachable || len(s.Problems) != 1 {
		t.Errorf("after %s: %+v %v", time.Since(begun), s.Proxy, err)
	}
}
