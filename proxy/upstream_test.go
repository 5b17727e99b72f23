package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func TestRuntimeGoneIsUnavailableAtOnceAndComesBack(t *testing.T) {
	r := newRig(t, nil)
	for round := range 3 {
		if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
			t.Fatal(err)
		}
		r.runtime.Crash()
		for range 20 {
			// Without a deadline: a call that waits would hang the test.
			began := time.Now()
			_, err := r.cri().ListContainers(context.Background(), &runtimeapi.ListContainersRequest{})
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("round %d: %v", round, err)
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Fatalf("round %d: only after %v", round, d)
			}
		}
		if err := r.runtime.Up(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "runtime back", func() bool {
			_, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{})
			return err == nil
		})
	}
}

func TestCallsInFlightEndWhenTheRuntimeDies(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Crash: true})
	_, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid", 0))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestBeforeTheFirstConnectionCallsWait(t *testing.T) {
	r := &rig{t: t, dir: shortDir(t)}
	r.startProxy(nil)

	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := r.cri().Version(ctx, &runtimeapi.VersionRequest{})
	if status.Code(err) != codes.DeadlineExceeded || time.Since(began) < 250*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(began), err)
	}

	result := make(chan error, 1)
	go func() {
		_, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{})
		result <- err
	}()
	eventually(t, "call waits", func() bool { return r.proxy.Status().InFlight == 1 })
	if s := r.proxy.Status().Upstream; s.EverConnected || !strings.Contains(s.DialError, "cri.sock") {
		t.Errorf("status %+v", s)
	}
	if r.runtime, err = fakecri.Start(fakecri.Options{Dir: r.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.runtime.Close)
	if err := <-result; err != nil {
		t.Errorf("call that waited: %v", err)
	}
	if s := r.proxy.Status().Upstream; !s.EverConnected || s.DialError != "" {
		t.Errorf("status %+v", s)
	}
}

// A socket that takes connections and says nothing must not hold calls up
// longer than the connect timeout, once the runtime was there.
func TestSilentSocketIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	r.runtime.Crash()
	path := r.runtime.Endpoint().Path
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	began := time.Now()
	_, err = r.cri().Version(context.Background(), &runtimeapi.VersionRequest{})
	if status.Code(err) != codes.Unavailable || time.Since(began) > 15*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestAnswerLostToTheRuntimeIsNotRepeated(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{ErrAfter: status.Error(codes.Unavailable, "try again")})
	if _, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid", 0)); err == nil {
		t.Fatal("no error")
	}
	if n := len(r.runtime.Calls("RunPodSandbox")); n != 1 {
		t.Errorf("called %d times", n)
	}
}

func TestOneConnectionForAllCallers(t *testing.T) {
	r := newRig(t, nil)
	for range 30 {
		conn := r.dial(r.proxy.opts.Listen)
		if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if n := r.runtime.Dials(); n != 1 {
		t.Errorf("%d connections to the runtime", n)
	}
}

func TestConnectionsDoNotLeakDescriptors(t *testing.T) {
	r := newRig(t, nil)
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	use := func(n int) {
		for range n {
			conn, err := net.Dial("unix", r.proxy.opts.Listen.Path)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
	}
	use(10)
	before := count()
	use(1000)
	eventually(t, fmt.Sprintf("about %d descriptors", before), func() bool { return count() <= before+10 })
}

func TestCaseB99WrongSocketIsNamed(t *testing.T) {
	dir := shortDir(t)
	runtime, err := fakecri.Start(fakecri.Options{Dir: dir, Without: []string{"runtime.v1.RuntimeService"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Close)
	r := &rig{t: t, dir: dir, runtime: runtime}
	r.startProxy(nil)
	_, err = r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("not passed as it is: %v", err)
	}
	if _, err := runtimeapi.NewImageServiceClient(r.through).ListImages(r.ctx(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Errorf("the other service: %v", err)
	}
	eventually(t, "problem named", func() bool {
		p := r.proxy.Status().Upstream.Problem
		return strings.Contains(p, runtime.Endpoint().Path) && strings.Contains(p, "runtime.v1.RuntimeService")
	})
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	e := func(p string) cri.Endpoint { return cri.Endpoint{Path: p} }
	for want, o := range map[string]Options{
		"listen: no endpoint":          {Upstream: e("/u")},
		"runtimeEndpoint: no endpoint": {Listen: e("/l")},
		"runtime's own socket":         {Listen: e("/u"), Upstream: e("/u")},
		"already the address":          {Listen: e("/l"), Upstream: e("/u"), EventsSocket: "/l"},
		"must be absolute":             {Listen: e("/l"), Upstream: e("/u"), EventsSocket: "rel"},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestLiveSocketAtOurAddressEndsRun(t *testing.T) {
	r := newRig(t, nil)
	p, err := New(Options{Listen: r.proxy.opts.Listen, Upstream: r.proxy.opts.Upstream})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(r.ctx()); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("got %v", err)
	}
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("the one that was there: %v", err)
	}
}

// kubelet's calls do not depend on the evictor's socket.
func TestTakenEventsSocketDoesNotStopForwarding(t *testing.T) {
	r := newRig(t, nil)
	path := filepath.Join(r.dir, "q")
	q, err := New(Options{Listen: cri.Endpoint{Path: path}, Upstream: r.proxy.opts.Upstream, EventsSocket: r.proxy.opts.EventsSocket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	<-q.Serving()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("a call through the proxy without an events socket: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if _, err := os.Lstat(r.proxy.opts.EventsSocket); err != nil {
		t.Errorf("the other proxy's socket: %v", err)
	}
}
