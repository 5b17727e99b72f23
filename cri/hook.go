package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerAnnotations returns the annotations kubelet put on a container.
func (c *Client) ContainerAnnotations(ctx context.Context, id string) (map[string]string, error) {
	resp, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", id, err)
	}
	return resp.GetStatus().GetAnnotations(), nil
}

// ContainerEndedAt is when a container ended: zero when it has not, or does not
// exist (any more).
func (c *Client) ContainerEndedAt(ctx context.Context, id string) (time.Time, error) {
	resp, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	switch {
	case status.Code(err) == codes.NotFound:
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("status of container %s: %w", id, err)
	case resp.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || resp.GetStatus().GetFinishedAt() <= 0:
		return time.Time{}, nil
	}
	return time.Unix(0, resp.GetStatus().GetFinishedAt()), nil
}

// Exited says whether the runtime knows that a container has ended, or does not know
// the container any more.
func (c *Client) Exited(ctx context.Context, id string) (bool, error) {
	resp, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if status.Code(err) == codes.NotFound {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("status of container %s: %w", id, err)
	}
	return resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, nil
}

// execOutput is how much of what a command said is put into its error.
const execOutput = 256

// Exec runs a command in a container and waits for its end, for timeout seconds
// at most. A command that ends with another code than 0 is an error that quotes
// what it said last.
func (c *Client) Exec(ctx context.Context, id string, command []string, timeout int64) error {
	resp, err := c.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: timeout})
	if err != nil {
		return fmt.Errorf("exec in container %s: %w", id, err)
	}
	if resp.GetExitCode() == 0 {
		return nil
	}
	said := resp.GetStderr()
	if len(said) == 0 {
		said = resp.GetStdout()
	}
	text := strings.TrimSpace(string(said[max(0, len(said)-execOutput):]))
	return fmt.Errorf("exec in container %s: exit code %d: %q", id, resp.GetExitCode(), text)
}

// PodIP returns the sandbox's first address; empty for one on the host's
// network.
func (c *Client) PodIP(ctx context.Context, sandboxID string) (string, error) {
	resp, err := c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandboxID})
	if err != nil {
		return "", fmt.Errorf("status of sandbox %s: %w", sandboxID, err)
	}
	return resp.GetStatus().GetNetwork().GetIp(), nil
}
