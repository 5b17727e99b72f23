package fakecri

import (
	"context"
	"sort"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeService implements what a pod's life needs; the rest is Unimplemented.
type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	s *Server
}

// Version names the runtime "fake".
func (r *runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "v1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status says that everything is ready.
func (r *runtimeService) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

func (r *runtimeService) RunPodSandbox(_ context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	m := req.GetConfig().GetMetadata()
	if m == nil {
		return nil, status.Error(codes.InvalidArgument, "sandbox config must include metadata")
	}
	for _, sb := range st.sandboxes {
		o := sb.config.GetMetadata()
		if o.GetUid() == m.GetUid() && o.GetName() == m.GetName() && o.GetNamespace() == m.GetNamespace() && o.GetAttempt() == m.GetAttempt() {
			return nil, status.Errorf(codes.AlreadyExists, "sandbox name of %s/%s attempt %d is reserved", m.GetNamespace(), m.GetName(), m.GetAttempt())
		}
	}
	id, order := st.nextIDLocked()
	st.sandboxes[id] = &sandbox{order: order, id: id, config: req.GetConfig(), handler: req.GetRuntimeHandler(), created: st.now().UnixNano()}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// StopPodSandbox ends all containers at once, and is a success for a sandbox
// that is not there.
func (r *runtimeService) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if sb, ok := st.sandboxes[req.GetPodSandboxId()]; ok {
		st.stopLocked(sb)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (st *state) stopLocked(sb *sandbox) {
	for _, c := range st.containers {
		if c.sandbox == sb.id {
			st.endLocked(c, 137, "Error")
		}
	}
	sb.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (r *runtimeService) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if sb, ok := st.sandboxes[req.GetPodSandboxId()]; ok {
		st.stopLocked(sb)
		for id, c := range st.containers {
			if c.sandbox == sb.id {
				delete(st.containers, id)
			}
		}
		delete(st.sandboxes, sb.id)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *runtimeService) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	sb, ok := st.sandboxes[req.GetPodSandboxId()]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox %q: not found", req.GetPodSandboxId())
	}
	resp := &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{
			Id: sb.id, Metadata: sb.config.GetMetadata(), State: sb.state, CreatedAt: sb.created,
			Network:        &runtimeapi.PodSandboxNetworkStatus{},
			Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
			Labels:         sb.config.GetLabels(),
			Annotations:    sb.config.GetAnnotations(),
			RuntimeHandler: sb.handler,
		},
		Timestamp: st.now().UnixNano(),
	}
	for _, c := range st.containersLocked(func(c *container) bool { return c.sandbox == sb.id }) {
		resp.ContainersStatuses = append(resp.ContainersStatuses, c.status())
	}
	return resp, nil
}

func (r *runtimeService) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	st := &r.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	f := req.GetFilter()
	var found []*sandbox
	for _, sb := range st.sandboxes {
		if (f.GetId() == "" || f.GetId() == sb.id) && (f.GetState() == nil || f.GetState().GetState() == sb.state) &&
			hasLabels(sb.config.GetLabels(), f.GetLabelSelector()) {
			found = append(found, sb)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].order < found[j].order })
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, sb := range found {
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: sb.id, Metadata: sb.config.GetMetadata(), State: sb.state, CreatedAt: sb.created,
			Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(), RuntimeHandler: sb.handler,
		})
	}
	return resp, nil
}

func hasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return true
}
