package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/rawh2"
)

// Many connections with many hanging calls each: another caller is served, and
// when the flood is over nothing of it is left.
func TestFloodOfConnectionsAndStreams(t *testing.T) {
	const connections, streams = 100, 30
	r := newRig(t, nil)
	if _, err := r.version(r.ctx()); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	r.runtime.Inject("Status", fakecri.Fault{Hang: true})
	conns := make([]*rawh2.Conn, connections)
	for i := range conns {
		c, err := rawh2.Dial(r.proxy.opts.Listen.Path, rawh2.Options{})
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
		for range streams {
			s := c.Open(false, request("/runtime.v1.RuntimeService/Status")...)
			if err := s.Data(r.ctx(), true, message(nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.inFlight("Status", connections*streams)
	for range 20 {
		ctx, cancel := context.WithTimeout(r.ctx(), 10*time.Second)
		if _, err := r.version(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "no call open", func() bool { return r.proxy.Status().InFlight == 0 })
	eventually(t, fmt.Sprintf("about %d descriptors", fds), func() bool { return descriptors(t) <= fds+5 })
	eventually(t, fmt.Sprintf("about %d goroutines", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines+20 })
}

// Streams opened and reset at once, as fast as it goes (CVE-2023-44487): others
// are served.
func TestFloodOfResets(t *testing.T) {
	r := newRig(t, nil)
	c, err := rawh2.Dial(r.proxy.opts.Listen.Path, rawh2.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5000 {
		s := c.Open(true, request("/runtime.v1.RuntimeService/Version")...)
		s.Reset(http2.ErrCodeCancel)
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(r.ctx(), 15*time.Second)
		if _, err := r.version(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	c.Close()
	eventually(t, "no call open", func() bool { return r.proxy.Status().InFlight == 0 })
}

// halfOpen are connections that begin and do not go on.
func halfOpen() map[string]string {
	preface := http2.ClientPreface
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	return map[string]string{
		"says nothing":           "",
		"half a preface":         preface[:10],
		"preface only":           preface,
		"half a settings frame":  preface + settings[:5],
		"half a header frame":    preface + settings + "\x00\x00\x40\x01\x04\x00\x00\x00\x01\x82",
		"headers without an end": preface + settings + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x83",
		"not HTTP/2":             "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	}
}

// Half-open connections disturb nobody; those that have not even greeted are
// ended by us, and the others end when their caller does.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	for name, text := range halfOpen() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			var conns []net.Conn
			for range 50 {
				c, err := net.Dial("unix", r.proxy.opts.Listen.Path)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				if _, err := io.WriteString(c, text); err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
			}
			for range 10 {
				if _, err := r.version(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			if len(text) >= len(http2.ClientPreface)+9 && text[:3] == "PRI" {
				return // greeted: may stay as long as it likes
			}
			for _, c := range conns {
				if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("not ended within %v", patience)
				}
			}
		})
	}
}

// Half-open connections do not hold up the end of the proxy beyond the time for
// draining.
func TestHalfOpenConnectionsDoNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, o *Options) { o.DrainTimeout = time.Second })
	for _, text := range halfOpen() {
		c, err := net.Dial("unix", r.proxy.opts.Listen.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.version(r.ctx()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	r.stop()
	r.waitStopped()
	if d := time.Since(begun); d > 15*time.Second {
		t.Errorf("took %v", d)
	}
}

// Before the runtime was ever there many callers wait, each no longer than its
// deadline, and all are served when it comes (design §5).
func TestManyCallersWaitForTheFirstConnection(t *testing.T) {
	r := &rig{t: t, dir: shortDir(t)}
	r.startProxy(nil)
	var wg sync.WaitGroup
	const callers = 40
	errs := make(chan error, callers)
	for range callers {
		wg.Go(func() {
			conn, err := grpc.NewClient(cri.Target, cri.DialOptions(r.proxy.opts.Listen, nil)...)
			if err != nil {
				errs <- err
				return
			}
			defer func() { _ = conn.Close() }()
			_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(r.ctx(), &runtimeapi.VersionRequest{})
			errs <- err
		})
	}
	eventually(t, "all wait", func() bool { return r.proxy.Status().InFlight == callers })
	var err error
	if r.runtime, err = fakecri.Start(fakecri.Options{Dir: r.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.runtime.Close)
	wg.Wait()
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
