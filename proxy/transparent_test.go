package proxy

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// allMethods are all of the compiled API plus what it does not know.
func allMethods() []string {
	var out []string
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			out = append(out, "/"+d.ServiceName+"/"+m.MethodName)
		}
		for _, s := range d.Streams {
			out = append(out, "/"+d.ServiceName+"/"+s.StreamName)
		}
	}
	return append(out,
		"/runtime.v1.RuntimeService/InventedNextYear",
		"/runtime.v2.Invented/Method",
		"/a/b/c",
		"/runtime.v1alpha2.RuntimeService/RunPodSandbox",
		"/runtime.v1alpha2.RuntimeService/ContainerStatus",
		"/runtime.v1alpha2.ImageService/PullImage",
		"/containerd.services.tasks.v1.Tasks/List",
	)
}

// payload is a valid message with a field no version of the API has.
func payload(text string) []byte {
	b := protowire.AppendTag(nil, 7777, protowire.BytesType)
	return protowire.AppendString(b, text)
}

func TestEveryMethodPassesWithItsBytes(t *testing.T) {
	r := newRig(t, nil)
	methods := allMethods()
	if len(methods) < 45 {
		t.Fatalf("only %d methods: the descriptors were not walked", len(methods))
	}
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			req, resp := payload("request of "+method), payload("answer of "+method)
			r.runtime.Inject(method, fakecri.Fault{Raw: [][]byte{resp}})
			got := exchange(r.ctx(), r.through, method, "", req)
			if got.code != codes.OK || len(got.messages) != 1 || !bytes.Equal(got.messages[0], resp) {
				t.Fatalf("got %+v", got)
			}
			calls := r.runtime.Calls(method)
			// Not the last call: the proxy asks for Version itself once connected.
			if !slices.ContainsFunc(calls, func(c fakecri.Call) bool { return bytes.Equal(c.Request, req) }) {
				t.Fatalf("the runtime saw %d calls, none with these bytes", len(calls))
			}
		})
	}
}

func TestGarbageOfEveryMethodPasses(t *testing.T) {
	r := newRig(t, nil)
	garbage := []byte{0x0a, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3}
	for _, method := range allMethods() {
		r.runtime.Inject(method, fakecri.Fault{Raw: [][]byte{garbage}})
		got := exchange(r.ctx(), r.through, method, "", garbage)
		if got.code != codes.OK || len(got.messages) != 1 || !bytes.Equal(got.messages[0], garbage) {
			t.Errorf("%s: got %+v", method, got)
		}
	}
	if s := r.proxy.Status(); s.Undecodable == 0 || s.Panics != 0 {
		t.Errorf("undecodable %d, panics %d", s.Undecodable, s.Panics)
	}
}

// detailed is a status with details whose encoding is not the canonical one.
func detailed(t *testing.T) error {
	t.Helper()
	detail, err := anypb.New(durationpb.New(42))
	if err != nil {
		t.Fatal(err)
	}
	return status.FromProto(&spb.Status{
		Code: int32(codes.NotFound), Message: "no such thing: ünicode % and\nnewline",
		Details: []*anypb.Any{detail, {TypeUrl: "type.googleapis.com/unknown.Type", Value: []byte{1, 2, 3}}},
	}).Err()
}

func TestEndOfCallIsThatOfTheRuntime(t *testing.T) {
	header := metadata.Pairs("x-head", "1", "x-head", "2", "x-bin", string([]byte{0, 255}))
	trailer := metadata.Pairs("x-trail", "a", "x-trail-bin", string([]byte{9, 0}))
	tests := map[string]fakecri.Fault{
		"plain error":                {Err: status.Error(codes.FailedPrecondition, "not now")},
		"error with details":         {Err: detailed(t)},
		"details and trailers":       {Err: detailed(t), Trailer: trailer},
		"unknown code":               {Err: status.Error(codes.Code(77), "from the future")},
		"unimplemented":              {Err: status.Error(codes.Unimplemented, "unknown method X")},
		"no text":                    {Err: status.Error(codes.Internal, "")},
		"trailers with ok":           {Raw: [][]byte{payload("x")}, Trailer: trailer},
		"headers, message, trailers": {Header: header, Raw: [][]byte{payload("x")}, Trailer: trailer},
		"headers, then error":        {Header: header, Err: detailed(t)},
		"headers, message, error":    {Header: header, Raw: [][]byte{payload("x")}, Err: detailed(t), Trailer: trailer},
		"headers and nothing":        {Header: header, Empty: true},
		"headers without content":    {Header: metadata.MD{}, Empty: true},
		"nothing at all":             {Empty: true},
		"nothing but trailers":       {Empty: true, Trailer: trailer},
		"empty message":              {Raw: [][]byte{{}}},
		"several messages":           {Raw: [][]byte{payload("1"), {}, payload("3")}},
		"details that are not proto": {Err: status.Error(codes.NotFound, "x"), Trailer: metadata.Pairs("grpc-status-details-bin", "\xff\xff")},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{
				"/runtime.v1.RuntimeService/Version",          // forwarded blindly
				"/runtime.v1.RuntimeService/RunPodSandbox",    // looked into
				"/runtime.v1.RuntimeService/ContainerStatus",  // looked into both ways
				"/runtime.v1.RuntimeService/StreamContainers", // a stream
			} {
				r := newRig(t, nil)
				r.runtime.Inject(method, fault)
				direct := exchange(r.ctx(), r.direct, method, "", payload("q"))
				through := exchange(r.ctx(), r.through, method, "", payload("q"))
				if !reflect.DeepEqual(direct, through) {
					t.Errorf("%s:\ndirect  %+v\nthrough %+v", method, direct, through)
				}
			}
		})
	}
}

