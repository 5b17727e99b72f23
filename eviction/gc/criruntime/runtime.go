// Package criruntime is the runtime as garbage collection sees it, over CRI.
package criruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// Runtime implements gc.Runtime.
type Runtime struct{ *cri.Client }

var _ gc.Runtime = Runtime{}

// List implements gc.Runtime. Containers are listed first: a sandbox of theirs is
// then in the list unless it was removed meanwhile, and then they stay.
func (r Runtime) List(ctx context.Context) (gc.Listing, error) {
	containers, err := r.ListContainers(ctx)
	if err != nil {
		return gc.Listing{}, err
	}
	sandboxes, err := r.ListSandboxes(ctx)
	if err != nil {
		return gc.Listing{}, err
	}
	l := gc.Listing{Sandboxes: make([]gc.Sandbox, 0, len(sandboxes)), Containers: make([]gc.Container, 0, len(containers))}
	for _, s := range sandboxes {
		m := s.GetMetadata()
		l.Sandboxes = append(l.Sandboxes, gc.Sandbox{
			ID: s.GetId(), Pod: inventory.Ref{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid()},
			Attempt: m.GetAttempt(), Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, Created: time.Unix(0, s.GetCreatedAt()),
		})
	}
	for _, c := range containers {
		l.Containers = append(l.Containers, gc.Container{
			ID: c.GetId(), SandboxID: c.GetPodSandboxId(), Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
			State: stateOf(c.GetState()), Created: time.Unix(0, c.GetCreatedAt()),
			Images: []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage(), c.GetImage().GetUserSpecifiedImage()},
		})
	}
	return l, nil
}

func stateOf(s runtimeapi.ContainerState) gc.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return gc.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return gc.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return gc.Exited
	}
	return gc.Unknown
}

// Images implements gc.Runtime.
func (r Runtime) Images(ctx context.Context) ([]gc.Image, error) {
	images, err := r.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]gc.Image, 0, len(images))
	for _, i := range images {
		out = append(out, gc.Image{
			ID: i.GetId(), Names: append(append([]string{}, i.GetRepoTags()...), i.GetRepoDigests()...), Size: i.GetSize(), Pinned: i.GetPinned(),
		})
	}
	return out, nil
}

// ConfiguredSandboxImages implements gc.Runtime: containerd 1.x tells its
// configuration. containerd 2.x and CRI-O pin theirs.
func (r Runtime) ConfiguredSandboxImages(ctx context.Context) ([]string, error) {
	info, err := r.RuntimeInfo(ctx)
	if err != nil {
		return nil, err
	}
	return sandboxImages(info)
}

// sandboxImages finds the sandbox image in a runtime's verbose status.
func sandboxImages(info map[string]string) ([]string, error) {
	text := strings.TrimSpace(info["config"])
	if !strings.HasPrefix(text, "{") {
		return nil, nil // not containerd's
	}
	var config struct {
		SandboxImage string            `json:"sandboxImage"`
		PauseImage   string            `json:"pauseImage"`
		Pinned       map[string]string `json:"pinned_images"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("configuration in the runtime's status: %w", err)
	}
	var out []string
	for _, name := range append([]string{config.SandboxImage, config.PauseImage}, slices.Sorted(maps.Values(config.Pinned))...) {
		if name != "" {
			out = append(out, name)
		}
	}
	return out, nil
}

// SandboxImage implements gc.Runtime: containerd tells it in the verbose status.
func (r Runtime) SandboxImage(ctx context.Context, id string) (string, error) {
	info, err := r.SandboxInfo(ctx, id)
	if errors.Is(err, cri.ErrNoSuch) {
		return "", gc.ErrNoSuch
	}
	if err != nil {
		return "", err
	}
	var details struct {
		Image string `json:"image"`
	}
	if text, ok := info["info"]; ok {
		if err := json.Unmarshal([]byte(text), &details); err != nil {
			return "", fmt.Errorf("verbose status of sandbox %s: %w", id, err)
		}
	}
	return details.Image, nil
}

// MountedImages implements gc.Runtime.
func (r Runtime) MountedImages(ctx context.Context, id string) ([]string, error) {
	names, err := r.Client.MountedImages(ctx, id)
	if errors.Is(err, cri.ErrNoSuch) {
		return nil, gc.ErrNoSuch
	}
	return names, err
}

// ResolveImage implements gc.Runtime.
func (r Runtime) ResolveImage(ctx context.Context, name string) (string, error) {
	image, err := r.ImageStatus(ctx, name)
	return image.GetId(), err
}

// RemoveSandbox implements gc.Runtime, as kubelet removes one.
func (r Runtime) RemoveSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	return r.RemovePodSandbox(ctx, id)
}
