package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Lister is the part of the CRI client that lists.
type Lister interface {
	ListSandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context) ([]*runtimeapi.Container, error)
	Runtime() runtimeapi.RuntimeServiceClient
}

// CRIRuntime makes a Runtime of a CRI client.
type CRIRuntime struct{ Lister Lister }

// List implements Runtime. Sandboxes are listed before containers, so that a
// container's sandbox is normally in the same listing.
func (r CRIRuntime) List(ctx context.Context) (Listing, error) {
	sandboxes, err := r.Lister.ListSandboxes(ctx)
	if err != nil {
		return Listing{}, err
	}
	containers, err := r.Lister.ListContainers(ctx)
	if err != nil {
		return Listing{}, err
	}
	l := Listing{
		Sandboxes:  make([]ListedSandbox, 0, len(sandboxes)),
		Containers: make([]Container, 0, len(containers)),
	}
	for _, b := range sandboxes {
		m := b.GetMetadata()
		l.Sandboxes = append(l.Sandboxes, ListedSandbox{
			Sandbox: Sandbox{
				ID: b.GetId(), Attempt: m.GetAttempt(),
				Ready:   b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
				Created: time.Unix(0, b.GetCreatedAt()),
			},
			Pod:         Ref{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid()},
			Labels:      b.GetLabels(),
			Annotations: b.GetAnnotations(),
		})
	}
	for _, c := range containers {
		state := c.GetState()
		l.Containers = append(l.Containers, Container{
			ID: c.GetId(), SandboxID: c.GetPodSandboxId(),
			Name:  c.GetMetadata().GetName(),
			Image: c.GetImage().GetImage(),
			Running: state == runtimeapi.ContainerState_CONTAINER_RUNNING ||
				state == runtimeapi.ContainerState_CONTAINER_CREATED,
			Created: time.Unix(0, c.GetCreatedAt()),
		})
	}
	return l, nil
}

// PID implements Runtime. containerd and CRI-O put it into the verbose status
// as JSON.
func (r CRIRuntime) PID(ctx context.Context, containerID string) (int, error) {
	st, err := r.Lister.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: containerID, Verbose: true})
	if err != nil {
		return 0, fmt.Errorf("status of container %s: %w", containerID, err)
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(st.GetInfo()["info"]), &info); err != nil {
		return 0, fmt.Errorf("verbose status of container %s: %w", containerID, err)
	}
	return info.PID, nil
}
