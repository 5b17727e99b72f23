package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/rawh2"
)

// streams are server streams of the API, and one that no API knows.
func streams() []string {
	return []string{
		"/runtime.v1.RuntimeService/GetContainerEvents", "/runtime.v1.RuntimeService/StreamPodSandboxes",
		"/runtime.v1.RuntimeService/StreamContainers", "/runtime.v1.ImageService/StreamImages", "/next.year.Service/Stream",
	}
}

func TestRecorderStreams(t *testing.T) {
	head := answerHeader(rawh2.Field{Name: "x-head", Value: "1"})
	many := make([][]byte, 10_000)
	for i := range many {
		many[i] = binary.BigEndian.AppendUint32(payload("n"), uint32(i))
	}
	w := newWire(t, rawh2.Options{}, nil)
	for name, script := range map[string]func(context.Context, *rawh2.Stream){
		"empty":               respond(head, trailers("0", "")),
		"empty, no header":    onlyTrailers(trailersOnly("0", "")),
		"one":                 respond(head, trailers("0", ""), payload("a")),
		"10,000 messages":     respond(head, trailers("0", ""), many...),
		"ends with an error":  respond(head, trailers("10", "that was all", rawh2.Field{Name: "x-t", Value: "1"}), many[:3]...),
		"messages of 0 bytes": respond(head, trailers("0", ""), nil, nil, nil),
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.play(script)
			methods := streams()
			if name == "10,000 messages" {
				methods = methods[:2]
			}
			for _, method := range methods {
				dc, ds := w.call(w.direct, request(method), message(payload("q")))
				pc, ps := w.call(w.through, request(method), message(payload("q")))
				sameRecord(t, method+" request", ds, ps)
				sameRecord(t, method+" answer", dc, pc)
			}
		})
	}
}

// The header block of a stream arrives while there is no message yet, and each
// message while there is no next one.
func TestRecorderStreamIsNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	w := newWire(t, rawh2.Options{}, func(ctx context.Context, s *rawh2.Stream) {
		// Else the proxy may know the answer's end before the request's, and tells
		// the caller by a reset that nobody waits for the rest: allowed, and rare.
		if _, err := s.Over(ctx); err != nil {
			return
		}
		<-next
		s.Headers(false, answerHeader()...)
		for range 3 {
			<-next
			if s.Data(ctx, false, message(payload("m"))) != nil {
				return
			}
		}
		<-next
		s.Headers(true, trailers("0", "")...)
	})
	for _, method := range streams() {
		c := w.open(w.through, false, request(method))
		if err := c.Data(w.ctx(), true, message(nil)); err != nil {
			t.Fatal(err)
		}
		w.awaitServer(c)
		size := len(message(payload("m")))
		for i, want := range []string{"H", "HD", "HD", "HD", "HDH."} {
			next <- struct{}{}
			got := func(r *rawh2.Record) bool {
				return r.Pattern() == want && len(r.Bytes()) == size*min(i, 3)
			}
			if r, err := c.Await(w.ctx(), got); err != nil {
				t.Fatalf("%s step %d: %v, %s", method, i, err, r.Pattern())
			}
		}
	}
}

// A caller that resets its stream is felt by the backend as a reset, whatever
// the stream was doing.
func TestRecorderResetOfTheCallerReachesTheBackend(t *testing.T) {
	for name, script := range map[string]func(context.Context, *rawh2.Stream){
		"before the header": func(context.Context, *rawh2.Stream) {},
		"after the header":  func(_ context.Context, s *rawh2.Stream) { s.Headers(false, answerHeader()...) },
		"among messages": func(ctx context.Context, s *rawh2.Stream) {
			s.Headers(false, answerHeader()...)
			for s.Data(ctx, false, message(make([]byte, 1000))) == nil && !resetSeen(s) {
				runtime.Gosched()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, rawh2.Options{}, script)
			for _, method := range append(streams(), "/runtime.v1.RuntimeService/Version", "/runtime.v1.RuntimeService/StopContainer") {
				c := w.open(w.through, false, request(method))
				if err := c.Data(w.ctx(), true, message(nil)); err != nil {
					t.Fatal(err)
				}
				w.awaitServer(c)
				began := time.Now()
				c.Reset(http2.ErrCodeCancel)
				r, err := c.server.Await(w.ctx(), func(r *rawh2.Record) bool { return r.Reset })
				if err != nil {
					t.Fatalf("%s: %v after %v, %s", method, err, time.Since(began), r.Pattern())
				}
				if code := r.Parts[len(r.Parts)-1].Code; code != http2.ErrCodeCancel {
					t.Errorf("%s: reset with %v", method, code)
				}
			}
			eventually(t, "no call open", func() bool { return w.proxy.Status().InFlight == 0 })
		})
	}
}

