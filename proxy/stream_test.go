package proxy

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func TestHeadersOfAStreamArriveBeforeAnyMessage(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	r.runtime.Inject("GetContainerEvents", fakecri.Fault{
		Handle: func(_ []byte, ss grpc.ServerStream) error {
			if err := ss.SendHeader(metadata.Pairs("x-now", "yes")); err != nil {
				return err
			}
			<-release
			return nil
		},
	})
	stream, err := r.cri().GetContainerEvents(r.ctx(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	header, err := stream.Header()
	if err != nil || len(header.Get("x-now")) != 1 {
		t.Fatalf("header %v, %v", header, err)
	}
	close(release)
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("end of an empty stream: %v", err)
	}
}

func TestMessagesOfAStreamArriveOneByOne(t *testing.T) {
	r := newRig(t, nil)
	next := make(chan struct{})
	r.runtime.Inject("GetContainerEvents", fakecri.Fault{
		Handle: func(_ []byte, ss grpc.ServerStream) error {
			for range 3 {
				<-next
				if err := ss.SendMsg(&runtimeapi.ContainerEventResponse{ContainerId: "c"}); err != nil {
					return err
				}
			}
			return status.Error(codes.Aborted, "that was all")
		},
	})
	stream, err := r.cri().GetContainerEvents(r.ctx(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next <- struct{}{}
		if e, err := stream.Recv(); err != nil || e.GetContainerId() != "c" {
			t.Fatalf("%v %v", e, err)
		}
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Aborted {
		t.Fatalf("end: %v", err)
	}
}

func TestConversationPassesBothWays(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.Inject("/x.Y/Chat", fakecri.Fault{
		Handle: func(first []byte, ss grpc.ServerStream) error {
			m := fakecri.Raw(first)
			for {
				if err := ss.SendMsg(&m); err != nil {
					return err
				}
				if err := ss.RecvMsg(&m); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
			}
		},
	})
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	cs, err := r.through.NewStream(r.ctx(), desc, "/x.Y/Chat", grpc.ForceCodecV2(fakecri.Codec{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two", "three"} {
		m := fakecri.Raw(text)
		if err := cs.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		var got fakecri.Raw
		if err := cs.RecvMsg(&got); err != nil || string(got) != text {
			t.Fatalf("%q %v", got, err)
		}
	}
	if err := cs.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := cs.RecvMsg(new(fakecri.Raw)); !errors.Is(err, io.EOF) {
		t.Fatalf("end: %v", err)
	}
}

func TestCancelReachesTheRuntime(t *testing.T) {
	for _, method := range []string{"PullImage", "GetContainerEvents", "Status"} {
		t.Run(method, func(t *testing.T) {
			r := newRig(t, nil)
			r.runtime.Inject(method, fakecri.Fault{Hang: true})
			service := "RuntimeService"
			if method == "PullImage" {
				service = "ImageService"
			}
			ctx, cancel := context.WithCancel(r.ctx())
			done := make(chan answer, 1)
			go func() { done <- exchange(ctx, r.through, "/runtime.v1."+service+"/"+method, "", nil) }()
			if err := r.runtime.Until(r.ctx(), func() bool { return len(r.runtime.Calls(method)) == 1 }); err != nil {
				t.Fatal(err)
			}
			cancel()
			if got := <-done; got.code != codes.Canceled {
				t.Errorf("caller: %v", got.code)
			}
			if err := r.runtime.Until(r.ctx(), func() bool { return !r.runtime.Calls(method)[0].Ended.IsZero() }); err != nil {
				t.Fatal("the runtime still works for a caller that has gone")
			}
			eventually(t, "no call open", func() bool { return r.proxy.Status().InFlight == 0 })
		})
	}
}

func TestDeadlineArrives(t *testing.T) {
	r := newRig(t, nil)
	remaining := make(chan time.Duration, 2)
	r.runtime.Inject("Status", fakecri.Fault{Do: func(ctx context.Context, _ []byte) error {
		if d, ok := ctx.Deadline(); ok {
			remaining <- time.Until(d)
		} else {
			remaining <- 0
		}
		return nil
	}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if _, err := r.cri().Status(ctx, &runtimeapi.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	if d := <-remaining; d < 59*time.Minute || d > time.Hour {
		t.Errorf("the runtime sees a deadline in %v", d)
	}
	if _, err := r.cri().Status(context.Background(), &runtimeapi.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	if d := <-remaining; d != 0 {
		t.Errorf("a deadline in %v was invented", d)
	}
}

// A caller that stops reading must stop the runtime, cost a fixed amount, and
// not disturb others.
func TestReaderThatStopsIsFeltByTheRuntime(t *testing.T) {
	r := newRig(t, nil)
	const size = 64 << 10
	sent := make(chan int, 1)
	stopped := make(chan int, 1)
	r.runtime.Inject("GetContainerEvents", fakecri.Fault{
		Handle: func(_ []byte, ss grpc.ServerStream) error {
			n := 0
			for ; n < 5000; n++ {
				m := fakecri.Raw(make([]byte, size))
				if err := ss.SendMsg(&m); err != nil {
					break
				}
				select {
				case <-sent:
				default:
				}
				sent <- n
			}
			stopped <- n
			return nil
		},
	})
	ctx, cancel := context.WithCancel(r.ctx())
	if _, err := r.cri().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}); err != nil {
		t.Fatal(err)
	}
	// The sender has come to rest when it says nothing for a while.
	last := 0
	for rest := false; !rest; {
		select {
		case last = <-sent:
		case <-time.After(500 * time.Millisecond):
			rest = true
		}
	}
	if bytes := last * size; bytes > 16<<20 {
		t.Errorf("%d MiB went to a caller that does not read", bytes>>20)
	}
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("another call: %v", err)
	}
	cancel()
	if n := <-stopped; n >= 5000 {
		t.Error("everything was taken")
	}
}

func TestSlowCallDelaysNobody(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Wait: release})
	const slow = 50
	results := make(chan error, slow)
	for i := range slow {
		go func() {
			_, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("slow", uint32(i)))
			results <- err
		}()
	}
	if err := r.runtime.Until(r.ctx(), func() bool { return len(r.runtime.Calls("RunPodSandbox")) == slow }); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		ctx, cancel := context.WithTimeout(r.ctx(), 15*time.Second)
		if _, err := r.cri().ListContainers(ctx, &runtimeapi.ListContainersRequest{}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	close(release)
	for range slow {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
