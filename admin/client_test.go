package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestClientDecodesWhatTheServerSays(t *testing.T) {
	f := newFixed()
	c := client(serve(t, f, goodProxy))
	s, err := c.Status(t.Context())
	if err != nil || s.Version != "v1" || s.PID != 42 || !reflect.DeepEqual(s.Engine, f.state) || !reflect.DeepEqual(s.Proxy, goodProxy(t.Context())) {
		t.Errorf("%+v %v", s, err)
	}
	x, err := c.Explain(t.Context(), "default/hog")
	if err != nil || x.Pod == nil || *x.Pod != hog || len(x.Candidates) != 0 || len(x.Holds) != 1 || len(x.Decisions) != 1 {
		t.Errorf("%+v %v", x, err)
	}
	h, err := c.Holds(t.Context())
	if err != nil || len(h.Holds) != 1 || h.Holds[0].Pod != hog || h.Holds[0].BackOff != 40*time.Second {
		t.Errorf("%+v %v", h, err)
	}
	h, err = c.Release(t.Context(), "default/hog", false)
	if err != nil || len(h.Holds) != 1 || h.Holds[0].State != "released" || h.Holds[0].ReleaseReason != "by-hand" {
		t.Errorf("%+v %v", h, err)
	}
}

func TestClientNotFound(t *testing.T) {
	c := client(serve(t, newFixed(), goodProxy))
	_, explain := c.Explain(t.Context(), "default/none & more=1")
	_, release := c.Release(t.Context(), "default/none", false)
	for _, err := range []error{explain, release} {
		if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), `"default/none`) {
			t.Errorf("%v", err)
		}
	}
	if _, err := c.Release(t.Context(), "", false); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "400") {
		t.Errorf("no name: %v", err)
	}
}

func TestClientWithoutADaemon(t *testing.T) {
	dir := shortDir(t)
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):        "there is no socket " + filepath.Join(dir, "none") + " (--admin-socket names another)",
		filepath.Join(dir, "none/at/all"): "there is no socket",
		stale:                             "nobody serves " + stale + " any more",
		plain:                             "nobody serves " + plain + " any more",
	} {
		_, err := client(path).Status(t.Context())
		if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestClientWithoutPermission(t *testing.T) {
	c := client("/run/x.sock")
	err := c.explainFailure(&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)})
	if !strings.HasPrefix(err.Error(), "/run/x.sock: permission denied: run this as root or as the socket's group") || !errors.Is(err, syscall.EACCES) || errors.Is(err, ErrNotRunning) {
		t.Errorf("%v", err)
	}
	if os.Geteuid() == 0 {
		return // root may connect to every socket
	}
	path := serve(t, newFixed(), goodProxy)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := client(path).Status(t.Context()); !errors.Is(err, syscall.EACCES) {
		t.Errorf("%v", err)
	}
}

// hang serves connections in one way of never finishing.
func hang(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handle, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return path
}

// design §12: a command ends within 2 s with a plain message.
func TestHungServer(t *testing.T) {
	notAccepting := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", notAccepting)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for name, path := range map[string]string{
		"does not accept": notAccepting,
		"no answer":       hang(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		"half an answer": hang(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"version":`))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, err := client(path).Status(t.Context())
			if took := time.Since(begun); err == nil || took > 10*time.Second {
				t.Errorf("%v after %s", err, took)
			}
			if want := "cri-evictd on " + path + " did not answer within 2s"; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

func TestCancelledCall(t *testing.T) {
	path := hang(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client(path).Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Somebody else's service at the address.
func TestAnswerThatIsNotOurs(t *testing.T) {
	for name, tt := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"not JSON":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, "answer of "},
		"empty":      {func(http.ResponseWriter, *http.Request) {}, "answer of "},
		"other JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[1]`)) }, "answer of "},
		"error": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("x", 100_000), http.StatusInternalServerError)
		}, "500 Internal Server Error: xxx"},
	} {
		_, err := client(hang(t, tt.handle)).Holds(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || len(err.Error()) > 5000 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

func TestArm(t *testing.T) {
	c := client(serve(t, newFixed(), goodProxy))
	for _, want := range []bool{true, false} {
		if r, err := c.Arm(t.Context()); err != nil || r.Changed != want {
			t.Errorf("changed %v, %v, want %v", r.Changed, err, want)
		}
	}
}