func resetSeen(s *rawh2.Stream) bool {
	r := s.Record()
	return r.Reset
}

// A caller whose connection breaks is felt the same way.
func TestRecorderCutCallerReachesTheBackend(t *testing.T) {
	w := newWire(t, rawh2.Options{}, func(_ context.Context, s *rawh2.Stream) { s.Headers(false, answerHeader()...) })
	for _, method := range append(streams(), "/runtime.v1.RuntimeService/Version") {
		conn := w.dialRaw(w.proxy.opts.Listen.Path, rawh2.Options{})
		c := w.open(conn, false, request(method))
		if err := c.Data(w.ctx(), false, message(nil)); err != nil { // half closed is nothing special
			t.Fatal(err)
		}
		w.awaitServer(c)
		conn.Close()
		if r, err := c.server.Await(w.ctx(), func(r *rawh2.Record) bool { return r.Reset }); err != nil {
			t.Errorf("%s: %v, %s", method, err, r.Pattern())
		}
	}
}

// A backend that resets a stream, or breaks the connection in the middle of it,
// ends the call with the status a gRPC caller would have made of it, and what
// was sent before arrives.
func TestRecorderStreamCutByTheBackend(t *testing.T) {
	begin := func(ctx context.Context, s *rawh2.Stream) bool {
		if _, err := s.Over(ctx); err != nil {
			return false
		}
		s.Headers(false, answerHeader()...)
		return s.Data(ctx, false, append(message(payload("whole")), message(payload("half"))[:7]...)) == nil
	}
	reset := func(code http2.ErrCode) func(context.Context, *rawh2.Stream) {
		return func(ctx context.Context, s *rawh2.Stream) {
			if begin(ctx, s) {
				s.Reset(code)
			}
		}
	}
	for name, tt := range map[string]struct {
		script func(context.Context, *rawh2.Stream)
		want   string // grpc-status, PROTOCOL-HTTP2.md
	}{
		"refused":            {reset(http2.ErrCodeRefusedStream), "14"},
		"cancel":             {reset(http2.ErrCodeCancel), "1"},
		"internal":           {reset(http2.ErrCodeInternal), "13"},
		"enhance your calm":  {reset(http2.ErrCodeEnhanceYourCalm), "8"},
		"not enough safe":    {reset(http2.ErrCodeInadequateSecurity), "7"},
		"connection is gone": {func(ctx context.Context, s *rawh2.Stream) { cutAfter(ctx, s, begin) }, "14"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{streams()[0], "/runtime.v1.RuntimeService/Version", "/runtime.v1.RuntimeService/ContainerStatus"} {
				w := newWire(t, rawh2.Options{}, tt.script)
				c := w.open(w.through, false, request(method))
				if err := c.Data(w.ctx(), true, message(nil)); err != nil {
					t.Fatal(err)
				}
				r, err := c.Over(w.ctx())
				if err != nil || r.Get("grpc-status") != tt.want {
					t.Errorf("%s: %v, %s, status %q %q", method, err, r.Pattern(), r.Get("grpc-status"), r.Get("grpc-message"))
				}
				if got, rest := rawh2.Messages(r.Bytes()); len(got) != 1 || string(got[0].Payload) != string(payload("whole")) || len(rest) != 0 {
					t.Errorf("%s: %d messages and %d bytes: %s, %q", method, len(got), len(rest), r.Pattern(), r.Get("grpc-message"))
				}
			}
		})
	}
}

func cutAfter(ctx context.Context, s *rawh2.Stream, begin func(context.Context, *rawh2.Stream) bool) {
	if !begin(ctx, s) {
		return
	}
	// What was queued has to be on its way before the connection goes.
	s.Flush(ctx)
	s.Conn().Cut()
}

