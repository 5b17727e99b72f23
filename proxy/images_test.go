package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// callOf is a call that needs these images.
func callOf(pull bool, names ...string) *imageCall {
	c := &imageCall{pull: pull}
	c.add(names...)
	return c
}

// began says whether a call begins at once; it is ended again.
func (m *images) beganAtOnce(ctx context.Context, c *imageCall) bool {
	done := make(chan struct{})
	go func() {
		m.begin(ctx, c)
		close(done)
	}()
	synctest.Wait()
	select {
	case <-done:
		m.end(c)
		return true
	default:
		return false
	}
}

func TestReservation(t *testing.T) {
	const quiet = time.Minute
	digest := "sha256:" + strings.Repeat("0a", 32)
	names := []string{digest, "docker.io/library/app:1"}
	for _, c := range []struct {
		name   string
		before func(m *images)
		free   bool
	}{
		{"nothing happened", func(m *images) { time.Sleep(quiet) }, true},
		{"the proxy is new", func(m *images) { time.Sleep(quiet - 1) }, false},
		{"a pull is under way", func(m *images) { time.Sleep(quiet); m.begin(t.Context(), callOf(true, "app:1")) }, false},
		{"a creation is under way", func(m *images) { time.Sleep(quiet); m.begin(t.Context(), callOf(false, digest)) }, false},
		{"another image is being pulled", func(m *images) { time.Sleep(quiet); m.begin(t.Context(), callOf(true, "other:1")) }, true},
		// Its tag may lead to the same image.
		{"another tag is being pulled", func(m *images) { time.Sleep(quiet); m.begin(t.Context(), callOf(true, "app:2")) }, false},
		{"a container of another tag is being created", func(m *images) { time.Sleep(quiet); m.begin(t.Context(), callOf(false, "app:2")) }, true},
		{"a pull has just ended", func(m *images) {
			time.Sleep(quiet)
			p := callOf(true, "app:1")
			m.begin(t.Context(), p)
			m.end(p)
			time.Sleep(quiet - 1)
		}, false},
		{"a pull ended a minute ago", func(m *images) {
			p := callOf(true, "app:1")
			m.begin(t.Context(), p)
			m.end(p)
			time.Sleep(quiet)
		}, true},
		{"the pull of another name turned out to be this image", func(m *images) {
			time.Sleep(quiet)
			p := callOf(true, "mirror.example/app:1")
			m.begin(t.Context(), p)
			m.end(p, digest)
		}, false},
		{"somebody has asked about it", func(m *images) { time.Sleep(quiet); m.asked(t.Context(), callOf(false, "app:1")) }, false},
		{"two pulls, one is over", func(m *images) {
			p := callOf(true, "app:1")
			m.begin(t.Context(), p)
			m.begin(t.Context(), callOf(true, "app:1"))
			m.end(p)
			time.Sleep(quiet)
		}, false},
		{"a call could not be read", func(m *images) { time.Sleep(quiet); m.missed() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newImages()
				c.before(m)
				token, err := m.reserve(names, quiet, time.Second)
				if (err == nil) != c.free || err != nil && !errors.Is(err, ErrImageWanted) {
					t.Errorf("%q, %v", token, err)
				}
				m.releaseAll()
			})
		})
	}
}

// What the process before this one still does is not known: nothing is reserved until
// it has ended, and for the minimum age after.
func TestNothingIsReservedBesideAPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quiet = time.Minute
		before := make(chan struct{})
		m := newImages()
		m.before = before
		wanted := func(want bool) {
			t.Helper()
			token, err := m.reserve([]string{"app:1"}, quiet, time.Second)
			if errors.Is(err, ErrImageWanted) != want {
				t.Errorf("%q, %v", token, err)
			}
		}
		time.Sleep(time.Hour)
		wanted(true)
		close(before)
		wanted(true)
		time.Sleep(quiet)
		wanted(false)
		m.releaseAll()
	})
}

