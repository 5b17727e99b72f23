package cri

import (
	"bytes"
	"maps"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func addSeeds(f *testing.F, messages ...proto.Message) {
	for _, m := range messages {
		b := encode(f, m)
		f.Add(b)
		f.Add(unknown(b))
		f.Add(b[:len(b)/2])
		f.Add(append(bytes.Clone(b), b...))
	}
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
}

// Whatever generated code can read, the decoders read to the same result.
func FuzzDecodeRunPodSandbox(f *testing.F) {
	addSeeds(f, &runtimeapi.RunPodSandboxRequest{Config: sandbox(), RuntimeHandler: "r"})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeRunPodSandbox(b)
		m := new(runtimeapi.RunPodSandboxRequest)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		if err != nil {
			t.Fatalf("valid, but %v", err)
		}
		c := m.GetConfig()
		want := SandboxConfig{
			UID: c.GetMetadata().GetUid(), Namespace: c.GetMetadata().GetNamespace(), Name: c.GetMetadata().GetName(),
			Attempt: c.GetMetadata().GetAttempt(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
			CgroupParent: c.GetLinux().GetCgroupParent(), RuntimeHandler: m.GetRuntimeHandler(),
		}
		// An empty map and none are the same; generated code makes one for a field
		// of the right number and the wrong type.
		if !maps.Equal(got.Labels, want.Labels) || !maps.Equal(got.Annotations, want.Annotations) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		got.Labels, got.Annotations, want.Labels, want.Annotations = nil, nil, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func FuzzDecodeRestorePod(f *testing.F) {
	addSeeds(f, &runtimeapi.RestorePodRequest{Config: sandbox(), RuntimeHandler: "r", CheckpointPath: "/p"})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeRestorePod(b)
		m := new(runtimeapi.RestorePodRequest)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		if err != nil || got.UID != m.GetConfig().GetMetadata().GetUid() {
			t.Fatalf("got %+v, %v", got, err)
		}
	})
}

func FuzzDecodeCreateContainer(f *testing.F) {
	addSeeds(f, &runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: containerConfig(), SandboxConfig: sandbox()})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeCreateContainer(b)
		m := new(runtimeapi.CreateContainerRequest)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		r := m.GetConfig().GetLinux().GetResources()
		if err != nil || got.SandboxID != m.GetPodSandboxId() || got.Name != m.GetConfig().GetMetadata().GetName() ||
			got.HasResources != (r != nil) || got.OOMScoreAdj != r.GetOomScoreAdj() || got.MemoryLimit != r.GetMemoryLimitInBytes() ||
			!maps.Equal(got.Labels, m.GetConfig().GetLabels()) {
			t.Fatalf("got %+v, %v", got, err)
		}
		if uid := m.GetSandboxConfig().GetMetadata().GetUid(); uid != "" && got.PodUID != uid {
			t.Fatalf("uid %q, want %q", got.PodUID, uid)
		}
	})
}

func FuzzDecodeSmall(f *testing.F) {
	addSeeds(f, &runtimeapi.StartContainerRequest{ContainerId: "id"},
		&runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "i"}, SandboxConfig: sandbox()})
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := DecodeID(b)
		m := new(runtimeapi.StartContainerRequest)
		if proto.Unmarshal(b, m) == nil && (err != nil || id != m.GetContainerId()) {
			t.Fatalf("got %q, %v", id, err)
		}
		_, _ = DecodeRunPodSandboxResponse(b)
		_, _ = DecodeCreateContainerResponse(b)
		image, _, err := DecodeImageRequest(b)
		p := new(runtimeapi.PullImageRequest)
		if proto.Unmarshal(b, p) == nil && err != nil {
			t.Fatalf("got %q, %v", image, err)
		}
	})
}

func FuzzEditContainerStatus(f *testing.F) {
	addSeeds(f, &runtimeapi.ContainerStatusResponse{Status: fullStatus(), Info: map[string]string{"i": "{}"}})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		out, n, err := EditContainerStatus(b, evict)
		if !bytes.Equal(b, before) {
			t.Fatal("the original was written to")
		}
		if (err != nil || n == 0) && !bytes.Equal(out, b) {
			t.Fatalf("changed: %d %v", n, err)
		}
		want, got := new(runtimeapi.ContainerStatusResponse), new(runtimeapi.ContainerStatusResponse)
		if proto.Unmarshal(b, want) != nil {
			return
		}
		if err != nil {
			t.Fatalf("valid, but %v", err)
		}
		if n > 0 {
			want.Status.Reason, want.Status.Message = "Evicted", "why"
		}
		if err := proto.Unmarshal(out, got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("got %v\nwant %v\n%v", got, want, err)
		}
	})
}

func FuzzEditPodSandboxStatus(f *testing.F) {
	addSeeds(f, &runtimeapi.PodSandboxStatusResponse{
		Status:             &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}},
		ContainersStatuses: []*runtimeapi.ContainerStatus{fullStatus(), {}, fullStatus()},
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		i := 0
		out, n, err := EditPodSandboxStatus(b, func(ContainerStatusView) (string, string, bool) {
			i++
			return "Evicted", "why", i%2 == 1
		})
		if (err != nil || n == 0) && !bytes.Equal(out, b) {
			t.Fatalf("changed: %d %v", n, err)
		}
		want, got := new(runtimeapi.PodSandboxStatusResponse), new(runtimeapi.PodSandboxStatusResponse)
		if proto.Unmarshal(b, want) != nil {
			return
		}
		if err != nil || i != len(want.GetContainersStatuses()) {
			t.Fatalf("valid, but %v; saw %d", err, i)
		}
		for j, s := range want.GetContainersStatuses() {
			if j%2 == 0 {
				s.Reason, s.Message = "Evicted", "why"
			}
		}
		if err := proto.Unmarshal(out, got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("got %v\nwant %v\n%v", got, want, err)
		}
	})
}
