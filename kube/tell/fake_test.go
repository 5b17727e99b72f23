package tell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// fakeAPI is an API server with the faults a test wants; the real one is in
// test/tell.
type fakeAPI struct {
	mu     sync.Mutex
	pods   map[string]*v1.Pod // by namespace/name
	events map[string]*v1.Event
	down   error            // what every call fails with
	fails  map[string]error // what one kind of call fails with
	calls  []string         // those that were to change something, and what became of them
	grace  int64            // of the last deletion, in seconds
	// patched is told of each status that was set, with the lock held.
	patched func(pod *v1.Pod)
}

func newFakeAPI(pods ...*v1.Pod) *fakeAPI {
	a := &fakeAPI{pods: map[string]*v1.Pod{}, events: map[string]*v1.Event{}, fails: map[string]error{}}
	for _, p := range pods {
		a.pods[p.Namespace+"/"+p.Name] = p
	}
	return a
}

var (
	pods       = schema.GroupResource{Resource: "pods"}
	errRefused = fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
	errNoRight = apierrors.NewForbidden(pods, "x", errors.New("no right"))
)

func (a *fakeAPI) fail(kind string) error {
	if a.down != nil {
		return a.down
	}
	return a.fails[kind]
}

func (a *fakeAPI) Server() string { return "https://fake" }

func (a *fakeAPI) Pod(_ context.Context, namespace, name string) (*v1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.fail("get"); err != nil {
		return nil, err
	}
	p, ok := a.pods[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(pods, name)
	}
	return p.DeepCopy(), nil
}

func (a *fakeAPI) OwnPod(context.Context, string) (*v1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.fail("list"); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(a.pods)) {
		return a.pods[key].DeepCopy(), nil
	}
	return nil, nil
}

// change is a request that changes the pod, if it is this one.
func (a *fakeAPI) change(kind, namespace, name string, uid types.UID, dryRun bool, f func(p *v1.Pod)) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !dryRun {
		defer func() { a.calls = append(a.calls, kind) }()
	}
	if err := a.fail(kind); err != nil {
		return err
	}
	p, ok := a.pods[namespace+"/"+name]
	switch {
	case !ok:
		return apierrors.NewNotFound(pods, name)
	case p.UID != uid:
		return apierrors.NewConflict(pods, name, errors.New("precondition failed: UID"))
	case !dryRun:
		f(p)
	}
	return nil
}

func (a *fakeAPI) PatchStatus(_ context.Context, namespace, name string, body []byte, dryRun bool) error {
	var patch statusPatch
	if err := json.Unmarshal(body, &patch); err != nil {
		return err
	}
	return a.change("status", namespace, name, patch.Metadata.UID, dryRun, func(p *v1.Pod) {
		if patch.Status.Phase != "" {
			p.Status.Phase, p.Status.Reason, p.Status.Message = patch.Status.Phase, patch.Status.Reason, patch.Status.Message
		}
		p.Status.Conditions = patch.Status.Conditions
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		maps.Copy(p.Annotations, patch.Metadata.Annotations)
		if a.patched != nil {
			a.patched(p)
		}
	})
}

func (a *fakeAPI) Evict(_ context.Context, namespace, name string, uid types.UID, grace int64, dryRun bool) error {
	a.noteGrace(grace)
	return a.change("evict", namespace, name, uid, dryRun, func(*v1.Pod) { delete(a.pods, namespace+"/"+name) })
}

func (a *fakeAPI) Delete(_ context.Context, namespace, name string, uid types.UID, grace int64, dryRun bool) error {
	a.noteGrace(grace)
	return a.change("delete", namespace, name, uid, dryRun, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
}

func (a *fakeAPI) CreateEvent(_ context.Context, e *v1.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.fail("event"); err != nil {
		return err
	}
	if _, there := a.events[e.Name]; there {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name)
	}
	a.events[e.Name] = e.DeepCopy()
	return nil
}

func (a *fakeAPI) PatchEvent(_ context.Context, _, name string, body []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.fail("event"); err != nil {
		return err
	}
	e, ok := a.events[name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
	}
	return json.Unmarshal(body, e)
}

func (a *fakeAPI) noteGrace(seconds int64) { a.set(func() { a.grace = seconds }) }

func (a *fakeAPI) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// fakeQueue is a disk that can fail or hang.
type fakeQueue struct {
	mu    sync.Mutex
	kept  map[uint64]json.RawMessage
	err   error
	hangs chan struct{} // closed: no more
}

func (q *fakeQueue) SetNotice(id uint64, notice []byte) error {
	if q.hangs != nil {
		<-q.hangs
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.kept[id] = notice
	}
	return q.err
}

func (q *fakeQueue) Notices() (map[uint64]json.RawMessage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.kept), q.err
}

func (q *fakeQueue) DeleteNotice(id uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.kept, id)
	return q.err
}

// rig is a teller and what it talks to, in virtual time.
type rig struct {
	t        *testing.T
	api      *fakeAPI
	queue    *fakeQueue
	opt      Options
	connects atomic.Int32
	teller   *Teller
	stop     func()
}

func newRig(t *testing.T, pods ...*v1.Pod) *rig {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := &rig{t: t, api: newFakeAPI(pods...), queue: &fakeQueue{kept: map[uint64]json.RawMessage{}}}
	r.opt = Options{
		Mode: ByStatus, Node: "n1", BootID: "boot", Clock: time.Now, Log: log, Queue: r.queue,
		Connect: func() (API, error) { r.connects.Add(1); return r.api, nil },
	}
	return r
}

// start runs a teller, a new one after stop.
func (r *rig) start() *Teller {
	r.t.Helper()
	r.teller = New(r.opt)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.teller.Run(ctx) })
	r.stop = func() { cancel(); wg.Wait() }
	return r.teller
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want fails unless the telling is over with these outcomes and the requests
// that changed pods were these.
func (r *rig) want(outcomes map[string]uint64, calls ...string) {
	r.t.Helper()
	got := map[string]uint64{}
	state := r.teller.State()
	for _, n := range state.Told {
		if n.Count > 0 {
			got[n.Way+" "+n.Outcome] = n.Count
		}
	}
	if !maps.Equal(got, outcomes) {
		r.t.Errorf("outcomes %v, want %v (%+v)", got, outcomes, state)
	}
	r.api.set(func() {
		if !slices.Equal(r.api.calls, calls) {
			r.t.Errorf("requests %q, want %q", r.api.calls, calls)
		}
	})
}

func runningPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main"}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
}

func noticeOf(id uint64, name string) eviction.Notice {
	return eviction.Notice{
		ID: id, Pod: inventory.Ref{Namespace: "default", Name: name, UID: "uid-" + name}, Time: time.Now().UTC(),
		Signal: eviction.MemoryAvailable, Threshold: 500 << 20, Available: 400 << 20, Usage: 900 << 20, UsageKnown: true,
	}
}

func nowTime() *metav1.Time { return &metav1.Time{Time: time.Now()} }

func name(i int) string { return string(rune('a'+i/26)) + string(rune('a'+i%26)) }
