package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The node whose kubelet is replayed: the usual limit of pods, three containers
// in each.
const (
	idlePods       = 110
	idleContainers = 3 * idlePods
	idleImages     = 50
)

// bigID asks for one answer of bigSize bytes, near the limit of 64 MiB.
const (
	bigID   = "big"
	bigSize = 60 << 20
)

// listSizes are the lengths of the lists that are measured.
var listSizes = [...]int{10, 300, 1000, 5000}

// canned are the encoded answers by method name; those of ListContainers by
// what the filter asks for.
type canned struct {
	methods map[string][]byte
	lists   map[string][]byte
}

func cannedAnswers() (*canned, error) {
	c := &canned{methods: make(map[string][]byte), lists: make(map[string][]byte)}
	for _, n := range listSizes {
		c.lists[strconv.Itoa(n)] = mustEncode(containerList(n))
	}
	c.lists[""] = mustEncode(containerList(idleContainers))
	c.lists[bigID] = mustEncode(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: strings.Repeat("b", bigSize)}}})
	for method, m := range map[string]proto.Message{
		"Version": &runtimeapi.VersionResponse{
			Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "v2.4.2", RuntimeApiVersion: "v1",
		},
		"ContainerStatus":    &runtimeapi.ContainerStatusResponse{Status: containerStatus()},
		"ListPodSandbox":     sandboxList(idlePods),
		"ListContainerStats": statsList(idleContainers),
		"ListImages":         imageList(idleImages),
		"Status": &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true},
		}}},
		"ImageFsInfo": &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
			Timestamp: 1764000000000000000, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"},
			UsedBytes: &runtimeapi.UInt64Value{Value: 20 << 30}, InodesUsed: &runtimeapi.UInt64Value{Value: 300000},
		}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("answer of %s: %w", method, err)
		}
		c.methods[method] = b
	}
	return c, nil
}

// mustEncode encodes a message that was made here, which cannot fail.
func mustEncode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func hexID(kind string, i int) string { return fmt.Sprintf("%s%0*x", kind, 64-len(kind), i*2654435761) }

func podUID(i int) string { return fmt.Sprintf("6f1d5a9e-0b7c-4d2e-9f31-%012x", i) }

// labels are those kubelet gives every container.
func labels(i int) map[string]string {
	return map[string]string{
		"io.kubernetes.container.name": fmt.Sprintf("container-%d", i%3),
		"io.kubernetes.pod.name":       fmt.Sprintf("deployment-%d-7c5ddbdf54-x2k9q", i/3),
		"io.kubernetes.pod.namespace":  fmt.Sprintf("namespace-%d", i%7),
		"io.kubernetes.pod.uid":        podUID(i / 3),
	}
}

// annotations are those kubelet gives every container.
func annotations() map[string]string {
	return map[string]string{
		"io.kubernetes.container.hash":                     "5ac4f3c1",
		"io.kubernetes.container.ports":                    `[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}]`,
		"io.kubernetes.container.restartCount":             "0",
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.pod.terminationGracePeriod":         "30",
	}
}

const image = "sha256:5d0da3dc976460b72c77d94c8a1ad043720b0416bfc16c52c45d4847e53fadb6"

func containerList(n int) *runtimeapi.ListContainersResponse {
	l := &runtimeapi.ListContainersResponse{}
	for i := range n {
		l.Containers = append(l.Containers, &runtimeapi.Container{
			Id: hexID("c", i), PodSandboxId: hexID("5", i/3),
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("container-%d", i%3)},
			Image:    &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: "registry.example/team/service:v1.24.3"},
			ImageRef: image, ImageId: image, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt: 1764000000000000000 + int64(i), Labels: labels(i), Annotations: annotations(),
		})
	}
	return l
}

func sandboxList(n int) *runtimeapi.ListPodSandboxResponse {
	l := &runtimeapi.ListPodSandboxResponse{}
	for i := range n {
		pod := labels(3 * i)
		delete(pod, "io.kubernetes.container.name")
		pod["app.kubernetes.io/name"] = "service"
		pod["pod-template-hash"] = "7c5ddbdf54"
		l.Items = append(l.Items, &runtimeapi.PodSandbox{
			Id: hexID("5", i), CreatedAt: 1764000000000000000 + int64(i),
			Metadata: &runtimeapi.PodSandboxMetadata{
				Name: pod["io.kubernetes.pod.name"], Namespace: pod["io.kubernetes.pod.namespace"], Uid: podUID(i),
			},
			Labels: pod,
			Annotations: map[string]string{
				"kubernetes.io/config.seen": "2026-11-24T15:20:00.000000000Z", "kubernetes.io/config.source": "api",
			},
		})
	}
	return l
}

func statsList(n int) *runtimeapi.ListContainerStatsResponse {
	l := &runtimeapi.ListContainerStatsResponse{}
	u := func(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }
	for i := range n {
		l.Stats = append(l.Stats, &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{
				Id: hexID("c", i), Metadata: &runtimeapi.ContainerMetadata{Name: "container"}, Labels: labels(i), Annotations: annotations(),
			},
			Cpu:    &runtimeapi.CpuUsage{Timestamp: 1764000000000000000, UsageCoreNanoSeconds: u(123456789012), UsageNanoCores: u(1234567)},
			Memory: &runtimeapi.MemoryUsage{Timestamp: 1764000000000000000, WorkingSetBytes: u(200 << 20), UsageBytes: u(250 << 20), RssBytes: u(180 << 20)},
			WritableLayer: &runtimeapi.FilesystemUsage{
				Timestamp: 1764000000000000000, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/containerd"}, UsedBytes: u(8192), InodesUsed: u(12),
			},
		})
	}
	return l
}

func imageList(n int) *runtimeapi.ListImagesResponse {
	l := &runtimeapi.ListImagesResponse{}
	for i := range n {
		l.Images = append(l.Images, &runtimeapi.Image{
			Id: image, RepoTags: []string{fmt.Sprintf("registry.example/team/service-%d:v1.24.3", i)},
			RepoDigests: []string{"registry.example/team/service@" + image}, Size: 100 << 20,
		})
	}
	return l
}

func containerStatus() *runtimeapi.ContainerStatus {
	s := &runtimeapi.ContainerStatus{
		Id: hexID("c", 1), Metadata: &runtimeapi.ContainerMetadata{Name: "container-1"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		CreatedAt: 1764000000000000000, StartedAt: 1764000001000000000, Image: &runtimeapi.ImageSpec{Image: image}, ImageRef: image, ImageId: image,
		Labels: labels(1), Annotations: annotations(), LogPath: "/var/log/pods/namespace-1_deployment-0_uid/container-1/0.log",
	}
	for _, path := range []string{"/etc/hosts", "/dev/termination-log", "/var/run/secrets/kubernetes.io/serviceaccount"} {
		s.Mounts = append(s.Mounts, &runtimeapi.Mount{ContainerPath: path, HostPath: "/var/lib/kubelet/pods/" + podUID(0) + path})
	}
	return s
}
