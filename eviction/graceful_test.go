package eviction

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// over runs a soft rig with one hog until the grace of its threshold is over and
// returns when its eviction began.
func (r *rig) over(uid string) (begun time.Time) {
	r.t.Helper()
	r.node.setAvailable(900 * mi)
	for range 400 {
		pass(100 * time.Millisecond)
		if h, ok := r.hold(uid); ok {
			return h.Decided
		}
	}
	r.t.Fatal("no soft eviction")
	return begun
}

// bugs.md B19: terminationGracePeriodSeconds 3600, evictionMaxPodGracePeriod 30:
// 30 s, and a kill when they are over although the runtime does not come back.
func TestCaseB19(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		r.annotate("hog", "3600", "")
		r.runtime.hang = true
		defer r.startSoft()()
		begun := r.over("hog")
		pass(time.Until(begun.Add(29900 * time.Millisecond)))
		if killsOf(hog) != 0 {
			t.Fatal("killed within its grace")
		}
		pass(200 * time.Millisecond)
		if killsOf(hog) == 0 {
			t.Fatal("not killed 30 s after it was asked to end")
		}
		pass(time.Second)
		r.wantOutcomes("evicted hog")
		if got := r.graces(); !slices.Equal(got, []string{"c-hog 30s"}) {
			t.Errorf("graces %q", got)
		}
		if s := r.newest().Soft; s.Escalated == "" || *s.PodAsked != time.Hour || s.PodGrace != 30*time.Second {
			t.Errorf("report %+v", s)
		}
		if h, _ := r.hold("hog"); h.Soft {
			t.Error("the record still says that it is only asked to end")
		}
	})
}

func TestPreStopIsTakenOffTheGrace(t *testing.T) {
	for _, tt := range []struct {
		name, grace, hook string
		execFor           time.Duration
		execErr           error
		graces            []string
		execs             []string
		took              time.Duration
		fails             string
	}{
		{"exec", "20", `{"exec":{"command":["drain","now"]}}`, 5 * time.Second, nil, []string{"c-hog 15s"}, []string{"c-hog drain now 20s"}, 5 * time.Second, ""},
		{"it fails: the stop goes on", "20", `{"exec":{"command":["drain"]}}`, time.Second, errors.New("exit code 1"), []string{"c-hog 19s"}, []string{"c-hog drain 20s"}, time.Second, "exit code 1"},
		{"it takes all: 2 s remain", "20", `{"exec":{"command":["drain"]}}`, time.Hour, nil, []string{"c-hog 2s"}, []string{"c-hog drain 20s"}, 20 * time.Second, "deadline exceeded"},
		{"sleep", "20", `{"sleep":{"seconds":4}}`, 0, nil, []string{"c-hog 16s"}, nil, 4 * time.Second, ""},
		{"one that cannot be read", "20", `{"exec":`, 0, nil, []string{"c-hog 20s"}, nil, 0, "preStopHandler"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				r.add(testPod{uid: "hog", usage: 2 * gi})
				r.annotate("hog", tt.grace, tt.hook)
				r.hooks.execFor, r.hooks.execErr = tt.execFor, tt.execErr
				defer r.startSoft()()
				begun := r.over("hog")
				pass(time.Until(begun.Add(tt.took + 500*time.Millisecond)))
				if got := r.graces(); !slices.Equal(got, tt.graces) {
					t.Errorf("graces %q, want %q", got, tt.graces)
				}
				if got := r.hooks.ran(); !slices.Equal(got, tt.execs) {
					t.Errorf("hooks %q, want %q", got, tt.execs)
				}
				pass(2 * time.Second)
				r.wantOutcomes("evicted hog")
				h := r.newest().Soft.Hooks
				if len(h) != 1 || elapsed(time.Time{}, time.Time{}.Add(h[0].Took)) != tt.took || (h[0].Error == "") != (tt.fails == "") || !strings.Contains(h[0].Error, tt.fails) {
					t.Errorf("hook report %+v", h)
				}
			})
		})
	}
}

