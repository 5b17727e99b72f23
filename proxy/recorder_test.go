package proxy

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/rawh2"
)

func bin(b ...byte) string { return base64.RawStdEncoding.EncodeToString(b) }

// callerFields are what a caller may add to its request.
func callerFields() []rawh2.Field {
	return []rawh2.Field{
		{Name: "user-agent", Value: "plain framer"},
		{Name: "grpc-timeout", Value: "10S"},
		{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{Name: "tracestate", Value: "a=1,b=2"},
		{Name: "baggage", Value: "k=v"},
		{Name: "authorization", Value: "Bearer x"},
		{Name: "x-many", Value: "1"}, {Name: "x-many", Value: "2"},
		{Name: "x-empty", Value: ""},
		{Name: "x-some-bin", Value: bin(0, 1, 254, 255)},
		{Name: "x-padded-bin", Value: base64.StdEncoding.EncodeToString([]byte{7})},
		{Name: "grpc-previous-rpc-attempts", Value: "2"},
		{Name: "grpc-tags-bin", Value: bin(1, 2)},
	}
}

// detailsBin is a google.rpc.Status with fields out of order and an unknown one:
// decoded and encoded again it would be other bytes.
func detailsBin(t *testing.T, code int32, text string) string {
	t.Helper()
	detail, err := anypb.New(durationpb.New(42 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	tail, err := proto.Marshal(&spb.Status{Details: []*anypb.Any{detail, {TypeUrl: "x/unknown", Value: []byte{1, 2}}}})
	if err != nil {
		t.Fatal(err)
	}
	head, err := proto.Marshal(&spb.Status{Code: code, Message: text})
	if err != nil {
		t.Fatal(err)
	}
	return bin(append(append(payload("not in the schema"), tail...), head...)...)
}

// onlyTrailers answers with one header block.
func onlyTrailers(fields []rawh2.Field) func(context.Context, *rawh2.Stream) {
	return func(ctx context.Context, s *rawh2.Stream) {
		if _, err := s.Over(ctx); err == nil {
			s.Headers(true, fields...)
		}
	}
}

// ends are the ways a backend can end a call.
func ends(t *testing.T) map[string]func(context.Context, *rawh2.Stream) {
	t.Helper()
	head := answerHeader(rawh2.Field{Name: "x-head", Value: "1"}, rawh2.Field{Name: "x-head", Value: "2"},
		rawh2.Field{Name: "x-head-bin", Value: bin(0, 255)})
	tail := []rawh2.Field{{Name: "x-trail", Value: "a"}, {Name: "x-trail", Value: "b"}, {Name: "x-trail-bin", Value: bin(9, 0)}}
	details := rawh2.Field{Name: "grpc-status-details-bin", Value: detailsBin(t, 5, "no such thing: ü % \n")}
	text := "no such thing: %C3%BC %25 %0A"
	only := onlyTrailers
	return map[string]func(context.Context, *rawh2.Stream){
		"message":                     respond(answerHeader(), trailers("0", ""), payload("answer")),
		"empty message":               respond(answerHeader(), trailers("0", ""), nil),
		"header, message, trailers":   respond(head, trailers("0", "", tail...), payload("answer")),
		"no message":                  respond(head, trailers("0", "")),
		"header, error":               respond(head, trailers("5", text, append(tail, details)...)),
		"header, message, error":      respond(head, trailers("5", text, append(tail, details)...), payload("answer")),
		"bare header, error":          respond(answerHeader(), trailers("13", "x")),
		"trailers-only":               only(trailersOnly("9", "not now")),
		"trailers-only with metadata": only(trailersOnly("9", "not now", tail...)),
		"trailers-only with details":  only(trailersOnly("5", text, details)),
		"trailers-only without text":  only(trailersOnly("13", "")),
		"trailers-only OK":            only(trailersOnly("0", "")),
		"trailers-only unknown code":  only(trailersOnly("77", "from the future")),
		"unimplemented":               only(trailersOnly("12", "unknown method X for service Y")),
	}
}

// Every method of the compiled API, an invented method, an invented service and
// v1alpha2: requests and answers as frames, with and without the proxy.
func TestRecorderEveryMethod(t *testing.T) {
	w := newWire(t, rawh2.Options{}, nil)
	head := answerHeader(rawh2.Field{Name: "x-head", Value: "h"}, rawh2.Field{Name: "x-head-bin", Value: bin(1, 0)})
	for _, method := range allMethods() {
		t.Run(method, func(t *testing.T) {
			w.t = t
			w.play(respond(head, trailers("0", "", rawh2.Field{Name: "x-trail", Value: "t"}), payload("answer of "+method)))
			fields, body := request(method, callerFields()...), message(payload("request of "+method))
			dc, ds := w.call(w.direct, fields, body)
			pc, ps := w.call(w.through, fields, body)
			sameRecord(t, "request", ds, ps)
			sameRecord(t, "answer", dc, pc)
			if ps.Get(":path") != method || ps.Get("te") != "trailers" || ps.Get("content-type") != "application/grpc" {
				t.Errorf("request %q", ps.Blocks()[0])
			}
			if d := timeout(t, ps); d <= 0 || d > 10*time.Second {
				t.Errorf("deadline: the caller's is in 10 s, the backend's in %v", d)
			}
		})
	}
}

// Each way a call can end, for methods that are forwarded blindly, looked into
// on the way there, looked into both ways, and for a stream.
func TestRecorderEveryEnd(t *testing.T) {
	w := newWire(t, rawh2.Options{}, nil)
	for name, script := range ends(t) {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.play(script)
			for _, method := range []string{
				"/runtime.v1.RuntimeService/Version", "/runtime.v1.RuntimeService/RunPodSandbox",
				"/runtime.v1.RuntimeService/ContainerStatus", "/runtime.v1.RuntimeService/StreamContainers",
				"/runtime.v1alpha2.RuntimeService/CreateContainer", "/no.such.Service/Method",
			} {
				dc, ds := w.call(w.direct, request(method), message(payload("q")))
				pc, ps := w.call(w.through, request(method), message(payload("q")))
				sameRecord(t, method+" request", ds, ps)
				sameRecord(t, method+" answer", dc, pc)
			}
		})
	}
}

// The methods really are those of the compiled API.
func TestRecorderWalksTheDescriptors(t *testing.T) {
	methods := allMethods()
	n := 0
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		n += len(d.Methods) + len(d.Streams)
	}
	if n < 40 || len(methods) < n+5 {
		t.Errorf("%d methods of %d in the API", len(methods), n)
	}
	for _, want := range []string{"/runtime.v1.RuntimeService/StreamPodSandboxes", "/runtime.v1.ImageService/StreamImages", "/runtime.v1.RuntimeService/GetContainerEvents"} {
		if !slices.Contains(methods, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestRecorderContentType(t *testing.T) {
	w := newWire(t, rawh2.Options{}, nil)
	for _, ct := range []string{"application/grpc", "application/grpc+proto", "application/grpc+json", "application/grpc+thrift"} {
		w.play(respond([]rawh2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: ct}}, trailers("0", ""), payload("a")))
		fields := request("/runtime.v1.RuntimeService/Version")
		fields[4].Value = ct
		dc, ds := w.call(w.direct, fields, message(payload("q")))
		pc, ps := w.call(w.through, fields, message(payload("q")))
		sameRecord(t, ct+" request", ds, ps)
		sameRecord(t, ct+" answer", dc, pc)
	}
}

// timeout reads grpc-timeout; 0 is none.
func timeout(t *testing.T, r rawh2.Record) time.Duration {
	t.Helper()
	text := r.Get("grpc-timeout")
	if text == "" {
		return 0
	}
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
	n, err := strconv.ParseInt(text[:len(text)-1], 10, 64)
	unit, ok := units[text[len(text)-1]]
	if err != nil || !ok || len(text) > 9 {
		t.Fatalf("grpc-timeout %q", text)
	}
	return time.Duration(n) * unit
}

// The backend's deadline is never later than the caller's, and none is invented.
func TestRecorderDeadline(t *testing.T) {
	w := newWire(t, rawh2.Options{}, respond(answerHeader(), trailers("0", ""), payload("a")))
	for sent, limit := range map[string]time.Duration{
		"": 0, "20S": 20 * time.Second, "30000m": 30 * time.Second, "2H": 2 * time.Hour, "40M": 40 * time.Minute,
		"15000000u": 15 * time.Second, "99999999S": 99999999 * time.Second,
	} {
		var more []rawh2.Field
		if sent != "" {
			more = append(more, rawh2.Field{Name: "grpc-timeout", Value: sent})
		}
		for _, method := range []string{"/runtime.v1.RuntimeService/Version", "/runtime.v1.RuntimeService/CreateContainer"} {
			_, ps := w.call(w.through, request(method, more...), message(payload("q")))
			got := timeout(t, ps)
			if got > limit || (limit > 0 && got < limit-limit/2) {
				t.Errorf("%s: %q became %q", method, sent, ps.Get("grpc-timeout"))
			}
		}
	}
}

// A deadline that passes ends the call on both sides, as it does directly.
func TestRecorderDeadlinePasses(t *testing.T) {
	w := newWire(t, rawh2.Options{}, func(ctx context.Context, s *rawh2.Stream) {
		_, _ = s.Await(ctx, func(r *rawh2.Record) bool { return r.Reset }) // asserted below
	})
	c := w.open(w.through, false, request("/runtime.v1.RuntimeService/Version", rawh2.Field{Name: "grpc-timeout", Value: "300m"}))
	if err := c.Data(w.ctx(), true, message(nil)); err != nil {
		t.Fatal(err)
	}
	w.awaitServer(c)
	if r, err := c.server.Await(w.ctx(), func(r *rawh2.Record) bool { return r.Reset }); err != nil {
		t.Errorf("backend: %v, %s", err, r.Pattern())
	}
	r, err := c.Over(w.ctx())
	if err != nil || !r.Reset && r.Get("grpc-status") != "4" {
		t.Errorf("caller: %v, %s %q", err, r.Pattern(), r.Get("grpc-status"))
	}
}

// Headers as large as a runtime may send them pass, in CONTINUATION frames.
func TestRecorderLargeMetadata(t *testing.T) {
	big := strings.Repeat("v", 100_000)
	w := newWire(t, rawh2.Options{}, respond(answerHeader(rawh2.Field{Name: "x-big", Value: big}),
		trailers("0", "", rawh2.Field{Name: "x-big-trailer", Value: big}), payload("a")))
	var many []rawh2.Field
	for i := range 300 {
		many = append(many, rawh2.Field{Name: fmt.Sprint("x-n-", i), Value: fmt.Sprint(i)})
	}
	fields := request("/runtime.v1.RuntimeService/Status", append(many, rawh2.Field{Name: "x-big", Value: big})...)
	dc, ds := w.call(w.direct, fields, message(nil))
	pc, ps := w.call(w.through, fields, message(nil))
	sameRecord(t, "request", ds, ps)
	sameRecord(t, "answer", dc, pc)
}
