package inventory

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// bugs.md B79: lists that are larger than the 16 MiB kubelet accepts fill our
// inventory all the same, with one call each.
func TestCaseB79ListsLargerThanKubeletsLimit(t *testing.T) {
	server, client := fake(t)
	sandbox := runPod(t, client, "u1", 1)
	label := map[string]string{"l": strings.Repeat("x", 820)}
	one, err := proto.Marshal(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{
		Id: strings.Repeat("d", 64), PodSandboxId: sandbox, State: runtimeapi.ContainerState_CONTAINER_EXITED, Labels: label,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	last, err := proto.Marshal(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{
		Id: "last", PodSandboxId: sandbox, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	all := append(bytes.Repeat(one, 20_000), last...)
	if len(all) <= 16<<20 {
		t.Fatalf("%d bytes are within kubelet's limit", len(all))
	}
	server.Inject("ListContainers", fakecri.Fault{Raw: [][]byte{all}})
	server.Forget()
	s, store := follow(t, client)
	until(t, s, "the last container is known", func() bool {
		p, ok := store.Snapshot().Pod("u1")
		return ok && len(p.RunningContainers()) == 1 && p.RunningContainers()[0].ID == "last"
	})
	if st := s.State(); !st.Listed || st.ListError != "" {
		t.Errorf("%+v", st)
	}
	if n := len(server.Calls("ContainerStatus")); n != 0 {
		t.Errorf("%d calls for single containers", n)
	}
}
