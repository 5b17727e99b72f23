package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// plain makes one GET on the admin socket.
func plain(t *testing.T, socket, path string) (int, string) {
	t.Helper()
	return get(t, client(socket).http, "http://admin"+path)
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// runMetrics runs a server until the test ends.
func runMetrics(t *testing.T, opt MetricsOptions) *MetricsServer {
	t.Helper()
	s := NewMetricsServer(opt)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// until waits for a state of the server.
func until(t *testing.T, s *MetricsServer, what string, ok func(MetricsStatus) bool) MetricsStatus {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if st := s.Status(); ok(st) {
			return st
		}
	}
	t.Fatalf("never %s: %+v", what, s.Status())
	return MetricsStatus{}
}

func serving(st MetricsStatus) bool { return st.Error == "" && !strings.HasSuffix(st.Address, ":0") }

// A scrape through a real listener.
func TestScrape(t *testing.T) {
	opt := metricsOf(newFixed(), goodProxy)
	opt.Address = "127.0.0.1:0"
	base := "http://" + until(t, runMetrics(t, opt), "serving", serving).Address
	c := &http.Client{Timeout: 20 * time.Second}
	defer c.CloseIdleConnections()
	code, text := get(t, c, base+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	for _, line := range []string{
		"# TYPE cri_evictd_kill_stage_duration_seconds histogram", `cri_evictd_holds{state="killed"} 2`, `cri_evictd_proxy_upstream_state{state="READY"} 1`,
		"# TYPE process_resident_memory_bytes gauge",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/v1/status": 404, "/debug/pprof/": 404} {
		if code, body := get(t, c, base+path); code != want {
			t.Errorf("%s: %d, want %d: %s", path, code, want, body)
		}
	}
	resp, err := c.Post(base+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// An address that somebody else has is served as soon as it is free.
func TestAddressInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opt := metricsOf(newFixed(), goodProxy)
	opt.Address = other.Addr().String()
	s := runMetrics(t, opt)
	st := until(t, s, "failing", func(st MetricsStatus) bool { return st.Error != "" })
	if st.Address != opt.Address || !strings.Contains(st.Error, "address already in use") {
		t.Errorf("%+v", st)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, s, "serving", serving)
	c := &http.Client{Timeout: 20 * time.Second}
	defer c.CloseIdleConnections()
	if code, body := get(t, c, "http://"+opt.Address+"/healthz"); code != http.StatusOK {
		t.Errorf("%d: %s", code, body)
	}
}

// The tries get rarer, down to one in 30 s, and end with the context.
func TestBindingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := metricsOf(newFixed(), goodProxy)
		opt.Address = "192.0.2.1:1"
		s := NewMetricsServer(opt)
		var at []time.Duration
		begun := time.Now()
		s.listen = func(context.Context) (net.Listener, error) {
			at = append(at, time.Since(begun))
			return nil, errors.New("no such address")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		s.Run(ctx)
		want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}
		if len(at) != len(want) {
			t.Fatalf("%v", at)
		}
		for i := range want {
			if at[i] != want[i]*time.Second {
				t.Errorf("try %d after %s", i, at[i])
			}
		}
		if st := s.Status(); st.Error != "no such address" {
			t.Errorf("%+v", st)
		}
	})
}

// brokenListener fails at the first Accept.
type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, errors.New("broken") }
func (brokenListener) Close() error              { return nil }
func (brokenListener) Addr() net.Addr            { return &net.TCPAddr{} }

func TestListenerThatBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := metricsOf(newFixed(), goodProxy)
		opt.Address = "192.0.2.1:1"
		s := NewMetricsServer(opt)
		tries := 0
		s.listen = func(context.Context) (net.Listener, error) { tries++; return brokenListener{}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		s.Run(ctx)
		if tries < 5 || tries > 11 || !strings.Contains(s.Status().Error, "broken") {
			t.Errorf("%d tries, %+v", tries, s.Status())
		}
	})
}

func TestNoMetrics(t *testing.T) {
	s := NewMetricsServer(metricsOf(newFixed(), goodProxy))
	s.listen = func(context.Context) (net.Listener, error) { t.Error("it listens"); return nil, errors.New("x") }
	s.Run(t.Context())
	if st := s.Status(); st != (MetricsStatus{}) {
		t.Errorf("%+v", st)
	}
}

// A proxy that hangs costs a scrape a second, not its answer.
func TestScrapeWithAHangingProxy(t *testing.T) {
	opt := metricsOf(newFixed(), func(ctx context.Context) ProxyStatus { <-ctx.Done(); return ProxyStatus{Error: "late"} })
	opt.Address = "127.0.0.1:0"
	base := "http://" + until(t, runMetrics(t, opt), "serving", serving).Address
	c := &http.Client{Timeout: 20 * time.Second}
	defer c.CloseIdleConnections()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if code, text := get(t, c, base+"/metrics"); code != http.StatusOK || !strings.Contains(text, "\ncri_evictd_proxy_up 0\n") || !strings.Contains(text, "cri_evictd_signal_available_bytes") {
				t.Errorf("%d: %s", code, text)
			}
		})
	}
	wg.Wait()
}

// A panic while collecting is an error of that scrape.
func TestPanicWhileCollecting(t *testing.T) {
	calls := 0
	opt := metricsOf(newFixed(), func(ctx context.Context) ProxyStatus {
		if calls++; calls == 1 {
			panic("oops")
		}
		return goodProxy(ctx)
	})
	opt.Address = "127.0.0.1:0"
	base := "http://" + until(t, runMetrics(t, opt), "serving", serving).Address
	c := &http.Client{Timeout: 20 * time.Second}
	defer c.CloseIdleConnections()
	get(t, c, base+"/metrics")
	if code, text := get(t, c, base+"/metrics"); code != http.StatusOK || !strings.Contains(text, "\ncri_evictd_proxy_up 1\n") {
		t.Errorf("%d: %s", code, text)
	}
}
