package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// inFlight waits until the runtime works on a call.
func (r *rig) inFlight(method string, n int) {
	r.t.Helper()
	if err := r.runtime.Until(r.ctx(), func() bool { return len(r.runtime.Calls(method)) >= n }); err != nil {
		r.t.Fatalf("%s did not arrive", method)
	}
}

func (r *rig) waitStopped() {
	r.t.Helper()
	select {
	case err := <-r.stopped:
		r.stopped <- err
	case <-time.After(patience):
		r.t.Fatal("proxy did not end")
	}
}

func TestUnaryCallFinishesDuringTheDrain(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.DrainTimeout = patience })
	release := make(chan struct{})
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Wait: release})
	result := make(chan error, 1)
	go func() {
		_, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid", 0))
		result <- err
	}()
	r.inFlight("RunPodSandbox", 1)
	r.stop()
	eventually(t, "socket gone", func() bool {
		_, err := os.Lstat(r.proxy.opts.Listen.Path)
		return errors.Is(err, os.ErrNotExist)
	})
	select {
	case err := <-result:
		t.Fatalf("call was cut: %v", err)
	case err := <-r.stopped:
		t.Fatalf("ended before its call: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	if err := <-result; err != nil {
		t.Errorf("call: %v", err)
	}
	r.waitStopped()
}

func TestEndlessStreamsEndAtOnce(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.DrainTimeout = time.Hour })
	// One that has said nothing yet, one that has, and one nobody knows.
	silent, err := r.cri().GetContainerEvents(r.ctx(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.inFlight("GetContainerEvents", 1)
	for _, m := range []string{"/runtime.v1.RuntimeService/StreamContainers", "/x.Y/Watch"} {
		r.runtime.Inject(m, fakecri.Fault{Handle: func(_ []byte, ss grpc.ServerStream) error {
			m := fakecri.Raw(payload("one"))
			if err := ss.SendMsg(&m); err != nil {
				return err
			}
			<-ss.Context().Done()
			return ss.Context().Err()
		}})
	}
	open := func(method string) grpc.ClientStream {
		desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
		cs, err := r.through.NewStream(r.ctx(), desc, method, grpc.ForceCodecV2(fakecri.Codec{}))
		if err != nil {
			t.Fatal(err)
		}
		m := fakecri.Raw(nil)
		if err := cs.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		if err := cs.RecvMsg(&m); err != nil {
			t.Fatal(err)
		}
		return cs
	}
	speaking, unknown := open("/runtime.v1.RuntimeService/StreamContainers"), open("/x.Y/Watch")
	r.stop()
	if _, err := silent.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("silent stream: %v", err)
	}
	for _, cs := range []grpc.ClientStream{speaking, unknown} {
		if err := cs.RecvMsg(new(fakecri.Raw)); status.Code(err) != codes.Unavailable {
			t.Errorf("stream: %v", err)
		}
	}
	r.waitStopped()
}

func TestCallThatDoesNotEndIsCutOff(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.DrainTimeout = 50 * time.Millisecond })
	r.runtime.Inject("PullImage", fakecri.Fault{Hang: true})
	result := make(chan error, 1)
	go func() {
		_, err := runtimeapi.NewImageServiceClient(r.through).PullImage(context.Background(), &runtimeapi.PullImageRequest{})
		result <- err
	}()
	r.inFlight("PullImage", 1)
	r.stop()
	if err := <-result; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != errDraining.Error() {
		t.Errorf("call: %v", err)
	}
	r.waitStopped()
	if err := r.runtime.Until(r.ctx(), func() bool { return !r.runtime.Calls("PullImage")[0].Ended.IsZero() }); err != nil {
		t.Error("the runtime still works on it")
	}
}

func TestCallThatWaitsForTheRuntimeEndsAtOnce(t *testing.T) {
	r := &rig{t: t, dir: shortDir(t)}
	r.startProxy(func(_ *rig, o *Options) { o.DrainTimeout = time.Hour })
	result := make(chan error, 1)
	go func() {
		_, err := r.cri().Version(context.Background(), &runtimeapi.VersionRequest{})
		result <- err
	}()
	eventually(t, "call waits", func() bool { return r.proxy.Status().InFlight == 1 })
	r.stop()
	if err := <-result; status.Code(err) != codes.Unavailable {
		t.Errorf("call: %v", err)
	}
	r.waitStopped()
}

func TestUnknownUnaryCallFinishesDuringTheDrain(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.DrainTimeout = patience })
	release := make(chan struct{})
	r.runtime.Inject("/x.Y/Unary", fakecri.Fault{Wait: release, Header: metadata.MD{}, Raw: [][]byte{payload("done")}})
	result := make(chan answer, 1)
	go func() { result <- exchange(r.ctx(), r.through, "/x.Y/Unary", "", nil) }()
	r.inFlight("/x.Y/Unary", 1)
	r.stop()
	eventually(t, "draining", func() bool {
		r.proxy.calls.mu.Lock()
		defer r.proxy.calls.mu.Unlock()
		return r.proxy.calls.draining
	})
	close(release)
	if got := <-result; got.code != codes.OK || len(got.messages) != 1 {
		t.Errorf("%+v", got)
	}
	r.waitStopped()
}

func TestSuccessorTakesOver(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	r.waitStopped()
	var err error
	if r.proxy, err = New(r.proxy.opts); err != nil {
		t.Fatal(err)
	}
	old := r.through
	r.run()
	// The caller's old connection finds the new proxy by itself.
	eventually(t, "old connection works", func() bool {
		_, err := runtimeapi.NewRuntimeServiceClient(old).Version(r.ctx(), &runtimeapi.VersionRequest{})
		return err == nil
	})
}

func TestRunTwiceIsAnError(t *testing.T) {
	r := newRig(t, nil)
	if err := r.proxy.Run(r.ctx()); err == nil {
		t.Error("no error")
	}
}

func TestCallerThatSaysNothingDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	conn, err := net.Dial("unix", r.proxy.opts.Listen.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// A call on another connection shows that ours has been accepted.
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.waitStopped()
}

// A stream that arrives between the drain's start and the caller learning of it
// would live until the timeout.
func TestNoStreamBeginsDuringTheDrain(t *testing.T) {
	cs := newCalls()
	cancel := func(error) {}
	if !cs.add(&call{shape: shapeStream, cancel: cancel}) {
		t.Error("refused before the drain")
	}
	cs.drain()
	if cs.add(&call{shape: shapeStream, cancel: cancel}) {
		t.Error("endless stream accepted")
	}
	for _, s := range []shape{shapeUnary, shapeUnknown} {
		if !cs.add(&call{shape: s, cancel: cancel}) {
			t.Errorf("call of shape %d refused", s)
		}
	}
}
