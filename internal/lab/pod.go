package lab

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Label and annotation keys kubelet puts on sandboxes and containers
// (kubelet's pkg/kubelet/types and kuberuntime/labels.go).
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationConfigSource = "kubernetes.io/config.source"
	annotationConfigSeen   = "kubernetes.io/config.seen"
	annotationHash         = "io.kubernetes.container.hash"
	annotationRestartCount = "io.kubernetes.container.restartCount"
	annotationTermPath     = "io.kubernetes.container.terminationMessagePath"
	annotationTermPolicy   = "io.kubernetes.container.terminationMessagePolicy"
	annotationGracePeriod  = "io.kubernetes.pod.terminationGracePeriod"
)

// PodSpec is one pod, as far as a CRI runtime gets to know it.
type PodSpec struct {
	Namespace, Name, UID string
	// Attempt is the attempt of the sandbox and of its containers, 0 for a new
	// pod.
	Attempt uint32
	// CgroupParent is the CRI cgroup_parent: a path ("/kubepods/pod1", see
	// QoSParent) or, with the systemd driver, a slice (see QoSSlice).
	CgroupParent string
	Labels       map[string]string
	Annotations  map[string]string
	// LogDirectory keeps the containers' output, as <name>/0.log, in CRI's
	// log format. Empty: output is thrown away.
	LogDirectory string
	Containers   []ContainerSpec
}

// ContainerSpec is one container of a PodSpec.
type ContainerSpec struct {
	Name string
	// Args are the workload's: "alloc", "--total", "512Mi", …
	Args []string
	// OOMScoreAdj as kubelet computes it from QoS class and request; see
	// the function OOMScoreAdj.
	OOMScoreAdj int64
	MemoryLimit int64 // bytes, 0: none
	// Image is WorkloadImage when empty.
	Image  string
	Mounts []*runtimeapi.Mount
	// Annotations are put beside kubelet's and replace those of the same key,
	// such as the grace period of 30 s.
	Annotations map[string]string
}

// Running is a pod that RunPod started.
type Running struct {
	SandboxID    string
	ContainerIDs []string // in the order of PodSpec.Containers
}

// QoSParent returns the cgroup parent kubelet's cgroupfs driver gives a pod:
// /kubepods/pod<uid> for Guaranteed, else /kubepods/burstable/pod<uid> or
// /kubepods/besteffort/pod<uid>. qos is read without regard to case; anything
// but a QoS class is a mistake in the calling test and panics.
func QoSParent(qos, uid string) string {
	if level := qosLevel(qos); level != "" {
		return "/kubepods/" + level + "/pod" + uid
	}
	return "/kubepods/pod" + uid
}

// QoSSlice is QoSParent for the systemd driver, in the short form kubelet
// sends: kubepods-burstable-pod<uid with "_" for "-">.slice.
func QoSSlice(qos, uid string) string {
	name := "kubepods"
	if level := qosLevel(qos); level != "" {
		name += "-" + level
	}
	return name + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
}

func qosLevel(qos string) string {
	switch strings.ToLower(qos) {
	case "guaranteed":
		return ""
	case "burstable", "besteffort":
		return strings.ToLower(qos)
	}
	panic(fmt.Sprintf("lab: %q is no QoS class", qos))
}

// OOMScoreAdj returns what kubelet sets for a container with a memory request
// on a machine with memTotal, both in bytes (kubelet's qos/policy.go):
// -997 for Guaranteed, 1000 for BestEffort, else 1000 − ⌊1000·request/memTotal⌋
// within 3 and 999. qos as for QoSParent.
func OOMScoreAdj(qos string, request, memTotal int64) int64 {
	switch qosLevel(qos) {
	case "":
		return -997
	case "besteffort":
		return 1000
	}
	if memTotal <= 0 {
		return 999
	}
	return min(max(1000-1000*request/memTotal, 3), 999)
}

