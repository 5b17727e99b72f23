package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/unixsock"
)

// heir makes a proxy with the sockets of the running one.
func (r *rig) heir(change func(*Options)) *Proxy {
	r.t.Helper()
	opts := r.proxy.opts
	var err error
	if opts.Sockets, err = r.proxy.Sockets(); err != nil {
		r.t.Fatal(err)
	}
	opts.AfterUpstream = true
	if change != nil {
		change(&opts)
	}
	p, err := New(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// replace runs a proxy in the place of the running one, which is given limit. It
// returns the old one's end.
func (r *rig) replace(limit time.Duration) (oldStopped chan error) {
	r.t.Helper()
	old := r.proxy
	oldStopped = r.stopped
	r.proxy = r.heir(nil)
	through := r.through
	r.run()
	_ = r.through.Close() // callers know nothing of the change
	r.through = through
	old.HandOver(limit)
	return oldStopped
}

func ended(t *testing.T, stopped chan error) {
	t.Helper()
	select {
	case err := <-stopped:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		stopped <- err
	case <-time.After(patience):
		t.Fatal("the old proxy did not end")
	}
}

// TestHandOversCostNoCall replaces the proxy twenty times under calls of several
// connections, of which some are new all the time.
func TestHandOversCostNoCall(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	r.runtime.Inject("PullImage", fakecri.Fault{Wait: release})
	pulled := make(chan error, 1)
	go func() {
		_, err := runtimeapi.NewImageServiceClient(r.through).PullImage(r.ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "x"}})
		pulled <- err
	}()
	r.inFlight("PullImage", 1)

	var calls atomic.Uint64
	var workers sync.WaitGroup
	stop, failed := make(chan struct{}), make(chan error, 1)
	listen, ctx := r.proxy.opts.Listen, r.ctx()
	work := func(fresh bool) {
		conn := r.dial(listen)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
			if fresh {
				_ = conn.Close()
				conn = r.dial(listen)
			}
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				return
			}
			calls.Add(1)
		}
	}
	for i := range 4 {
		workers.Go(func() { work(i%2 == 1) })
	}
	var old []chan error
	for i := range 20 {
		before := calls.Load()
		old = append(old, r.replace(time.Hour))
		eventually(t, fmt.Sprintf("calls after hand-over %d", i), func() bool { return calls.Load() > before+10 || len(failed) > 0 })
	}
	close(stop)
	workers.Wait()
	select {
	case err := <-failed:
		t.Errorf("a call failed: %v", err)
	default:
	}
	close(release)
	if err := <-pulled; err != nil {
		t.Errorf("the pull from before: %v", err)
	}
	for _, o := range old {
		ended(t, o)
	}
	if _, err := os.Lstat(listen.Path); err != nil {
		t.Errorf("the socket: %v", err)
	}
	t.Logf("%d calls", calls.Load())
}