// While an image is being removed its pulls and creations wait, and nobody else.
func TestReservedImageIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newImages()
		token, err := m.reserve([]string{"i", "docker.io/library/app:1"}, 0, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*imageCall{callOf(true, "other:1"), callOf(false, "app:2"), callOf(false, "")} {
			if !m.beganAtOnce(t.Context(), c) {
				t.Errorf("%+v waits", c)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, c := range []*imageCall{callOf(true, "app:1"), callOf(false, "docker.io/library/app:1"), callOf(true, "app:2"), callOf(false, "other:1", "app:1")} {
			if m.beganAtOnce(ctx, c) {
				t.Errorf("%+v does not wait", c)
			}
		}
		cancel() // the callers go: nobody waits on
		synctest.Wait()
		m.release(token)
		if !m.beganAtOnce(t.Context(), callOf(true, "app:1")) {
			t.Error("waits after the end of the removal")
		}
		m.release(token)
		m.release("")
	})
}

// An evictor that dies keeps nobody waiting for longer than it asked for, and never
// for longer than 45 s.
func TestReservationEndsByItself(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: reserveLongest} {
		synctest.Test(t, func(t *testing.T) {
			m := newImages()
			if _, err := m.reserve([]string{"app:1"}, 0, limit); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			m.begin(t.Context(), callOf(true, "app:1"))
			if took := time.Since(start); took != want {
				t.Errorf("waited for %s, want %s", took, want)
			}
		})
	}
}

func TestWantedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newImages()
		for i := range 3 * wantedMost {
			m.asked(t.Context(), callOf(false, fmt.Sprintf("app-%d:1", i)))
			time.Sleep(time.Second)
		}
		if n := len(m.wanted); n > wantedMost {
			t.Errorf("%d names are remembered", n)
		}
		if _, err := m.reserve([]string{fmt.Sprintf("app-%d:1", 3*wantedMost-1)}, time.Minute, time.Second); !errors.Is(err, ErrImageWanted) {
			t.Errorf("the newest was forgotten: %v", err)
		}
		m.asked(t.Context(), callOf(false, strings.Repeat("x", nameLongest+1)))
		if _, ok := m.wanted[strings.Repeat("x", nameLongest+1)]; ok {
			t.Error("a name of any length is remembered")
		}
	})
}

