package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/rawh2"
)

func zip(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// inflated are the messages of a record, whatever the hop did to them.
func inflated(t *testing.T, r rawh2.Record) [][]byte {
	t.Helper()
	messages, rest := rawh2.Messages(r.Bytes())
	if len(rest) != 0 {
		t.Fatalf("%d bytes too many", len(rest))
	}
	var out [][]byte
	for _, m := range messages {
		if m.Compressed {
			if r.Get("grpc-encoding") != "gzip" {
				t.Errorf("compressed, with encoding %q", r.Get("grpc-encoding"))
			}
			z, err := gzip.NewReader(bytes.NewReader(m.Payload))
			if err != nil {
				t.Fatal(err)
			}
			if m.Payload, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, m.Payload)
	}
	return out
}

// gzip of either side is understood; a side that does not speak it never gets
// it. Compression is hop by hop.
func TestRecorderGzip(t *testing.T) {
	gz := rawh2.Field{Name: "grpc-encoding", Value: "gzip"}
	accept := rawh2.Field{Name: "grpc-accept-encoding", Value: "gzip"}
	question, reply := bytes.Repeat(payload("question"), 1000), bytes.Repeat(payload("reply"), 1000)
	plain := func(ctx context.Context, s *rawh2.Stream) { respond(answerHeader(), trailers("0", ""), reply)(ctx, s) }
	packed := func(ctx context.Context, s *rawh2.Stream) {
		if _, err := s.Over(ctx); err != nil {
			return
		}
		s.Headers(false, answerHeader(gz)...)
		if s.Data(ctx, false, rawh2.Encode(rawh2.Message{Compressed: true, Payload: zip(t, reply)})) == nil {
			s.Headers(true, trailers("0", "")...)
		}
	}
	compressed := rawh2.Encode(rawh2.Message{Compressed: true, Payload: zip(t, question)})
	for name, tt := range map[string]struct {
		script func(context.Context, *rawh2.Stream)
		fields []rawh2.Field
		data   []byte
		speaks bool
	}{
		"both":                 {packed, []rawh2.Field{gz, accept}, compressed, true},
		"request only":         {plain, []rawh2.Field{gz, accept}, compressed, true},
		"answer only":          {packed, []rawh2.Field{accept}, message(question), true},
		"caller speaks it not": {packed, nil, message(question), false},
		"none":                 {plain, nil, message(question), false},
		"announced, not used":  {plain, []rawh2.Field{gz, accept}, message(question), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, rawh2.Options{}, tt.script)
			for _, method := range []string{"/runtime.v1.RuntimeService/ListContainers", "/runtime.v1.RuntimeService/CreateContainer", streams()[1]} {
				client, server := w.call(w.through, request(method, tt.fields...), tt.data)
				if got := inflated(t, server); len(got) != 1 || !bytes.Equal(got[0], question) {
					t.Errorf("%s: request arrived as %d messages", method, len(got))
				}
				if got := inflated(t, client); len(got) != 1 || !bytes.Equal(got[0], reply) || client.Get("grpc-status") != "0" {
					t.Errorf("%s: answer arrived as %d messages, status %q %q", method, len(got), client.Get("grpc-status"), client.Get("grpc-message"))
				}
				if e := client.Get("grpc-encoding"); !tt.speaks && e != "" && e != "identity" {
					t.Errorf("%s: encoding %q for a caller that did not announce it", method, e)
				}
			}
		})
	}
}