func TestStreamsLiveToTheLimitOfAHandOver(t *testing.T) {
	r := newRig(t, nil)
	stream, err := r.cri().GetContainerEvents(r.ctx(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.inFlight("GetContainerEvents", 1)
	got := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		got <- err
	}()
	const limit = 300 * time.Millisecond
	begun := time.Now()
	old := r.replace(limit)
	err = <-got
	if took := time.Since(begun); status.Code(err) != codes.Unavailable || took < limit {
		t.Errorf("ended after %s with %v", took, err)
	}
	ended(t, old)
}

func TestUnaryCallIsCutAtTheLimitOfAHandOver(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.Inject("StopContainer", fakecri.Fault{Hang: true})
	got := make(chan error, 1)
	go func() {
		_, err := r.cri().StopContainer(r.ctx(), &runtimeapi.StopContainerRequest{})
		got <- err
	}()
	r.inFlight("StopContainer", 1)
	old := r.replace(50 * time.Millisecond)
	if err := <-got; status.Code(err) != codes.Unavailable {
		t.Errorf("call: %v", err)
	}
	ended(t, old)
}

// The end of the process, asked for during a hand-over, does not wait for the limit.
func TestEndDuringAHandOver(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.cri().GetContainerEvents(r.ctx(), &runtimeapi.GetEventsRequest{}); err != nil {
		t.Fatal(err)
	}
	r.inFlight("GetContainerEvents", 1)
	stop := r.stop
	old := r.replace(time.Hour)
	stop()
	ended(t, old)
}

func TestEvictorHearsBothGenerations(t *testing.T) {
	r := newRig(t, nil)
	events := make(chan Event, 100)
	go func() {
		_ = Subscribe(r.ctx(), r.proxy.opts.EventsSocket, func(e Event) { events <- e }) // the stream ends with the old proxy
	}()
	if e := <-events; e.Type != EventHello {
		t.Fatalf("%+v", e)
	}
	release := make(chan struct{})
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Wait: release, Times: 1})
	result := make(chan error, 1)
	go func() {
		_, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid", 0))
		result <- err
	}()
	r.inFlight("RunPodSandbox", 1)
	old := r.replace(time.Hour)
	await := func(kind string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e.Type == kind {
					return
				}
			case <-time.After(patience):
				t.Fatalf("no %s", kind)
			}
		}
	}
	await(EventHandOver)
	// The new one answers at the same path.
	hello := make(chan struct{})
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	go func() {
		_ = Subscribe(ctx, r.proxy.opts.EventsSocket, func(Event) { close(hello); cancel() }) // cancelled
	}()
	<-hello
	close(release)
	if err := <-result; err != nil {
		t.Error(err)
	}
	await(EventSandboxStarted)
	ended(t, old)
}

func TestServiceManagersSocketIsServedAndLeft(t *testing.T) {
	r := newRig(t, nil)
	path := r.dir + "/unit.sock"
	unit, err := unixsock.Listen(path, unixsock.Owner{}, r.proxy.opts.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unit.Close() }()
	r.stop()
	r.waitStopped()
	opts := r.proxy.opts // listen is another path: the socket's counts
	if opts.Sockets.Front, err = unit.File(); err != nil {
		t.Fatal(err)
	}
	if r.proxy, err = New(opts); err != nil {
		t.Fatal(err)
	}
	// Who connects before we serve waits, as across a restart.
	early := r.dial(r.proxy.opts.Listen)
	result := make(chan error, 1)
	go func() {
		_, err := runtimeapi.NewRuntimeServiceClient(early).Version(r.ctx(), &runtimeapi.VersionRequest{})
		result <- err
	}()
	r.run()
	if err := <-result; err != nil {
		t.Errorf("a call from before: %v", err)
	}
	if got := r.proxy.Status().Listen; got != "unix://"+path {
		t.Errorf("listens on %s", got)
	}
	r.stop()
	r.waitStopped()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the service manager's socket: %v", err)
	}
}

func TestSuccessorAcceptsNothingBeforeTheRuntimeIsReached(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.Crash()
	p := r.heir(nil)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- p.Run(ctx) }()
	select {
	case <-p.Serving():
		t.Error("serves without a runtime")
	case <-p.Connected():
		t.Error("connected to nothing")
	case <-time.After(200 * time.Millisecond):
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := r.runtime.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old one goes on", func() bool {
		_, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{})
		return err == nil
	})
}

func TestPing(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		if err := r.proxy.Ping(r.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.runtime.Calls(pingMethod)); n != 0 {
		t.Errorf("the runtime got %d", n)
	}
	if got := r.proxy.Status().Calls; len(got) != 0 {
		t.Errorf("counted: %+v", got)
	}
	// The runtime's troubles are not ours.
	r.runtime.Crash()
	if err := r.proxy.Ping(r.ctx()); err != nil {
		t.Errorf("without a runtime: %v", err)
	}
	// On kubelet's socket the method is like any other.
	if err := r.runtime.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the runtime's answer", func() bool {
		return exchange(r.ctx(), r.through, pingMethod, "", nil).code == codes.Unimplemented
	})
	if n := len(r.runtime.Calls(pingMethod)); n == 0 {
		t.Error("not forwarded")
	}
	// What every call needs stands still.
	r.proxy.calls.mu.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := r.proxy.Ping(ctx)
	r.proxy.calls.mu.Unlock()
	if status.Code(errors.Unwrap(err)) != codes.DeadlineExceeded {
		t.Errorf("calls stand still: %v", err)
	}
	if err := r.proxy.Ping(r.ctx()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
