package proxy

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/rawh2"
)

// wire is a proxy between two plain framers: no gRPC library on either side
// smooths anything out.
type wire struct {
	*rig
	backend         *rawh2.Server
	direct, through *rawh2.Conn
	life            context.Context // the whole test's

	mu     sync.Mutex
	serial int
	script func(context.Context, *rawh2.Stream)
	arrive map[string]chan *rawh2.Stream // by the caller's x-case
}

// newWire starts a backend that plays the script for every call of the test.
func newWire(t *testing.T, opts rawh2.Options, script func(context.Context, *rawh2.Stream)) *wire {
	t.Helper()
	return newWireTo(t, opts, rawh2.Options{}, script)
}

// newWireTo is newWire with options of the backend's side.
func newWireTo(t *testing.T, opts, backend rawh2.Options, script func(context.Context, *rawh2.Stream)) *wire {
	t.Helper()
	w := &wire{rig: &rig{t: t, dir: shortDir(t)}, life: t.Context(), script: script, arrive: make(map[string]chan *rawh2.Stream)}
	path := filepath.Join(w.dir, "cri.sock")
	var err error
	if w.backend, err = rawh2.Listen(path, backend, w.serve); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.backend.Close() })
	w.startProxy(nil)
	w.direct = w.dialRaw(path, opts)
	w.through = w.dialRaw(w.proxy.opts.Listen.Path, opts)
	return w
}

func (w *wire) dialRaw(path string, opts rawh2.Options) *rawh2.Conn {
	w.t.Helper()
	c, err := rawh2.Dial(path, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// play changes the script for the calls to come.
func (w *wire) play(script func(context.Context, *rawh2.Stream)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script = script
}

func (w *wire) serve(s *rawh2.Stream) {
	r := s.Record()
	w.mu.Lock()
	arrived, script := w.arrive[r.Get("x-case")], w.script
	w.mu.Unlock()
	if arrived == nil { // the proxy's own Version after connecting
		s.Headers(true, trailersOnly("12", "")...)
		return
	}
	arrived <- s
	script(w.life, s)
}

// wireCall is one call with both its ends.
type wireCall struct {
	*rawh2.Stream               // the caller's end
	server        *rawh2.Stream // the backend's, after arrived
	arrived       chan *rawh2.Stream
}

// open begins a call on one of the connections.
func (w *wire) open(c *rawh2.Conn, end bool, fields []rawh2.Field) *wireCall {
	w.mu.Lock()
	w.serial++
	id := fmt.Sprint(w.serial)
	arrived := make(chan *rawh2.Stream, 1)
	w.arrive[id] = arrived
	w.mu.Unlock()
	return &wireCall{Stream: c.Open(end, append(slices.Clone(fields), rawh2.Field{Name: "x-case", Value: id})...), arrived: arrived}
}

// awaitServer waits until the backend has the call.
func (w *wire) awaitServer(c *wireCall) {
	w.t.Helper()
	select {
	case c.server = <-c.arrived:
	case <-w.ctx().Done():
		w.t.Fatal("the call did not reach the backend")
	}
}

// call makes a whole call with these messages and returns what both ends saw.
func (w *wire) call(conn *rawh2.Conn, fields []rawh2.Field, data []byte) (client, server rawh2.Record) {
	w.t.Helper()
	ctx := w.ctx()
	c := w.open(conn, false, fields)
	if err := c.Data(ctx, true, data); err != nil {
		w.t.Fatal(err)
	}
	w.awaitServer(c)
	client, err := c.Over(ctx)
	if err != nil {
		w.t.Fatalf("answer: %v, so far %s", err, client.Pattern())
	}
	server, err = c.server.Over(ctx)
	if err != nil {
		w.t.Fatalf("request: %v, so far %s", err, server.Pattern())
	}
	return client, server
}

// request is the header block of a call.
func request(path string, more ...rawh2.Field) []rawh2.Field {
	return append([]rawh2.Field{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "localhost"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...)
}

func answerHeader(more ...rawh2.Field) []rawh2.Field {
	return append([]rawh2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}}, more...)
}

func trailers(code, text string, more ...rawh2.Field) []rawh2.Field {
	return append([]rawh2.Field{{Name: "grpc-status", Value: code}, {Name: "grpc-message", Value: text}}, more...)
}

func trailersOnly(code, text string, more ...rawh2.Field) []rawh2.Field {
	return append(answerHeader(), trailers(code, text, more...)...)
}

// message is a message as DATA.
func message(payload []byte) []byte { return rawh2.Encode(rawh2.Message{Payload: payload}) }

// respond waits for the whole request and answers with a header block, messages
// and trailers.
func respond(header, trailer []rawh2.Field, payloads ...[]byte) func(context.Context, *rawh2.Stream) {
	return func(ctx context.Context, s *rawh2.Stream) {
		if _, err := s.Over(ctx); err != nil {
			return
		}
		s.Headers(false, header...)
		for _, p := range payloads {
			if err := s.Data(ctx, false, message(p)); err != nil {
				return
			}
		}
		s.Headers(true, trailer...)
	}
}

// perHop are the fields each hop writes for itself (design §2.1); deadlines are
// compared apart.
var perHop = []string{"user-agent", "grpc-accept-encoding", "grpc-encoding", "grpc-timeout", "x-case"}

// endToEndFields are the fields that must not change, sorted by name, the order
// of equal names kept, "-bin" values decoded: their padding is per hop.
func endToEndFields(t *testing.T, fields []rawh2.Field) []rawh2.Field {
	t.Helper()
	var out []rawh2.Field
	for _, f := range fields {
		if slices.Contains(perHop, f.Name) {
			continue
		}
		if strings.HasSuffix(f.Name, "-bin") {
			b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(f.Value, "="))
			if err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
			f.Value = string(b)
		}
		if f.Name == "grpc-message" && f.Value == "" {
			continue // empty and absent are the same
		}
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b rawh2.Field) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// sameRecord compares two records part by part.
func sameRecord(t *testing.T, what string, direct, through rawh2.Record) {
	t.Helper()
	if d, p := parts(direct), parts(through); d != p {
		t.Errorf("%s: parts direct %s, through %s", what, d, p)
		return
	}
	db, pb := direct.Blocks(), through.Blocks()
	for i := range db {
		d, p := endToEndFields(t, db[i]), endToEndFields(t, pb[i])
		if !slices.Equal(d, p) {
			t.Errorf("%s: header block %d\ndirect  %q\nthrough %q", what, i, d, p)
		}
	}
	if d, p := direct.Bytes(), through.Bytes(); string(d) != string(p) {
		t.Errorf("%s: data direct %.100q, through %.100q", what, d, p)
	}
}

// parts is the pattern without DATA that carries nothing but the end: whether
// END_STREAM is on the last message's frame or on an empty one is per hop.
func parts(r rawh2.Record) string {
	var out rawh2.Record
	for _, p := range r.Parts {
		if p.Kind == rawh2.Data {
			p.End = false
			if len(p.Data) == 0 {
				continue
			}
		}
		out.Parts = append(out.Parts, p)
	}
	return out.Pattern()
}
