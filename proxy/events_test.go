package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// subscribeTo collects events; the first, "hello", is checked and dropped.
func (r *rig) subscribeTo() <-chan Event {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan Event, 10000)
	ended := make(chan error, 1)
	go func() { ended <- Subscribe(ctx, r.proxy.opts.EventsSocket, func(e Event) { events <- e }) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, ErrStreamEnded) {
			r.t.Errorf("stream: %v", err)
		}
	})
	if e := r.next(events); e.Type != EventHello || e.Upstream == "" || e.Time.IsZero() {
		r.t.Fatalf("first event %+v", e)
	}
	return events
}

func (r *rig) next(events <-chan Event) Event {
	r.t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(patience):
		r.t.Fatal("no event")
		return Event{}
	}
}

// want takes the next events and compares their types.
func (r *rig) want(events <-chan Event, types ...string) []Event {
	r.t.Helper()
	var got []Event
	for _, typ := range types {
		e := r.next(events)
		if e.Type != typ {
			r.t.Fatalf("got %q, want %q of %v", e.Type, typ, types)
		}
		got = append(got, e)
	}
	return got
}

func TestEventsTellALife(t *testing.T) {
	r := newRig(t, nil)
	events := r.subscribeTo()
	images := runtimeapi.NewImageServiceClient(r.through)

	if _, err := images.PullImage(r.ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "img:1"}, SandboxConfig: sandboxConfig("uid-1", 3)}); err != nil {
		t.Fatal(err)
	}
	sb, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 3))
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.cri().CreateContainer(r.ctx(), containerRequest("uid-1", sb.GetPodSandboxId()))
	if err != nil {
		t.Fatal(err)
	}
	id, sid := c.GetContainerId(), sb.GetPodSandboxId()
	steps := []func() error{
		func() error {
			_, err := r.cri().StartContainer(r.ctx(), &runtimeapi.StartContainerRequest{ContainerId: id})
			return err
		},
		func() error {
			_, err := r.cri().StopContainer(r.ctx(), &runtimeapi.StopContainerRequest{ContainerId: id})
			return err
		},
		func() error {
			_, err := r.cri().RemoveContainer(r.ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
			return err
		},
		func() error {
			_, err := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sid})
			return err
		},
		func() error {
			_, err := r.cri().RemovePodSandbox(r.ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sid})
			return err
		},
		func() error {
			_, err := images.RemoveImage(r.ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "img:1"}})
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	got := r.want(events, EventPullBegin, EventPullEnd, EventRunBegin, EventRunEnd, EventSandboxStarted,
		EventCreateBegin, EventCreateEnd, EventContainerCreated, EventContainerStarted, EventContainerStopped,
		EventContainerRemoved, EventSandboxStopped, EventSandboxRemoved, EventImageRemoved)
	for i, e := range got {
		if i > 0 && e.Seq != got[i-1].Seq+1 {
			t.Errorf("seq %d after %d", e.Seq, got[i-1].Seq)
		}
		if e.Held || e.Err != "" || e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
	}
	pod := &PodRef{Namespace: "default", Name: "hog", UID: "uid-1"}
	started := got[4]
	if !reflect.DeepEqual(started.Pod, pod) || started.SandboxID != sid || started.Attempt != 3 || started.ConfigSource != "api" ||
		started.CgroupParent != "/kubepods/burstable/poduid-1" || started.Labels["app"] != "hog" ||
		!reflect.DeepEqual(started.Annotations, map[string]string{"kubernetes.io/config.source": "api", "cri-evictd.io/priority": "7"}) {
		t.Errorf("sandboxStarted %+v", started)
	}
	created := got[7]
	if !reflect.DeepEqual(created.Pod, pod) || created.SandboxID != sid || created.ContainerID != id || created.ContainerName != "main" ||
		created.Image != "img:1" || created.Attempt != 2 || created.OOMScoreAdj == nil || *created.OOMScoreAdj != 990 ||
		created.MemoryLimit == nil || *created.MemoryLimit != 1<<30 {
		t.Errorf("containerCreated %+v", created)
	}
	if got[8].ContainerID != id || got[11].SandboxID != sid || got[13].Image != "img:1" || got[0].Pod.UID != "uid-1" {
		t.Errorf("%+v", got)
	}
}

func TestFailedCallsTellTheirEndOnly(t *testing.T) {
	r := newRig(t, nil)
	events := r.subscribeTo()
	refused := status.Error(codes.AlreadyExists, "name is reserved")
	for _, m := range []string{"RunPodSandbox", "StartContainer", "StopPodSandbox", "RemoveImage", "PullImage"} {
		r.runtime.Inject(m, fakecri.Fault{Err: refused})
	}
	images := runtimeapi.NewImageServiceClient(r.through)
	_, err1 := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0))
	_, err2 := r.cri().StartContainer(r.ctx(), &runtimeapi.StartContainerRequest{ContainerId: "c"})
	_, err3 := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "s"})
	_, err4 := images.RemoveImage(r.ctx(), &runtimeapi.RemoveImageRequest{})
	_, err5 := images.PullImage(r.ctx(), &runtimeapi.PullImageRequest{})
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if status.Code(err) != codes.AlreadyExists {
			t.Errorf("got %v", err)
		}
	}
	got := r.want(events, EventRunBegin, EventRunEnd, EventPullBegin, EventPullEnd)
	if got[1].Err != "AlreadyExists" || got[3].Err != "AlreadyExists" {
		t.Errorf("%+v", got)
	}
}

