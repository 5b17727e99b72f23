package podsapi

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
)

// fakeKubelet serves the Pods API with the faults a real one has at times.
type fakeKubelet struct {
	pods.UnimplementedPodsServer

	mu       sync.Mutex
	pods     map[string]*v1.Pod
	padding  int // bytes of an annotation of each pod
	watchers map[chan *pods.WatchPodsEvent]bool
	watchErr error // the answer to WatchPods
	listErrs []error
	lists    int
	watches  int
	noSync   bool
	garbage  bool // one pod that cannot be decoded
	list     chan struct{}
}

func newKubelet(list ...*v1.Pod) *fakeKubelet {
	k := &fakeKubelet{pods: map[string]*v1.Pod{}, watchers: map[chan *pods.WatchPodsEvent]bool{}, list: make(chan struct{}, 100)}
	for _, p := range list {
		k.pods[string(p.UID)] = p
	}
	return k
}

func pod(uid string, priority int32) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Priority: &priority}}
	p.Namespace, p.Name, p.UID = "default", "pod-"+uid, types.UID(uid)
	return p
}

func (k *fakeKubelet) bytes(p *v1.Pod) []byte {
	if k.padding > 0 {
		p = p.DeepCopy()
		p.Annotations = map[string]string{"padding": string(make([]byte, k.padding))}
	}
	b, err := p.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

func (k *fakeKubelet) ListPods(context.Context, *pods.ListPodsRequest) (*pods.ListPodsResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	select {
	case k.list <- struct{}{}:
	default:
	}
	if len(k.listErrs) > 0 {
		err := k.listErrs[0]
		k.listErrs = k.listErrs[1:]
		if err != nil {
			return nil, err
		}
	}
	r := &pods.ListPodsResponse{}
	for _, p := range k.pods {
		r.Pods = append(r.Pods, k.bytes(p))
	}
	if k.garbage {
		r.Pods = append(r.Pods, []byte{0xff, 0xff})
	}
	return r, nil
}

func (k *fakeKubelet) GetPod(_ context.Context, req *pods.GetPodRequest) (*pods.GetPodResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.pods[req.PodUID]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such pod")
	}
	return &pods.GetPodResponse{Pod: k.bytes(p)}, nil
}

func (k *fakeKubelet) WatchPods(_ *pods.WatchPodsRequest, stream grpc.ServerStreamingServer[pods.WatchPodsEvent]) error {
	k.mu.Lock()
	k.watches++
	if err := k.watchErr; err != nil {
		k.mu.Unlock()
		return err
	}
	ch := make(chan *pods.WatchPodsEvent, 1000)
	for _, p := range k.pods {
		ch <- &pods.WatchPodsEvent{Type: pods.EventType_ADDED, Pod: k.bytes(p)}
	}
	if k.garbage {
		ch <- &pods.WatchPodsEvent{Type: pods.EventType_ADDED, Pod: []byte{0xff, 0xff}}
	}
	if !k.noSync {
		ch <- &pods.WatchPodsEvent{Type: pods.EventType_INITIAL_SYNC_COMPLETE}
	}
	k.watchers[ch] = true
	k.mu.Unlock()
	for {
		select {
		case <-stream.Context().Done():
			k.mu.Lock()
			delete(k.watchers, ch)
			k.mu.Unlock()
			return stream.Context().Err()
		case e, ok := <-ch:
			if !ok {
				return status.Error(codes.ResourceExhausted, "watch client channel closed")
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		}
	}
}

// set changes pods without an event.
func (k *fakeKubelet) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// tell sends an event.
func (k *fakeKubelet) tell(t pods.EventType, p *v1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ch := range k.watchers {
		ch <- &pods.WatchPodsEvent{Type: t, Pod: k.bytes(p)}
	}
}

// overflow cuts every watch off, as kubelet does when 100 events wait.
func (k *fakeKubelet) overflow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ch := range k.watchers {
		close(ch)
		delete(k.watchers, ch)
	}
}

// rig is a reader with its store and a socket to serve on.
type rig struct {
	t      *testing.T
	socket string
	store  *kube.Store
	feed   *kube.Feed
	reader *Reader
	lines  *logtest.Hook
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "podsapi") // a short path: a socket's has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	log, lines := logtest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	r := &rig{t: t, socket: filepath.Join(dir, "pods-api.sock"), store: kube.NewStore(time.Now), lines: lines}
	r.feed = r.store.Feed(inventory.FromPodsAPI)
	r.reader = New(r.socket, r.feed, time.Now, log)
	r.reader.timing = timing{
		list: time.Hour, poll: 20 * time.Millisecond, afterEnd: time.Millisecond,
		retryFirst: time.Millisecond, retryMost: 20 * time.Millisecond, otherwise: 20 * time.Millisecond, patience: 5 * time.Second,
	}
	return r
}

// serve lets a kubelet listen until stop is called.
func (r *rig) serve(k pods.PodsServer) (stop func()) {
	r.t.Helper()
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	s := grpc.NewServer()
	if k != nil {
		pods.RegisterPodsServer(s, k)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stopped := sync.OnceFunc(func() { s.Stop(); <-done })
	r.t.Cleanup(stopped)
	return stopped
}

// run starts the reader; it has ended when the test has.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.reader.Run(ctx)
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

// until waits for the store to say so.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-r.store.Changed():
		case <-tick.C:
		case <-limit.C:
			r.t.Fatalf("never: %s; state %+v", what, r.feed.State())
		}
	}
}

func (r *rig) priority(uid string) string {
	f, ok := r.store.Pod(uid)
	if !ok {
		return "unknown"
	}
	return fmt.Sprint(f.Priority.Value)
}

func (r *rig) untilPriority(uid, want string) {
	r.t.Helper()
	r.until(uid+" has priority "+want, func() bool { return r.priority(uid) == want })
}

// said counts the lines from info up that begin with the text.
func (r *rig) said(text string) int {
	n := 0
	for _, e := range r.lines.AllEntries() {
		if e.Level <= logrus.InfoLevel && len(e.Message) >= len(text) && e.Message[:len(text)] == text {
			n++
		}
	}
	return n
}
