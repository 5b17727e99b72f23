package fakecri

import (
	"context"
	"sort"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func noContainer(id string) error {
	return status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", id)
}

func (r *runtimeService) CreateContainer(_ context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	sb, ok := st.sandboxes[req.GetPodSandboxId()]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", req.GetPodSandboxId())
	}
	if sb.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, status.Errorf(codes.Unknown, "sandbox %q is not running", sb.id)
	}
	id, order := st.nextIDLocked()
	c := &container{
		order: order, id: id, sandbox: sb.id, config: req.GetConfig(), created: st.now().UnixNano(),
		state: runtimeapi.ContainerState_CONTAINER_CREATED,
	}
	st.containers[id] = c
	st.notifyLocked(c, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (r *runtimeService) StartContainer(_ context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	c, ok := st.containers[req.GetContainerId()]
	if !ok {
		return nil, noContainer(req.GetContainerId())
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.Unknown, "container %q is not in created state", c.id)
	}
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	c.started = st.now().UnixNano()
	st.notifyLocked(c, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.StartContainerResponse{}, nil
}

func (r *runtimeService) StopContainer(_ context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	c, ok := st.containers[req.GetContainerId()]
	if !ok {
		return nil, noContainer(req.GetContainerId())
	}
	code := int32(143)
	if req.GetTimeout() == 0 {
		code = 137
	}
	st.endLocked(c, code, "Error")
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *runtimeService) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if c, ok := st.containers[req.GetContainerId()]; ok {
		st.endLocked(c, 137, "Error")
		delete(st.containers, c.id)
		st.notifyLocked(c, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: c.state,
		CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.finished, ExitCode: c.exitCode,
		Image: c.config.GetImage(), ImageRef: c.config.GetImage().GetImage(),
		Reason: c.reason, Message: c.message,
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		LogPath: c.config.GetLogPath(),
	}
}

func (r *runtimeService) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	c, ok := st.containers[req.GetContainerId()]
	if !ok {
		return nil, noContainer(req.GetContainerId())
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// containersLocked are the matching containers, oldest first.
func (st *state) containersLocked(match func(*container) bool) []*container {
	var found []*container
	for _, c := range st.containers {
		if match(c) {
			found = append(found, c)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].order < found[j].order })
	return found
}

func (r *runtimeService) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	f := req.GetFilter()
	resp := &runtimeapi.ListContainersResponse{}
	for _, c := range st.containersLocked(func(c *container) bool {
		return (f.GetId() == "" || f.GetId() == c.id) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox) &&
			(f.GetState() == nil || f.GetState().GetState() == c.state) && hasLabels(c.config.GetLabels(), f.GetLabelSelector())
	}) {
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: c.config.GetImage().GetImage(), State: c.state, CreatedAt: c.created,
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
	}
	return resp, nil
}

// GetContainerEvents streams events from now on until the caller goes.
func (r *runtimeService) GetContainerEvents(_ *runtimeapi.GetEventsRequest, ss grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	st := &r.s.state
	events := make(chan *runtimeapi.ContainerEventResponse, 1000)
	st.mu.Lock()
	st.watchers[events] = struct{}{}
	st.mu.Unlock()
	defer func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		delete(st.watchers, events)
	}()
	for {
		select {
		case e := <-events:
			if err := ss.Send(e); err != nil {
				return err
			}
		case <-ss.Context().Done():
			return ss.Context().Err()
		}
	}
}
