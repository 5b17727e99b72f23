package rawh2

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

func pair(t *testing.T, client Options, handle func(*Stream)) (*Conn, context.Context) {
	t.Helper()
	dir, err := os.MkdirTemp("", "h2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	s, err := Listen(path, Options{}, handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, err := Dial(path, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return c, ctx
}

// Everything a stream can consist of arrives as it was sent, also when it is
// larger than a frame and than the windows.
func TestStreamArrivesAsSent(t *testing.T) {
	long := strings.Repeat("v", 40000)
	body := bytes.Repeat([]byte("0123456789"), 50000)
	c, ctx := pair(t, Options{}, func(s *Stream) {
		r, err := s.Over(t.Context())
		if err != nil {
			return
		}
		s.Headers(false, Field{":status", "200"}, Field{"long", r.Get("long")})
		if s.Data(t.Context(), false, r.Bytes()) == nil {
			s.Headers(true, Field{"grpc-status", "0"}, Field{"pattern", r.Pattern()})
		}
	})
	s := c.Open(false, Field{":method", "POST"}, Field{":scheme", "http"}, Field{":path", "/x"}, Field{"long", long})
	if err := s.Data(ctx, true, body); err != nil {
		t.Fatal(err)
	}
	r, err := s.Over(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r.Pattern() != "HDH." || r.Get("pattern") != "HD." || r.Get("long") != long || !bytes.Equal(r.Bytes(), body) {
		t.Errorf("%s %s, %d bytes", r.Pattern(), r.Get("pattern"), len(r.Bytes()))
	}
}

// A peer that gives no window back gets exactly the initial one.
func TestHeldWindow(t *testing.T) {
	var sent int64
	over := make(chan struct{})
	c, ctx := pair(t, Options{Hold: true}, func(s *Stream) {
		defer close(over)
		s.Headers(false, Field{":status", "200"})
		_ = s.Data(t.Context(), true, make([]byte, 1<<20)) // the reset ends it
		sent = s.Sent()
	})
	s := c.Open(true, Field{":method", "POST"}, Field{":scheme", "http"}, Field{":path", "/x"})
	r, err := s.Await(ctx, func(r *Record) bool {
		return len(r.Parts) == 2 && len(r.Parts[1].Data) == initialWindow
	})
	if err != nil {
		t.Fatal(err, r.Pattern())
	}
	s.Reset(http2.ErrCodeCancel)
	<-over
	if sent != initialWindow {
		t.Errorf("sent %d", sent)
	}
}

func TestResetAndCut(t *testing.T) {
	c, ctx := pair(t, Options{}, func(s *Stream) {
		if r := s.Record(); r.Get(":path") == "/reset" {
			s.Reset(http2.ErrCodeRefusedStream)
			return
		}
		s.Conn().Cut()
	})
	s := c.Open(true, Field{":method", "POST"}, Field{":scheme", "http"}, Field{":path", "/reset"})
	if r, err := s.Over(ctx); err != nil || r.Pattern() != "R" || r.Parts[0].Code != http2.ErrCodeRefusedStream {
		t.Errorf("%v %v", r, err)
	}
	s = c.Open(true, Field{":method", "POST"}, Field{":scheme", "http"}, Field{":path", "/cut"})
	if _, err := s.Over(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("cut: %v", err)
	}
}

func TestMessages(t *testing.T) {
	b := append(Encode(Message{Payload: []byte("one")}), Encode(Message{Compressed: true, Payload: []byte{}})...)
	got, rest := Messages(append(b, 0, 0, 0))
	if len(got) != 2 || string(got[0].Payload) != "one" || got[0].Compressed || !got[1].Compressed || len(rest) != 3 {
		t.Errorf("%+v %v", got, rest)
	}
}
