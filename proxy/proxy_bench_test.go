package proxy

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// BenchmarkForward compares calls straight to the runtime with calls through
// the proxy: the shortest one, and a list of 300 containers as kubelet asks for
// every second.
func BenchmarkForward(b *testing.B) {
	r := newRig(b, nil)
	list := &runtimeapi.ListContainersResponse{}
	for i := range 300 {
		list.Containers = append(list.Containers, &runtimeapi.Container{
			Id: fmt.Sprintf("%064d", i), PodSandboxId: fmt.Sprintf("%064d", i/2),
			Metadata: &runtimeapi.ContainerMetadata{Name: "container"}, Image: &runtimeapi.ImageSpec{Image: "sha256:" + strings.Repeat("a", 64)},
			Labels: map[string]string{cri.LabelPodUID: fmt.Sprintf("%036d", i/2), cri.LabelPodName: "pod-with-a-name", cri.LabelPodNamespace: "namespace"},
			Annotations: map[string]string{
				"io.kubernetes.container.hash": "12345678", "io.kubernetes.container.restartCount": "0",
				"io.kubernetes.container.ports": strings.Repeat("p", 200), "io.kubernetes.pod.terminationGracePeriod": "30",
			},
		})
	}
	r.runtime.Inject("ListContainers", fakecri.Fault{Raw: [][]byte{encode(b, list)}})
	calls := map[string]func(c runtimeapi.RuntimeServiceClient) error{
		"Version": func(c runtimeapi.RuntimeServiceClient) error {
			_, err := c.Version(b.Context(), &runtimeapi.VersionRequest{})
			return err
		},
		"List300": func(c runtimeapi.RuntimeServiceClient) error {
			_, err := c.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{})
			return err
		},
		// Looked into and, as nothing is held, left as it is.
		"ContainerStatus": func(c runtimeapi.RuntimeServiceClient) error {
			_, _ = c.ContainerStatus(b.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "none"})
			return nil
		},
	}
	for _, name := range []string{"Version", "List300", "ContainerStatus"} {
		for _, way := range []struct {
			name string
			conn *grpc.ClientConn
		}{{"direct", r.direct}, {"proxy", r.through}} {
			b.Run(name+"/"+way.name, func(b *testing.B) {
				client := runtimeapi.NewRuntimeServiceClient(way.conn)
				for b.Loop() {
					if err := calls[name](client); err != nil {
						b.Fatal(err)
					}
					r.runtime.Forget()
				}
			})
		}
	}
}