// Over the socket, with real calls.
func TestReserveImage(t *testing.T) {
	r := newRig(t, nil)
	socket := r.proxy.opts.EventsSocket
	images := runtimeapi.NewImageServiceClient(r.through)
	spec := &runtimeapi.ImageSpec{Image: "docker.io/library/app:1"}
	pulled, err := images.PullImage(r.ctx(), &runtimeapi.PullImageRequest{Image: spec})
	if err != nil {
		t.Fatal(err)
	}
	id := pulled.GetImageRef()
	ask := ImageReservation{Names: []string{id, "app:1"}, Quiet: 0, Limit: time.Minute}
	quiet := ask
	r.proxy.images.mu.Lock()
	r.proxy.images.began = time.Now().Add(-time.Hour)
	r.proxy.images.mu.Unlock()
	// The proxy remembers the pull by the name and by the ID it was answered with.
	for _, name := range []string{id, "app:1"} {
		quiet.Names, quiet.Quiet = []string{name}, 50*time.Minute
		if _, err := ReserveImage(r.ctx(), socket, quiet); !errors.Is(err, ErrImageWanted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	token, err := ReserveImage(r.ctx(), socket, ask)
	if err != nil || token == "" {
		t.Fatalf("%q, %v", token, err)
	}
	// Who asks about another image does not wait.
	if _, err := images.ImageStatus(r.ctx(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "other:1"}}); err != nil {
		t.Error(err)
	}
	sandbox, err := r.cri().RunPodSandbox(r.ctx(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	create := func(c *runtimeapi.ContainerConfig) error {
		_, err := r.cri().CreateContainer(r.ctx(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox.GetPodSandboxId(), Config: c})
		return err
	}
	other := &runtimeapi.ImageSpec{Image: "other:1"}
	if err := create(&runtimeapi.ContainerConfig{Image: other}); err != nil {
		t.Errorf("a container of another image: %v", err)
	}
	calls := map[string]func() error{
		"pull": func() error {
			_, err := images.PullImage(r.ctx(), &runtimeapi.PullImageRequest{Image: spec})
			return err
		},
		// Told that it is there, kubelet would not pull it and create a container next.
		"status": func() error {
			_, err := images.ImageStatus(r.ctx(), &runtimeapi.ImageStatusRequest{Image: spec})
			return err
		},
		"create": func() error { return create(&runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: id}}) },
		"create, by the name in the spec": func() error {
			return create(&runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "sha256:" + strings.Repeat("1", 64), UserSpecifiedImage: "app:1"}})
		},
		"create, mounted": func() error {
			return create(&runtimeapi.ContainerConfig{Image: other, Mounts: []*runtimeapi.Mount{{ContainerPath: "/a"}, {ContainerPath: "/m", Image: spec}}})
		},
	}
	over := make(chan string, len(calls))
	before := len(r.runtime.Calls())
	for name, call := range calls {
		go func() {
			if err := call(); err != nil {
				name = name + ": " + err.Error()
			}
			over <- name
		}()
	}
	eventually(t, "all have come as far as the proxy", func() bool { return r.proxy.calls.len() == len(calls) })
	time.Sleep(50 * time.Millisecond) // whoever does not wait is through by then
	select {
	case name := <-over:
		t.Errorf("%s did not wait", name)
	default:
	}
	if n := len(r.runtime.Calls()); n != before {
		t.Errorf("%d calls reached the runtime", n-before)
	}
	if err := ReleaseImage(r.ctx(), socket, token); err != nil {
		t.Fatal(err)
	}
	for range calls {
		select {
		case name := <-over:
			if calls[name] == nil {
				t.Error(name)
			}
		case <-time.After(patience):
			t.Fatal("still waiting after the end of the removal")
		}
	}

	// A pull under way keeps the image from being reserved.
	hold := make(chan struct{})
	r.runtime.Inject("PullImage", fakecri.Fault{Wait: hold, Times: 1})
	pulls := len(r.runtime.Calls("PullImage"))
	go func() { over <- fmt.Sprint(calls["pull"]()) }()
	eventually(t, "the pull is under way", func() bool { return len(r.runtime.Calls("PullImage")) > pulls })
	if _, err := ReserveImage(r.ctx(), socket, ask); !errors.Is(err, ErrImageWanted) || !strings.Contains(err.Error(), "under way") {
		t.Errorf("while it is pulled: %v", err)
	}
	close(hold)
	<-over
	if _, err := ReserveImage(r.ctx(), socket, ImageReservation{}); err == nil {
		t.Error("a reservation of nothing")
	}
	if _, err := ReserveImage(r.ctx(), socket+"x", ask); err == nil || errors.Is(err, ErrImageWanted) {
		t.Errorf("without a proxy: %v", err)
	}
}

// Calls that wait for a removal do not hold up the proxy's end.
func TestEndWithAReservation(t *testing.T) {
	r := newRig(t, nil)
	if _, err := ReserveImage(r.ctx(), r.proxy.opts.EventsSocket, ImageReservation{Names: []string{"app:1"}, Limit: time.Minute}); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		// Pulled, or ended with the proxy: what counts is that it ends.
		_, _ = runtimeapi.NewImageServiceClient(r.through).PullImage(r.ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "app:1"}})
	}()
	eventually(t, "the pull waits", func() bool { return r.proxy.calls.len() == 1 })
	start := time.Now()
	r.stop()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("the call did not end")
	}
	if took := time.Since(start); took > r.proxy.opts.DrainTimeout {
		t.Errorf("took %s", took)
	}
}
