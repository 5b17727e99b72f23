package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

func quantity(n uint64) string { return resource.NewQuantity(int64(n), resource.BinarySI).String() }

// rawCodec leaves messages as the bytes they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("raw codec: %T", v)
	}
	return *b, nil
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw codec: %T", v)
	}
	*b = bytes.Clone(data)
	return nil
}

func raw(ctx context.Context, conn *grpc.ClientConn, method string, req proto.Message) ([]byte, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	var out []byte
	err = conn.Invoke(ctx, "/runtime.v1."+method, &in, &out, grpc.ForceCodec(rawCodec{}))
	return out, err
}

// mustBeIdentical asks the same through the proxy and directly and compares the
// answers. The runtime itself writes maps and lists in random order, so what is
// compared is the length to the byte and the content, unknown fields included,
// in a fixed order; that the proxy passes on the very bytes is tested in package
// proxy, where the backend's bytes are known.
func mustBeIdentical(t *testing.T, n *node, d *daemon, pods []lab.Running) {
	t.Helper()
	direct := n.dial(n.runtime)
	type call struct {
		method    string
		req, resp proto.Message
	}
	calls := []call{
		{"RuntimeService/Version", &runtimeapi.VersionRequest{}, &runtimeapi.VersionResponse{}},
		{"RuntimeService/Status", &runtimeapi.StatusRequest{}, &runtimeapi.StatusResponse{}},
		{"RuntimeService/ListPodSandbox", &runtimeapi.ListPodSandboxRequest{}, &runtimeapi.ListPodSandboxResponse{}},
		{"RuntimeService/ListContainers", &runtimeapi.ListContainersRequest{}, &runtimeapi.ListContainersResponse{}},
		{"ImageService/ListImages", &runtimeapi.ListImagesRequest{}, &runtimeapi.ListImagesResponse{}},
		{"ImageService/ImageStatus", &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: lab.WorkloadImage}}, &runtimeapi.ImageStatusResponse{}},
	}
	for _, p := range pods {
		calls = append(calls, call{"RuntimeService/PodSandboxStatus", &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.SandboxID}, &runtimeapi.PodSandboxStatusResponse{}})
		for _, c := range p.ContainerIDs {
			calls = append(calls, call{"RuntimeService/ContainerStatus", &runtimeapi.ContainerStatusRequest{ContainerId: c}, &runtimeapi.ContainerStatusResponse{}})
		}
	}
	for _, c := range calls {
		if a, b := answers(t, direct, d.conn, c.method, c.req, c.resp); a != b {
			t.Errorf("%s: the answer through the proxy is not the direct one:\n%q\n%q", c.method, a, b)
		}
	}
}

// answers returns both sides' answers in comparable form. A few tries are
// allowed, since the runtime's own answer can change between two calls.
func answers(t *testing.T, direct, proxied *grpc.ClientConn, method string, req, resp proto.Message) (a, b string) {
	t.Helper()
	for range 5 {
		x, err := raw(patience(t), direct, method, req)
		if err != nil {
			t.Fatalf("%s directly: %v", method, err)
		}
		y, err := raw(patience(t), proxied, method, req)
		if err != nil {
			t.Fatalf("%s through the proxy: %v", method, err)
		}
		if a, b = comparable(t, x, resp), comparable(t, y, resp); a == b {
			break
		}
	}
	return a, b
}

// comparable returns the message's length and its top-level fields, maps within
// them and they themselves in sorted order.
func comparable(t *testing.T, b []byte, m proto.Message) string {
	t.Helper()
	length := len(b)
	proto.Reset(m)
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for len(b) > 0 {
		_, _, n := protowire.ConsumeField(b)
		if n < 0 {
			t.Fatalf("not a message: %v", protowire.ParseError(n))
		}
		fields = append(fields, string(b[:n]))
		b = b[n:]
	}
	slices.Sort(fields)
	return fmt.Sprint(length, " bytes: ") + strings.Join(fields, "")
}