// A refused start of a sandbox tells that the pod is still wanted; nothing else
// of a refused call is told, because nothing else happened.
func TestRefusedCallsTellThatThePodIsWanted(t *testing.T) {
	r := newRig(t, nil)
	events := r.subscribeTo()
	r.hold("uid-1", holds.Killed, time.Now())
	_, _ = r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 1))
	if _, err := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "s"}); err != nil {
		t.Fatal(err)
	}
	got := r.want(events, EventRunRefused, EventSandboxStopped)
	if got[0].Pod == nil || got[0].Pod.UID != "uid-1" {
		t.Errorf("refused: %+v", got[0])
	}
}

// The hold appears while the runtime is starting the sandbox: the call cannot be
// refused any more, but the evictor must learn of it.
func TestHoldThatAppearsDuringTheCall(t *testing.T) {
	r := newRig(t, nil)
	events := r.subscribeTo()
	release := make(chan struct{})
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Wait: release})
	result := make(chan error, 1)
	go func() {
		_, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 1))
		result <- err
	}()
	r.want(events, EventRunBegin)
	r.inFlight("RunPodSandbox", 1)
	r.hold("uid-1", holds.Intent, time.Now())
	close(release)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	got := r.want(events, EventRunEnd, EventSandboxStarted)
	if !got[0].Held || !got[1].Held || got[1].SandboxID == "" {
		t.Errorf("%+v", got)
	}
	if r.proxy.Status().HeldMeanwhile != 1 {
		t.Error("not counted")
	}
}

func TestMessagesNobodyUnderstandsMakeItDirty(t *testing.T) {
	r := newRig(t, nil)
	events := r.subscribeTo()
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Raw: [][]byte{{0xff}}})
	exchange(r.ctx(), r.through, runtimeapi.RuntimeService_RunPodSandbox_FullMethodName, "", []byte{0xff})
	r.want(events, EventRunEnd, EventSandboxStarted, EventDirty)
}

func TestReconnectMakesItDirty(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	events := r.subscribeTo()
	r.runtime.Crash()
	if err := r.runtime.Up(); err != nil {
		t.Fatal(err)
	}
	r.want(events, EventDirty)
}

func TestOverflowDropsAndTellsOnce(t *testing.T) {
	b := newBroker()
	slow, _ := b.subscribe()
	quick, _ := b.subscribe()
	n := 0
	for range 3*subscriberQueue + 5 {
		b.publish(Event{Type: EventRunBegin})
		n += len(quick.take())
	}
	if n != 3*subscriberQueue+5 {
		t.Errorf("the quick one got %d", n)
	}
	got := slow.take()
	if len(got) != 6 || got[0].Type != EventDirty {
		t.Fatalf("%d events, first %q", len(got), got[0].Type)
	}
	for i, e := range got[1:] {
		if e.Type != EventRunBegin || e.Seq != uint64(3*subscriberQueue+1+i) {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if _, dropped, subs := b.counts(); dropped != 3*subscriberQueue || subs != 2 {
		t.Errorf("dropped %d, subscribers %d", dropped, subs)
	}
	b.publish(Event{Type: EventRunEnd})
	if got := slow.take(); len(got) != 1 || got[0].Type != EventRunEnd {
		t.Errorf("afterwards %+v", got)
	}
}

// A subscriber that never reads must not delay any call.
func TestSubscriberThatDoesNotReadDelaysNobody(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	body, err := get(ctx, r.proxy.opts.EventsSocket, "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	eventually(t, "subscribed", func() bool { return r.proxy.Status().Subscribers == 1 })
	for i := range 3000 {
		req := &runtimeapi.StopPodSandboxRequest{PodSandboxId: fmt.Sprint(i) + strings.Repeat("x", 1000)}
		if _, err := r.cri().StopPodSandbox(r.ctx(), req); err != nil {
			t.Fatal(err)
		}
	}
	if r.proxy.Status().EventsDropped == 0 {
		t.Error("nothing was dropped: the test did not fill the queue")
	}
}

func TestStatusOverTheSocket(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "runtime known", func() bool { return r.proxy.Status().Upstream.Runtime != "" })
	s, err := FetchStatus(r.ctx(), r.proxy.opts.EventsSocket)
	if err != nil {
		t.Fatal(err)
	}
	if s.Listen != r.proxy.opts.Listen.String() || s.Upstream.State != "READY" || s.Upstream.Runtime != "fake v1.0.0" || len(s.Calls) != 1 ||
		s.Calls[0] != (MethodCount{Method: "/runtime.v1.RuntimeService/Version", Code: "OK", Count: 1}) {
		b, _ := json.Marshal(s)
		t.Errorf("%s", b)
	}
}

func TestMethodTableIsBounded(t *testing.T) {
	s := newStatistics()
	for i := range 3 * maxMethods {
		s.count(fmt.Sprintf("/x/%d", i), codes.OK)
	}
	if n := len(s.methodCounts()); n > maxMethods+1 {
		t.Errorf("%d entries", n)
	}
}
