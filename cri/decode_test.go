package cri

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sandbox() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u", Attempt: 3},
		Hostname:     "host",
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}},
		PortMappings: []*runtimeapi.PortMapping{{HostPort: 80}},
		Labels:       map[string]string{"a": "1", "b": ""},
		Annotations:  map[string]string{"c": "2"},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/podu", Sysctls: map[string]string{"x": "y"}},
	}
}

func containerConfig() *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "c", Attempt: 7},
		Image:       &runtimeapi.ImageSpec{Image: "img:1", UserSpecifiedImage: "img"},
		Command:     []string{"sh"},
		Labels:      map[string]string{LabelPodUID: "lu", LabelPodName: "ln", LabelPodNamespace: "lns"},
		Annotations: map[string]string{"c": "2"},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			CpuShares: 2, MemoryLimitInBytes: 1 << 40, OomScoreAdj: -997,
		}},
	}
}

var wantSandbox = SandboxConfig{
	UID: "u", Namespace: "ns", Name: "n", Attempt: 3, CgroupParent: "/kubepods/podu",
	Labels: map[string]string{"a": "1", "b": ""}, Annotations: map[string]string{"c": "2"},
}

func TestDecodeSandboxRequests(t *testing.T) {
	want := wantSandbox
	want.RuntimeHandler = "runc"
	got, err := DecodeRunPodSandbox(encode(t, &runtimeapi.RunPodSandboxRequest{Config: sandbox(), RuntimeHandler: "runc"}))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("RunPodSandbox: %+v %v", got, err)
	}
	got, err = DecodeRestorePod(encode(t, &runtimeapi.RestorePodRequest{
		CheckpointPath: "/c", Config: sandbox(), RuntimeHandler: "runc", ContainerConfigs: []*runtimeapi.ContainerConfig{containerConfig()},
	}))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("RestorePod: %+v %v", got, err)
	}
}

func TestDecodeCreateContainer(t *testing.T) {
	want := ContainerConfig{
		SandboxID: "s", Name: "c", Image: "img:1", UserImage: "img", Mounted: []string{"vol:1"}, PodUID: "u", PodNamespace: "ns", PodName: "n", Attempt: 7,
		HasResources: true, OOMScoreAdj: -997, MemoryLimit: 1 << 40,
		Labels: containerConfig().Labels, Annotations: map[string]string{"c": "2"},
	}
	req := &runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: containerConfig(), SandboxConfig: sandbox()}
	req.Config.Mounts = append(req.Config.Mounts, &runtimeapi.Mount{ContainerPath: "/m", Image: &runtimeapi.ImageSpec{Image: "vol:1"}})
	got, err := DecodeCreateContainer(encode(t, req))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %v", got, err)
	}
	req.SandboxConfig = nil
	want.PodUID, want.PodNamespace, want.PodName = "lu", "lns", "ln"
	got, err = DecodeCreateContainer(encode(t, req))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("pod from labels: %+v %v", got, err)
	}
	req.Config.Linux = nil
	if got, err = DecodeCreateContainer(encode(t, req)); err != nil || got.HasResources {
		t.Errorf("no resources: %+v %v", got, err)
	}
}

