package cri

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrNoSuch says that the runtime does not have what it was asked about.
var ErrNoSuch = errors.New("the runtime does not have it")

// ListImages lists all images.
func (c *Client) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := c.image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return resp.GetImages(), nil
}

// ImageStatus returns the image of that name or ID, nil when there is none.
func (c *Client) ImageStatus(ctx context.Context, name string) (*runtimeapi.Image, error) {
	resp, err := c.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("status of image %s: %w", name, err)
	}
	return resp.GetImage(), nil
}

// RemoveImage removes an image with all its names. One that is not there (any
// more) is removed.
func (c *Client) RemoveImage(ctx context.Context, id string) error {
	_, err := c.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove image %s: %w", id, err)
	}
	return nil
}

// RemovePodSandbox removes a sandbox and whatever is in it. One that does not exist
// (any more) is removed.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}

// RuntimeInfo is what the runtime tells of itself beyond CRI, JSON by key.
func (c *Client) RuntimeInfo(ctx context.Context) (map[string]string, error) {
	resp, err := c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", c.endpoint, err)
	}
	return resp.GetInfo(), nil
}

// SandboxInfo is what the runtime tells of a sandbox beyond CRI, JSON by key.
// ErrNoSuch: there is no such sandbox.
func (c *Client) SandboxInfo(ctx context.Context, id string) (map[string]string, error) {
	resp, err := c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if status.Code(err) == codes.NotFound {
		return nil, fmt.Errorf("sandbox %s: %w", id, ErrNoSuch)
	}
	if err != nil {
		return nil, fmt.Errorf("status of sandbox %s: %w", id, err)
	}
	return resp.GetInfo(), nil
}

// MountedImages are the images that a container mounts as volumes. ErrNoSuch:
// there is no such container.
func (c *Client) MountedImages(ctx context.Context, id string) ([]string, error) {
	resp, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if status.Code(err) == codes.NotFound {
		return nil, fmt.Errorf("container %s: %w", id, ErrNoSuch)
	}
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", id, err)
	}
	var out []string
	for _, m := range resp.GetStatus().GetMounts() {
		for _, name := range []string{m.GetImage().GetImage(), m.GetImage().GetImageRef()} {
			if name != "" {
				out = append(out, name)
			}
		}
	}
	return out, nil
}
