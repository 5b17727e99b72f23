package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// slowRelay passes a socket on and stops the answers while held.
type slowRelay struct {
	held sync.Mutex
}

func (s *slowRelay) serve(t *testing.T, path, to string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(out, in) // ends with the reader
				_ = out.Close()
			}()
			go func() {
				defer func() { _ = in.Close() }()
				buf := make([]byte, 4096)
				for {
					n, err := out.Read(buf)
					s.held.Lock()
					_, werr := in.Write(buf[:n])
					s.held.Unlock()
					if err != nil || werr != nil {
						return
					}
				}
			}()
		}
	}()
}

// An evictor that cannot keep up loses events, is told so, and lists anew: what
// the lost events told is in the inventory all the same.
func TestEventOverflowLeadsToANewList(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	log, _ := logtest.NewNullLogger()
	listen, err := cri.ParseEndpoint("listen", n.path("p.sock"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(proxy.Options{Listen: listen, Upstream: n.runtime.Endpoint(), EventsSocket: n.path("events.sock"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-p.Serving()
	through, err := cri.Dial(listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	own, err := n.runtime.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	run := func(uid string) string {
		t.Helper()
		r, err := through.Runtime().RunPodSandbox(ctx, sandboxRequest(uid, uid, "/kubepods/pod"+uid, 0))
		if err != nil {
			t.Fatal(err)
		}
		return r.GetPodSandboxId()
	}
	gone := run("gone")

	relay := &slowRelay{}
	relay.serve(t, n.path("relay.sock"), n.path("events.sock"))
	store := inventory.NewStore(inventory.Options{MemTotal: 1 << 30})
	syncer := inventory.NewSyncer(store, inventory.CRIRuntime{Lister: own}, noTree{}, time.Now, log)
	wg.Go(func() { syncer.Run(ctx) })
	wg.Go(func() {
		followProxy(ctx, n.path("relay.sock"), &proxySeen{clock: time.Now}, syncer, func(inventory.Ref, string) {}, gc.NewUses(nil, time.Now), log)
	})
	run("first")
	eventually(t, "events are followed", func() bool {
		_, a := store.Snapshot().Pod("gone")
		_, b := store.Snapshot().Pod("first")
		return a && b && p.Status().Subscribers == 1
	})
	// Lists at start and for the stream's "hello": wait until they are over.
	eventually(t, "both lists were read", func() bool { return len(n.runtime.Calls("ListContainers")) >= 2 })

	relay.held.Lock()
	overflow := func() {
		t.Helper()
		before := p.Status().EventsDropped
		for i := 0; p.Status().EventsDropped == before; i++ {
			id := fmt.Sprint(i) + strings.Repeat("x", 2000)
			if err := through.StopPodSandbox(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	overflow()
	run("late")
	if _, err := through.Runtime().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: gone}); err != nil {
		t.Fatal(err)
	}
	overflow() // what tells of these two is among the lost
	lists := len(n.runtime.Calls("ListPodSandbox"))
	if _, ok := store.Snapshot().Pod("late"); ok {
		t.Fatal("the event was not held up")
	}
	relay.held.Unlock()
	eventually(t, "the inventory is the runtime's list", func() bool {
		_, late := store.Snapshot().Pod("late")
		_, old := store.Snapshot().Pod("gone")
		return late && !old
	})
	if n := len(n.runtime.Calls("ListPodSandbox")); n <= lists {
		t.Errorf("not listed anew: %d lists before, %d after", lists, n)
	}
}