func TestDecodeSmallMessages(t *testing.T) {
	for name, m := range map[string]proto.Message{
		"StartContainer":  &runtimeapi.StartContainerRequest{ContainerId: "id"},
		"StopContainer":   &runtimeapi.StopContainerRequest{ContainerId: "id", Timeout: 5},
		"RemoveContainer": &runtimeapi.RemoveContainerRequest{ContainerId: "id"},
		"StopSandbox":     &runtimeapi.StopPodSandboxRequest{PodSandboxId: "id"},
		"RemoveSandbox":   &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "id"},
	} {
		if got, err := DecodeID(encode(t, m)); err != nil || got != "id" {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if got, err := DecodeRunPodSandboxResponse(encode(t, &runtimeapi.RunPodSandboxResponse{PodSandboxId: "id"})); err != nil || got != "id" {
		t.Errorf("RunPodSandboxResponse: %q %v", got, err)
	}
	restored := &runtimeapi.RestorePodResponse{PodSandboxId: "id", RestoredContainers: []*runtimeapi.RestoredContainer{{Name: "x"}}}
	if got, err := DecodeRunPodSandboxResponse(encode(t, restored)); err != nil || got != "id" {
		t.Errorf("RestorePodResponse: %q %v", got, err)
	}
	if got, err := DecodeCreateContainerResponse(encode(t, &runtimeapi.CreateContainerResponse{ContainerId: "id"})); err != nil || got != "id" {
		t.Errorf("CreateContainerResponse: %q %v", got, err)
	}
	spec := &runtimeapi.ImageSpec{Image: "img:1"}
	image, pod, err := DecodeImageRequest(encode(t, &runtimeapi.PullImageRequest{Image: spec, Auth: &runtimeapi.AuthConfig{Username: "u"}, SandboxConfig: sandbox()}))
	if err != nil || image != "img:1" || !reflect.DeepEqual(pod, wantSandbox) {
		t.Errorf("PullImage: %q %+v %v", image, pod, err)
	}
	image, pod, err = DecodeImageRequest(encode(t, &runtimeapi.RemoveImageRequest{Image: spec}))
	if err != nil || image != "img:1" || pod.UID != "" {
		t.Errorf("RemoveImage: %q %+v %v", image, pod, err)
	}
}

// Writers may split a message field; readers merge the parts.
func TestDecodeMergesPartsAsProtobufDoes(t *testing.T) {
	one := encode(t, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Name: "old"}}})
	two := encode(t, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "new"}}})
	got, err := DecodeRunPodSandbox(append(one, two...))
	if err != nil || got.UID != "u" || got.Name != "new" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestDecodeIgnoresUnknownFieldsAndWrongTypes(t *testing.T) {
	b := protowire.AppendTag(nil, 1, protowire.VarintType) // "config" as a number
	b = protowire.AppendVarint(b, 5)
	b = protowire.AppendTag(b, 9999, protowire.StartGroupType)
	b = protowire.AppendTag(b, 9999, protowire.EndGroupType)
	b = append(b, encode(t, &runtimeapi.RunPodSandboxRequest{Config: sandbox()})...)
	got, err := DecodeRunPodSandbox(b)
	if err != nil || !reflect.DeepEqual(got, wantSandbox) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestDecodeGarbageIsAnError(t *testing.T) {
	for _, b := range [][]byte{{0xff}, {0x0a, 0x05, 1}, {0x0a, 0x01, 0xff}, {0x00}, {0x0c}} {
		if _, err := DecodeRunPodSandbox(b); err == nil {
			t.Errorf("%x: no error", b)
		}
	}
}

// The numbers in this package are those of the API, by name.
func TestFieldNumbersAreThoseOfTheAPI(t *testing.T) {
	type numbers map[protoreflect.Name]protoreflect.FieldNumber
	for m, want := range map[proto.Message]numbers{
		&runtimeapi.RunPodSandboxRequest{}:     {"config": 1, "runtime_handler": 2},
		&runtimeapi.RestorePodRequest{}:        {"config": 2, "runtime_handler": 3},
		&runtimeapi.RunPodSandboxResponse{}:    {"pod_sandbox_id": 1},
		&runtimeapi.RestorePodResponse{}:       {"pod_sandbox_id": 1},
		&runtimeapi.CreateContainerRequest{}:   {"pod_sandbox_id": 1, "config": 2, "sandbox_config": 3},
		&runtimeapi.CreateContainerResponse{}:  {"container_id": 1},
		&runtimeapi.PullImageRequest{}:         {"image": 1, "sandbox_config": 3},
		&runtimeapi.RemoveImageRequest{}:       {"image": 1},
		&runtimeapi.ImageSpec{}:                {"image": 1},
		&runtimeapi.PodSandboxConfig{}:         {"metadata": 1, "labels": 6, "annotations": 7, "linux": 8},
		&runtimeapi.PodSandboxMetadata{}:       {"name": 1, "uid": 2, "namespace": 3, "attempt": 4},
		&runtimeapi.LinuxPodSandboxConfig{}:    {"cgroup_parent": 1},
		&runtimeapi.ContainerConfig{}:          {"metadata": 1, "image": 2, "labels": 9, "annotations": 10, "linux": 15},
		&runtimeapi.ContainerMetadata{}:        {"name": 1, "attempt": 2},
		&runtimeapi.LinuxContainerConfig{}:     {"resources": 1},
		&runtimeapi.LinuxContainerResources{}:  {"memory_limit_in_bytes": 4, "oom_score_adj": 5},
		&runtimeapi.ContainerStatusResponse{}:  {"status": 1},
		&runtimeapi.PodSandboxStatusResponse{}: {"status": 1, "containers_statuses": 3},
		&runtimeapi.PodSandboxStatus{}:         {"metadata": 2},
		&runtimeapi.ContainerStatus{}: {"id": 1, "state": statusState, "started_at": statusStartedAt, "finished_at": statusFinishedAt,
			"exit_code": statusExitCode, "reason": statusReason, "message": statusMessage, "labels": statusLabels},
	} {
		d := m.ProtoReflect().Descriptor()
		for name, number := range want {
			f := d.Fields().ByName(name)
			if f == nil || f.Number() != number {
				t.Errorf("%s.%s is not %d", d.Name(), name, number)
			}
		}
	}
	if stateExited != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Error("stateExited")
	}
}