// A caller that gives no window back stops the backend: what the backend can
// send, and so what the proxy can hold, is the two hops' windows. Others go on.
func TestRecorderBackPressure(t *testing.T) {
	const total = 64 << 20
	w := newWire(t, rawh2.Options{Hold: true}, nil)
	play := func(ctx context.Context, s *rawh2.Stream) {
		s.Headers(false, answerHeader()...)
		_ = s.Data(ctx, false, bytes.Repeat(message(make([]byte, 64<<10)), total/(64<<10))) // the reset at the end stops it
	}
	w.play(play)
	before := heapInUse()
	c := w.open(w.through, false, request(streams()[0]))
	if err := c.Data(w.ctx(), true, message(nil)); err != nil {
		t.Fatal(err)
	}
	w.awaitServer(c)
	sent := atRest(t, c.server)
	// Two messages may be on their way through, beside what the windows hold.
	// Less than our own window means that another window is in force.
	if limit := int64(cri.StreamWindow + 65535 + 4*(64<<10)); sent > limit || sent < cri.StreamWindow {
		t.Errorf("%d KiB were taken from the backend, the windows hold %d", sent>>10, limit>>10)
	}
	grown := int64(heapInUse()) - int64(before) - total // the backend's own buffer is part of this process
	if grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	other := w.dialRaw(w.proxy.opts.Listen.Path, rawh2.Options{})
	w.play(respond(answerHeader(), trailers("0", ""), payload("a")))
	if r, _ := w.call(other, request("/runtime.v1.RuntimeService/Version"), message(nil)); r.Get("grpc-status") != "0" {
		t.Errorf("another caller: %q", r.Get("grpc-status"))
	}
	c.Reset(http2.ErrCodeCancel)
	if _, err := c.server.Await(w.ctx(), func(r *rawh2.Record) bool { return r.Reset }); err != nil {
		t.Error(err)
	}
}

// atRest waits until something flowed and then nothing for a while.
func atRest(t *testing.T, s *rawh2.Stream) int64 {
	t.Helper()
	eventually(t, "something flows", func() bool { return s.Sent() >= 65535 })
	sent := int64(-1)
	for now := s.Sent(); now != sent; now = s.Sent() {
		sent = now
		time.Sleep(300 * time.Millisecond)
	}
	return sent
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The other way round: a backend that does not read stops the caller.
func TestRecorderBackPressureOfTheBackend(t *testing.T) {
	w := newWireTo(t, rawh2.Options{}, rawh2.Options{Hold: true}, func(context.Context, *rawh2.Stream) {})
	c := w.open(w.through, false, request("/x.Y/Upload"))
	ctx, cancel := context.WithCancel(w.ctx())
	done := make(chan error, 1)
	go func() { done <- c.Data(ctx, false, bytes.Repeat(message(make([]byte, 64<<10)), 512)) }()
	w.awaitServer(c)
	sent := atRest(t, c.Stream)
	if limit := int64(cri.StreamWindow + 65535 + 4*(64<<10)); sent > limit || sent < cri.StreamWindow {
		t.Errorf("%d KiB were taken from the caller, the windows hold %d", sent>>10, limit>>10)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller was not held up: %v", err)
	}
}

// 64 MiB is the largest message, exactly, both ways at once.
func TestRecorder64MiB(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), cri.MaxMessageSize/16)
	w := newWire(t, rawh2.Options{}, respond(answerHeader(), trailers("0", ""), big))
	// A method that is looked into both ways.
	client, server := w.call(w.through, request("/runtime.v1.RuntimeService/ContainerStatus"), message(big))
	if client.Get("grpc-status") != "0" {
		t.Errorf("status %q %q", client.Get("grpc-status"), client.Get("grpc-message"))
	}
	for side, r := range map[string]rawh2.Record{"request": server, "answer": client} {
		if got, rest := rawh2.Messages(r.Bytes()); len(got) != 1 || len(rest) != 0 || !bytes.Equal(got[0].Payload, big) {
			t.Errorf("%s: %d messages, %d bytes", side, len(got), len(r.Bytes()))
		}
	}
}
