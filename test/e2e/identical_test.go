package e2e

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
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

// mustBeIdentical asks the same through the proxy and directly, and compares
// the answers byte for byte.
func mustBeIdentical(t *testing.T, n *node, d *daemon, pods []lab.Running) {
	t.Helper()
	direct := n.dial(n.runtime)
	type call struct {
		method string
		req    proto.Message
	}
	calls := []call{
		{"RuntimeService/Version", &runtimeapi.VersionRequest{}},
		{"RuntimeService/Status", &runtimeapi.StatusRequest{}},
		{"RuntimeService/ListPodSandbox", &runtimeapi.ListPodSandboxRequest{}},
		{"RuntimeService/ListContainers", &runtimeapi.ListContainersRequest{}},
		{"ImageService/ListImages", &runtimeapi.ListImagesRequest{}},
		{"ImageService/ImageStatus", &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: lab.WorkloadImage}}},
	}
	for _, p := range pods {
		calls = append(calls, call{"RuntimeService/PodSandboxStatus", &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.SandboxID}})
		for _, c := range p.ContainerIDs {
			calls = append(calls, call{"RuntimeService/ContainerStatus", &runtimeapi.ContainerStatusRequest{ContainerId: c}})
		}
	}
	for _, c := range calls {
		if !sameAnswer(t, direct, d.conn, c.method, c.req) {
			t.Errorf("%s: the answer through the proxy is not the direct one", c.method)
		}
	}
}

// sameAnswer allows some tries: between two calls the runtime's own answer can
// change, and lists come in the order of a map.
func sameAnswer(t *testing.T, direct, proxied *grpc.ClientConn, method string, req proto.Message) bool {
	t.Helper()
	seen := map[string]bool{}
	for range 50 {
		a, err := raw(patience(t), direct, method, req)
		if err != nil {
			t.Fatalf("%s directly: %v", method, err)
		}
		seen[string(a)] = true
		b, err := raw(patience(t), proxied, method, req)
		if err != nil {
			t.Fatalf("%s through the proxy: %v", method, err)
		}
		if seen[string(b)] {
			return true
		}
	}
	return false
}
