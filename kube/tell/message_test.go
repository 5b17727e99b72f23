package tell

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/golden"
	"github.com/cri-evictd/cri-evictd/inventory"
)

var _ = golden.Flag()

var moment = time.Date(2026, 11, 29, 18, 30, 0, 123456789, time.UTC)

func requests(memory, storage string) v1.ResourceRequirements {
	l := v1.ResourceList{}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	if storage != "" {
		l[v1.ResourceEphemeralStorage] = resource.MustParse(storage)
	}
	return v1.ResourceRequirements{Requests: l}
}

func podWith(containers ...v1.Container) *v1.Pod {
	p := runningPod("hog")
	p.Spec.Containers = containers
	return p
}

func notice(s eviction.Signal) eviction.Notice {
	return eviction.Notice{
		ID: 42, Pod: inventory.Ref{Namespace: "default", Name: "hog", UID: "uid-hog"}, Time: moment, Signal: s,
		Threshold: 500 << 20, Available: 422_222_848, Usage: 943_718_400, UsageKnown: true,
	}
}

// Other tools parse these (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go
// evictionMessage): each line was held against that function.
func TestMessages(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	one := podWith(v1.Container{Name: "main", Resources: requests("100Mi", "1Gi")})
	two := podWith(v1.Container{Name: "a", Resources: requests("100Mi", "")}, v1.Container{Name: "b", Resources: requests("50Mi", "")})
	sidecar := podWith(v1.Container{Name: "main", Resources: requests("100Mi", "")})
	sidecar.Spec.InitContainers = []v1.Container{{Name: "mesh", RestartPolicy: &always, Resources: requests("64Mi", "")}, {Name: "setup"}}
	setup := podWith(v1.Container{Name: "main"})
	setup.Spec.InitContainers = []v1.Container{{Name: "setup", Resources: requests("2Gi", "")}}
	podLevel := podWith(v1.Container{Name: "main", Resources: requests("100Mi", "")})
	level := requests("200Mi", "")
	podLevel.Spec.Resources = &level
	unknown, small := notice(eviction.MemoryAvailable), notice(eviction.MemoryAvailable)
	unknown.UsageKnown, small.Usage = false, 100<<20
	told := notice(eviction.MemoryAvailable)
	told.Request, told.RequestKnown = 100<<20, true
	inodes := notice(eviction.NodeFsInodesFree)
	inodes.Threshold, inodes.Available = 12_000, 1_048_576
	pids := notice(eviction.PIDAvailable)
	pids.Threshold, pids.Available = 1_000, 512
	record := notice(eviction.MemoryAvailable)
	record.Threshold, record.Available = 0, 0
	var b strings.Builder
	for _, tt := range []struct {
		what string
		n    eviction.Notice
		pod  *v1.Pod
	}{
		{"one container", notice(eviction.MemoryAvailable), one},
		{"allocatable", notice(eviction.AllocatableMemoryAvailable), one},
		{"several containers", notice(eviction.MemoryAvailable), two},
		{"a sidecar", notice(eviction.MemoryAvailable), sidecar},
		{"an init container does not run beside it", notice(eviction.MemoryAvailable), setup},
		{"pod level", notice(eviction.MemoryAvailable), podLevel},
		{"within its request", small, one},
		{"usage unknown", unknown, one},
		{"pod unknown", notice(eviction.MemoryAvailable), nil},
		{"pod unknown, request told", told, nil},
		{"no threshold in the record", record, one},
		{"nodefs", notice(eviction.NodeFsAvailable), podWith(v1.Container{Name: "main", Resources: requests("", "100Mi")})},
		{"imagefs, within its request", notice(eviction.ImageFsAvailable), one},
		{"inodes", inodes, one},
		{"pids", pids, one},
	} {
		message, annotations := Message(&tt.n, tt.pod)
		list, err := json.Marshal(annotations)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s:\n  %q\n  %s\n", tt.what, message, list)
	}
	golden.Check(t, "messages.txt", []byte(b.String()))
}

func TestBodies(t *testing.T) {
	pod := podWith(v1.Container{Name: "main"})
	n := notice(eviction.MemoryAvailable)
	message, annotations := Message(&n, pod)
	generation := pod.DeepCopy()
	generation.Generation, generation.Status.ObservedGeneration = 3, 2
	var b strings.Builder
	for _, f := range []func() ([]byte, error){
		func() ([]byte, error) { return evictedPatch(pod.UID, n.ID, 1, message, pod, moment) },
		func() ([]byte, error) { return evictedPatch(pod.UID, n.ID, 2, message, generation, moment) },
		func() ([]byte, error) { return disruptedPatch(pod.UID, message, nil, moment) },
		func() ([]byte, error) { return json.Marshal(evictedEvent(&n, "n1", message, annotations)) },
		func() ([]byte, error) { return json.Marshal(thresholdEvent(v1.ResourceMemory, "n1", moment)) },
		func() ([]byte, error) { return countedPatch(7, moment) },
		func() ([]byte, error) { return json.Marshal(deleteOptions(pod.UID, 1, true)) },
		func() ([]byte, error) {
			return json.Marshal(entry{
				Notice: n, Boot: "boot", Way: ByStatus, Tries: 2, Asked: moment, Message: message, Annotations: annotations,
				Event: true, Outcome: Told, Done: moment,
			})
		},
	} {
		body, err := f()
		if err != nil {
			t.Fatal(err)
		}
		b.Write(body)
		b.WriteByte('\n')
	}
	golden.Check(t, "bodies.txt", []byte(b.String()))
}

func TestLongNamesMakeValidEvents(t *testing.T) {
	n := notice(eviction.MemoryAvailable)
	n.Pod.Name = strings.Repeat("x", 253)
	if e := evictedEvent(&n, "n1", "", nil); len(e.Name) > 253 || !strings.HasPrefix(e.Name, "xxx") {
		t.Errorf("%d bytes: %s", len(e.Name), e.Name)
	}
}
