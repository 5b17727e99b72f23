package proxy

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// patience is how long tests wait for what must happen.
const patience = time.Minute

// rig is a fake runtime with a proxy in front of it.
type rig struct {
	t       testing.TB
	dir     string
	runtime *fakecri.Server
	proxy   *Proxy
	writer  *holds.Writer
	// hook becomes the proxy's decodeHook.
	hook func(method string)
	// through and direct are connections to the proxy and to the runtime.
	through, direct *grpc.ClientConn
	// stop ends the proxy, stopped gives Run's result.
	stop    context.CancelFunc
	stopped chan error
}

func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "px")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newRig starts everything; change may alter the proxy before it runs.
func newRig(t testing.TB, change func(*rig, *Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: shortDir(t)}
	var err error
	if r.runtime, err = fakecri.Start(fakecri.Options{Dir: r.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.runtime.Close)
	r.startProxy(change)
	r.direct = r.dial(r.runtime.Endpoint())
	return r
}

// startProxy starts the proxy of a rig whose runtime may not be there.
func (r *rig) startProxy(change func(*rig, *Options)) {
	t := r.t
	t.Helper()
	runDir := filepath.Join(r.dir, "run")
	var err error
	if r.writer, err = holds.OpenWriter(runDir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.writer.Close() })
	reader := holds.OpenReader(runDir)
	t.Cleanup(func() { _ = reader.Close() })
	opts := Options{
		Listen:         cri.Endpoint{Path: filepath.Join(r.dir, "p.sock")},
		Upstream:       cri.Endpoint{Path: filepath.Join(r.dir, "cri.sock")},
		Holds:          reader,
		EventsSocket:   filepath.Join(r.dir, "e.sock"),
		DecorateStatus: true,
		DrainTimeout:   5 * time.Second,
	}
	if change != nil {
		change(r, &opts)
	}
	if r.proxy, err = New(opts); err != nil {
		t.Fatal(err)
	}
	r.proxy.decodeHook = r.hook
	r.run()
}

func (r *rig) run() {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, stopped := r.proxy, make(chan error, 1)
	r.stop, r.stopped = cancel, stopped
	go func() { stopped <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-stopped:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
			stopped <- err
		case <-time.After(patience):
			t.Error("proxy did not end")
		}
	})
	select {
	case <-p.Serving():
	case err := <-stopped:
		stopped <- err
		t.Fatalf("Run: %v", err)
	case <-time.After(patience):
		t.Fatal("proxy does not serve")
	}
	r.through = r.dial(r.proxy.opts.Listen)
}

func (r *rig) dial(e cri.Endpoint) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(cri.Target, cri.DialOptions(e, nil)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) cri() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(r.through)
}

// answer is all a caller can see of a call.
type answer struct {
	header, trailer metadata.MD
	messages        [][]byte
	code            codes.Code
	text            string
	details         int
}

// exchange makes a call with raw messages and collects the whole answer.
func exchange(ctx context.Context, conn *grpc.ClientConn, method, subtype string, requests ...[]byte) answer {
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	cs, err := conn.NewStream(ctx, desc, method, grpc.ForceCodecV2(fakecri.Codec{Subtype: subtype}))
	if err != nil {
		return answer{code: status.Code(err), text: status.Convert(err).Message()}
	}
	for _, m := range requests {
		raw := fakecri.Raw(m)
		if cs.SendMsg(&raw) != nil {
			break // the status tells why
		}
	}
	_ = cs.CloseSend()
	var a answer
	a.header, _ = cs.Header()
	for {
		var m fakecri.Raw
		if err = cs.RecvMsg(&m); err != nil {
			break
		}
		a.messages = append(a.messages, m)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	st := status.Convert(err)
	a.code, a.text, a.details, a.trailer = st.Code(), st.Message(), len(st.Proto().GetDetails()), cs.Trailer()
	return a
}

// eventually waits for a condition that has no signal of its own.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// hold writes a record in a state; the decision was at "decided".
func (r *rig) hold(uid string, state holds.State, decided time.Time) holds.Record {
	r.t.Helper()
	rec := holds.Record{
		ID: r.writer.NextID(), State: state, UID: uid, Namespace: "default", Name: "hog",
		Signal: "memory.available", Threshold: 500 << 20, Available: 430 << 20, AvailableKubelet: 440 << 20,
		Usage: 900 << 20, Request: 100 << 20, Decided: decided.UTC(),
	}
	if state == holds.Killed || state == holds.Released {
		rec.KilledAt = decided.UTC().Add(50 * time.Millisecond)
	}
	if state == holds.Released {
		rec.ReleasedAt = decided.UTC().Add(time.Minute)
		rec.ReleaseReason = "pressure-over"
	}
	if err := r.writer.Put(rec); err != nil {
		r.t.Fatal(err)
	}
	return rec
}