// NewUID returns a pod UID nobody has used yet (a random version 4 UUID).
func NewUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// RunPod starts a pod in kubelet's order and with kubelet's labels and
// annotations: RunPodSandbox (host network, so no CNI is needed), then
// CreateContainer and StartContainer for each container. With an error,
// Running has what was created before it. gRPC errors are wrapped:
// status.Code and status.Convert see through.
func RunPod(ctx context.Context, rt runtimeapi.RuntimeServiceClient, spec PodSpec) (Running, error) {
	var r Running
	config := sandboxConfig(spec)
	sandbox, err := rt.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return r, fmt.Errorf("lab: run sandbox of %s/%s: %w", spec.Namespace, spec.Name, err)
	}
	r.SandboxID = sandbox.PodSandboxId
	for _, cs := range spec.Containers {
		created, err := rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId:  r.SandboxID,
			Config:        containerConfig(spec, cs),
			SandboxConfig: config,
		})
		if err != nil {
			return r, fmt.Errorf("lab: create container %s of %s/%s: %w", cs.Name, spec.Namespace, spec.Name, err)
		}
		r.ContainerIDs = append(r.ContainerIDs, created.ContainerId)
		if _, err := rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
			return r, fmt.Errorf("lab: start container %s of %s/%s: %w", cs.Name, spec.Namespace, spec.Name, err)
		}
	}
	return r, nil
}

// RemovePod stops and removes a pod's sandbox and with it its containers.
// The pod's cgroup stays, as it does under kubelet, until Cleanup.
func RemovePod(ctx context.Context, rt runtimeapi.RuntimeServiceClient, sandboxID string) error {
	if _, err := rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxID}); err != nil {
		return fmt.Errorf("lab: stop sandbox %s: %w", sandboxID, err)
	}
	if _, err := rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID}); err != nil {
		return fmt.Errorf("lab: remove sandbox %s: %w", sandboxID, err)
	}
	return nil
}

// sandboxConfig is kubelet's generatePodSandboxConfig for a host network pod.
func sandboxConfig(spec PodSpec) *runtimeapi.PodSandboxConfig {
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelPodName] = spec.Name
	labels[labelPodNamespace] = spec.Namespace
	labels[labelPodUID] = spec.UID

	annotations := map[string]string{
		annotationConfigSource: "api",
		annotationConfigSeen:   time.Now().UTC().Format(time.RFC3339Nano),
	}
	maps.Copy(annotations, spec.Annotations)

	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: spec.Name, Namespace: spec.Namespace, Uid: spec.UID, Attempt: spec.Attempt,
		},
		LogDirectory: spec.LogDirectory,
		Labels:       labels,
		Annotations:  annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: spec.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaceOptions(),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

// containerConfig is kubelet's generateContainerConfig, without probes,
// devices and the files kubelet mounts.
func containerConfig(spec PodSpec, cs ContainerSpec) *runtimeapi.ContainerConfig {
	image := cs.Image
	if image == "" {
		image = WorkloadImage
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: cs.Name, Attempt: spec.Attempt},
		Image:    &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: image},
		Args:     cs.Args,
		Mounts:   cs.Mounts,
		Labels: map[string]string{
			labelPodName: spec.Name, labelPodNamespace: spec.Namespace, labelPodUID: spec.UID,
			labelContainerName: cs.Name,
		},
		Annotations: map[string]string{
			annotationHash:         "0",
			annotationRestartCount: strconv.FormatUint(uint64(spec.Attempt), 10),
			annotationTermPath:     "/dev/termination-log",
			annotationTermPolicy:   "File",
			annotationGracePeriod:  strconv.Itoa(30),
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{
				CpuShares:          2,
				OomScoreAdj:        cs.OOMScoreAdj,
				MemoryLimitInBytes: cs.MemoryLimit,
			},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: namespaceOptions(),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			},
		},
	}
	maps.Copy(config.Annotations, cs.Annotations)
	if spec.LogDirectory != "" {
		config.LogPath = filepath.Join(cs.Name, "0.log")
	}
	return config
}

func namespaceOptions() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
}
