package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/proxy"
)

func TestInventoryEvent(t *testing.T) {
	now := time.Unix(1000, 0)
	adj, limit := int64(900), int64(5)
	pod := &proxy.PodRef{Namespace: "ns", Name: "n", UID: "u"}
	ref := inventory.Ref{Namespace: "ns", Name: "n", UID: "u"}
	full := func(typ string) proxy.Event {
		return proxy.Event{
			Type: typ, Time: now, Pod: pod, SandboxID: "s", ContainerID: "c", ContainerName: "cn", Image: "i", Attempt: 2, CgroupParent: "/p",
			OOMScoreAdj: &adj, MemoryLimit: &limit, Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"},
		}
	}
	for _, tt := range []struct {
		typ            string
		want           inventory.EventType
		ready, running bool
	}{
		{proxy.EventHello, inventory.Dirty, false, false},
		{proxy.EventDirty, inventory.Dirty, false, false},
		{proxy.EventRunBegin, inventory.SandboxWanted, false, false},
		{proxy.EventSandboxStarted, inventory.SandboxStarted, true, false},
		{proxy.EventSandboxStopped, inventory.SandboxStopped, false, false},
		{proxy.EventSandboxRemoved, inventory.SandboxRemoved, false, false},
		{proxy.EventContainerCreated, inventory.ContainerCreated, false, true},
		{proxy.EventContainerStopped, inventory.ContainerStopped, false, false},
		{proxy.EventContainerRemoved, inventory.ContainerRemoved, false, false},
	} {
		got, ok := inventoryEvent(full(tt.typ))
		want := inventory.Event{
			Type: tt.want, Time: now, Pod: ref, Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"},
			Sandbox:   inventory.Sandbox{ID: "s", Attempt: 2, Ready: tt.ready, Created: now, CgroupParent: "/p"},
			Container: inventory.Container{ID: "c", SandboxID: "s", Name: "cn", Image: "i", Running: tt.running, Created: now, OOMScoreAdj: &adj, MemoryLimit: &limit},
		}
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v", tt.typ, got, ok)
		}
	}
	for name, e := range map[string]proxy.Event{
		"no effect":           full(proxy.EventPullBegin),
		"unknown":             full("somethingNew"),
		"no type":             {},
		"wanted, no pod":      {Type: proxy.EventRunBegin},
		"started, no pod":     {Type: proxy.EventSandboxStarted, SandboxID: "s"},
		"started, no sandbox": {Type: proxy.EventSandboxStarted, Pod: pod},
		"created, no ID":      {Type: proxy.EventContainerCreated},
	} {
		if got, ok := inventoryEvent(e); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// noTree and noRuntime are an empty machine.
type noTree struct{ inventory.Tree }

func (noTree) Pods() ([]cgroupfs.PodPath, error) { return nil, nil }

type noRuntime struct{}

func (noRuntime) List(context.Context) (inventory.Listing, error) { return inventory.Listing{}, nil }
func (noRuntime) PID(context.Context, string) (int, error)        { return 0, nil }

// A proxy that goes and comes back is followed again, and its absence said once.
func TestFollowProxyReconnects(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	log, hook := logtest.NewNullLogger()
	log.SetLevel(logrus.InfoLevel)
	store := inventory.NewStore(inventory.Options{})
	syncer := inventory.NewSyncer(store, noRuntime{}, noTree{}, time.Now, log)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	asked := make(chan string, 10)
	uses := gc.NewUses(nil, time.Now)
	refused := func(pod inventory.Ref, condition string) { asked <- pod.String() + " " + pod.UID + " " + condition }
	go func() {
		defer close(done)
		followProxy(ctx, n.path("proxy.sock"), &proxySeen{clock: time.Now}, syncer, refused, uses, log)
	}()
	eventually(t, "its absence is said", func() bool { return len(hook.AllEntries()) == 1 })

	for round := range 2 {
		l, err := net.Listen("unix", n.path("proxy.sock"))
		if err != nil {
			t.Fatal(err)
		}
		uid := []string{"first", "second"}[round]
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			enc := json.NewEncoder(w)
			_ = enc.Encode(proxy.Event{Type: proxy.EventHello})
			_ = enc.Encode(proxy.Event{Type: proxy.EventSandboxStarted, Time: time.Now(), SandboxID: uid, Pod: &proxy.PodRef{UID: uid}})
			_ = enc.Encode(proxy.Event{Type: proxy.EventAdmissionRefused, Condition: proxy.MemoryPressure, Pod: &proxy.PodRef{Namespace: "n", Name: "p", UID: uid}})
			_ = enc.Encode(proxy.Event{Type: proxy.EventAdmissionRefused, Condition: proxy.MemoryPressure})
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(l) }()
		eventually(t, "the pod is known", func() bool { _, ok := store.Snapshot().Pod(uid); return ok })
		if got := <-asked; got != "n/p "+uid+" MemoryPressure" {
			t.Errorf("refused %q", got)
		}
		_ = server.Close()
		<-served
	}
	cancel()
	<-done
	if _, linked := uses.Watched(); linked {
		t.Error("the uses of images do not know that nobody is followed")
	}
	var said []string
	for _, e := range hook.AllEntries() {
		said = append(said, e.Level.String()+": "+e.Message)
	}
	const away = "warning: no events from the proxy; listing and the cgroup tree are used, holds are enforced only by a proxy"
	const there = "info: following the proxy's events"
	if len(said) < 4 || said[0] != away || said[1] != there || said[2] != away || said[3] != there || len(said) > 5 {
		t.Errorf("said %q", said)
	}
}

// A proxy that is being restarted goes on keeping pods from starting: kubelet has no
// other way to the runtime. One that stays away, or never was there, does not.
func TestProxySeen(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &proxySeen{clock: func() time.Time { return now }}
	for i, step := range []struct {
		there, gone bool
		after       time.Duration
		want        bool
	}{
		{},
		{gone: true, after: time.Hour},
		{there: true, want: true},
		{after: time.Hour, want: true},
		{gone: true, want: true},
		{gone: true, after: 29 * time.Second, want: true},
		{gone: true, after: time.Second},
		{there: true, want: true},
	} {
		now = now.Add(step.after)
		if step.there || step.gone {
			p.set(step.there)
		}
		if got := p.enforces(); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
}
