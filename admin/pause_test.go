package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	e := newFixed()
	c := client(serve(t, e, goodProxy))
	if r, err := c.Pause(t.Context(), 90*time.Second); err != nil || !r.PausedUntil.Equal(moment.Add(90*time.Second)) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := c.Pause(t.Context(), 0); err != nil || !r.PausedUntil.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := c.Pause(t.Context(), LongestPause); err != nil {
		t.Error(err)
	}
	for _, d := range []time.Duration{-1, LongestPause + 1} {
		if _, err := c.Pause(t.Context(), d); err == nil || !strings.Contains(err.Error(), "for must be a duration from 0s to 24h0m0s") {
			t.Errorf("%s: %v", d, err)
		}
	}
	if want := []time.Duration{90 * time.Second, 0, LongestPause}; !slices.Equal(e.pauses, want) {
		t.Errorf("the engine was told %v, want %v", e.pauses, want)
	}
}

// Only a POST with a duration pauses.
func TestPauseRequests(t *testing.T) {
	e := newFixed()
	socket := serve(t, e, goodProxy)
	for _, q := range []url.Values{{}, {"for": {""}}, {"for": {"5"}}, {"for": {"soon"}}} {
		if code, _ := raw(t, socket, http.MethodPost, "/v1/pause?"+q.Encode()); code != http.StatusBadRequest {
			t.Errorf("%v: %d", q, code)
		}
	}
	if code, _ := raw(t, socket, http.MethodGet, "/v1/pause?for=5m"); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", code)
	}
	if len(e.pauses) > 0 {
		t.Errorf("paused: %v", e.pauses)
	}
}

// A reload that failed is a problem until a good one.
func TestFailedReloadIsAProblem(t *testing.T) {
	e := newFixed()
	config := ConfigStatus{Loaded: moment, Failed: []string{"mode: \"x\": wrong", "listen: a change needs a restart"}, Tried: moment.Add(time.Minute)}
	s := NewServer(Options{Engine: e, Proxy: goodProxy, Log: quiet(), Config: func() ConfigStatus { return config }})
	st := Status{Engine: e.State(), Proxy: goodProxy(context.Background()), Config: s.opt.Config()}
	var got []string
	for _, p := range problems(&st) {
		if strings.HasPrefix(p, "the configuration was changed and not reloaded: ") {
			got = append(got, p)
		}
	}
	if len(got) != 2 || !strings.Contains(got[0], "mode:") || !strings.Contains(got[1], "listen:") {
		t.Errorf("%q", got)
	}
}
