package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Client is the daemon's own connection to the runtime, CRI v1 only. Its
// methods are safe for concurrent use; their errors keep the gRPC status.
type Client struct {
	endpoint Endpoint
	conn     *grpc.ClientConn
	runtime  runtimeapi.RuntimeServiceClient
	image    runtimeapi.ImageServiceClient
}

// Dial makes a client. It does not wait for the runtime: the connection is made
// with the first call (or by Ready), and again by itself whenever it is lost.
func Dial(e Endpoint) (*Client, error) {
	conn, err := grpc.NewClient(Target, DialOptions(e, nil)...)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", e, err)
	}
	return &Client{
		endpoint: e,
		conn:     conn,
		runtime:  runtimeapi.NewRuntimeServiceClient(conn),
		image:    runtimeapi.NewImageServiceClient(conn),
	}, nil
}

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// Endpoint is where the client connects to.
func (c *Client) Endpoint() Endpoint { return c.endpoint }

// Runtime is the generated client of the runtime service.
func (c *Client) Runtime() runtimeapi.RuntimeServiceClient { return c.runtime }

// Image is the generated client of the image service.
func (c *Client) Image() runtimeapi.ImageServiceClient { return c.image }

// State is the present state of the connection.
func (c *Client) State() connectivity.State { return c.conn.GetState() }

// Ready keeps the connection up until ctx ends and signals each time it has
// become usable (again): then everything known of the runtime must be listed
// anew. Signals that nobody has taken yet are merged. The channel is closed
// when ctx ends or the client is closed.
func (c *Client) Ready(ctx context.Context) <-chan struct{} {
	ready := make(chan struct{}, 1)
	go func() {
		defer close(ready)
		WatchConn(ctx, c.conn, func(s connectivity.State) {
			if s != connectivity.Ready {
				return
			}
			select {
			case ready <- struct{}{}:
			default:
			}
		})
	}()
	return ready
}

// Version asks the runtime for its name and version.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	resp, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return nil, fmt.Errorf("version of %s: %w", c.endpoint, err)
	}
	return resp, nil
}

// ListSandboxes lists all sandboxes, also those that are not ready.
func (c *Client) ListSandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	resp, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	return resp.GetItems(), nil
}

// ListContainers lists all containers, also those that have ended.
func (c *Client) ListContainers(ctx context.Context) ([]*runtimeapi.Container, error) {
	resp, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return resp.GetContainers(), nil
}

// StopContainer stops a container and gives it timeout seconds before it is
// killed. A container that does not exist (any more) is stopped.
func (c *Client) StopContainer(ctx context.Context, id string, timeout int64) error {
	_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// StopPodSandbox stops a sandbox and whatever still runs in it. A sandbox that
// does not exist (any more) is stopped.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

// RemoveContainer removes a container that has ended, with its writable layer.
// One that does not exist (any more) is removed.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}