// A status that contradicts its own details is replaced by gRPC on our side
// already; the caller must see that once, not a contradiction of the replacement.
func TestContradictingDetailsAreReportedOnce(t *testing.T) {
	odd, err := proto.Marshal(&spb.Status{Code: int32(codes.Aborted), Message: "contradicts"})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, nil)
	r.runtime.Inject("Status", fakecri.Fault{Err: status.Error(codes.NotFound, "x"), Trailer: metadata.Pairs(detailsHeader, string(odd))})
	direct := exchange(r.ctx(), r.direct, "/runtime.v1.RuntimeService/Status", "", nil)
	through := exchange(r.ctx(), r.through, "/runtime.v1.RuntimeService/Status", "", nil)
	if direct.code != codes.Internal || through.code != direct.code || through.text != direct.text {
		t.Errorf("direct %+v\nthrough %+v", direct, through)
	}
}

func TestServiceThatIsNotThereIsNotInvented(t *testing.T) {
	r := newRig(t, nil)
	for _, method := range []string{"/runtime.v9.Nothing/Nope", "/runtime.v1.RuntimeService/Nope", "/runtime.v1.RuntimeService/CheckpointPod"} {
		direct := exchange(r.ctx(), r.direct, method, "", payload("q"))
		through := exchange(r.ctx(), r.through, method, "", payload("q"))
		if direct.code != codes.Unimplemented || !reflect.DeepEqual(direct, through) {
			t.Errorf("%s:\ndirect  %+v\nthrough %+v", method, direct, through)
		}
	}
}

func TestMetadataArrives(t *testing.T) {
	r := newRig(t, nil)
	sent := metadata.Pairs(
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"baggage", "a=1", "x-many", "1", "x-many", "2", "x-bin", string([]byte{0, 1, 255}),
		"grpc-trace-bin", "t", "grpc-previous-rpc-attempts", "3",
	)
	for subtype, want := range map[string]string{
		"": "application/grpc", "proto": "application/grpc+proto", "json": "application/grpc+json",
	} {
		r.runtime.Inject("Status", fakecri.Fault{Times: 2, Raw: [][]byte{{}}})
		ctx := metadata.NewOutgoingContext(r.ctx(), sent)
		r.runtime.Forget()
		exchange(ctx, r.direct, "/runtime.v1.RuntimeService/Status", subtype, nil)
		exchange(ctx, r.through, "/runtime.v1.RuntimeService/Status", subtype, nil)
		calls := r.runtime.Calls("Status")
		if len(calls) != 2 {
			t.Fatalf("%d calls", len(calls))
		}
		direct, through := calls[0].Metadata, calls[1].Metadata
		if got := through.Get("content-type"); !slices.Equal(got, []string{want}) {
			t.Errorf("subtype %q: content-type %q", subtype, got)
		}
		for k, v := range sent {
			if !slices.Equal(through.Get(k), v) {
				t.Errorf("%s: sent %q, arrived %q", k, v, through.Get(k))
			}
		}
		if d, p := slices.Sorted(maps.Keys(direct)), slices.Sorted(maps.Keys(through)); !slices.Equal(d, p) {
			t.Errorf("keys direct %v, through %v", d, p)
		}
		if d, p := direct.Get(":authority"), through.Get(":authority"); !slices.Equal(d, p) {
			t.Errorf("authority direct %v, through %v", d, p)
		}
	}
}

func TestAuthorityArrives(t *testing.T) {
	r := newRig(t, nil)
	_, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}, grpc.CallAuthority("some.where"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.runtime.Calls("Version") {
		if slices.Equal(c.Metadata.Get(":authority"), []string{"some.where"}) {
			return
		}
	}
	t.Error("lost")
}