// kubelet runs the hooks of a pod it is ending.
func TestNoPreStopForAPodKubeletEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.ending = func(uid string) bool { return uid == "hog" }
		r.add(testPod{uid: "hog", usage: 2 * gi})
		r.annotate("hog", "20", `{"exec":{"command":["drain"]}}`)
		defer r.startSoft()()
		r.over("hog")
		pass(time.Second)
		if got := r.hooks.ran(); len(got) != 0 {
			t.Errorf("hooks %q", got)
		}
		r.wantOutcomes("evicted hog")
	})
}

// A pod whose annotations cannot be read gets evictionMaxPodGracePeriod, as does
// every one where the runtime cannot be asked; 2 s at least.
func TestGraceOfAnUnknownPod(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *rig)
		want   string
	}{
		{"the runtime fails", func(r *rig) { r.hooks.err = errors.New("broken") }, "c-hog 30s"},
		{"no such question", func(r *rig) { r.hooks = nil }, "c-hog 30s"},
		{"longer than a hold lasts", func(r *rig) { r.set.MaxPodGrace, r.set.HoldMaximum = time.Hour, time.Minute }, "c-hog 60s"},
		{"evictionMaxPodGracePeriod 0", func(r *rig) { r.set.MaxPodGrace = 0 }, "c-hog 2s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				r.add(testPod{uid: "hog", usage: 2 * gi})
				tt.change(r)
				defer r.startSoft()()
				r.over("hog")
				pass(time.Second)
				if got := r.graces(); !slices.Equal(got, []string{tt.want}) {
					t.Errorf("graces %q, want %s", got, tt.want)
				}
				r.wantOutcomes("evicted hog")
			})
		})
	}
}

// A runtime that is away for a while is asked again within the grace.
func TestGracefulStopIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.startSoft()()
		r.runtime.failStops(errors.New("connection refused"))
		begun := r.over("hog")
		pass(time.Until(begun.Add(5 * time.Second)))
		r.runtime.failStops(nil)
		pass(7 * time.Second)
		r.wantOutcomes("evicted hog")
		if killsOf(hog) != 0 {
			t.Error("killed although the runtime came back")
		}
		if g := r.graces(); len(g) < 2 || g[0] != "c-hog 30s" || g[len(g)-1] == "c-hog 30s" {
			t.Errorf("graces %q", g)
		}
	})
}

func TestHTTPHook(t *testing.T) {
	var got *http.Request
	away := httptest.NewServer(http.NotFoundHandler())
	defer away.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got = req.Clone(req.Context())
		if req.URL.Path == "/away" {
			http.Redirect(w, req, strings.Replace(away.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		}
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{http: &httpHook{host: u.Hostname(), port: u.Port(), path: "/bye", names: []string{"X-Why", "host"}, values: []string{"evicted", "me.example"}}}
	if err := runHook(t.Context(), &fakeHooks{}, h, "c", "s", time.Second); err != nil {
		t.Fatal(err)
	}
	if got.URL.Path != "/bye" || got.Header.Get("X-Why") != "evicted" || got.Host != "me.example" || got.Method != http.MethodGet {
		t.Errorf("%s %s, host %s, header %v", got.Method, got.URL, got.Host, got.Header)
	}
	h.http.path = "/away" // is not followed to another host
	if err := runHook(t.Context(), &fakeHooks{}, h, "c", "s", time.Second); err != nil {
		t.Error(err)
	}
	srv.Close()
	if err := runHook(t.Context(), &fakeHooks{}, h, "c", "s", time.Second); err == nil {
		t.Error("nobody is there, and no error")
	}
	h.http.host = ""
	if err := runHook(t.Context(), &fakeHooks{}, h, "c", "s", time.Second); err == nil || !strings.Contains(err.Error(), "address of the pod") {
		t.Errorf("without an address: %v", err)
	}
}
