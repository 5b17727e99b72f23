package fakecri

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// state is what the runtime knows. Its messages are never changed once they
// have been handed out; changes replace them.
type state struct {
	now func() time.Time

	mu         sync.Mutex
	serial     int
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*runtimeapi.Image
	watchers   map[chan *runtimeapi.ContainerEventResponse]struct{}
}

type sandbox struct {
	order   int
	id      string
	config  *runtimeapi.PodSandboxConfig
	handler string
	state   runtimeapi.PodSandboxState
	created int64
}

type container struct {
	order                      int
	id, sandbox                string
	config                     *runtimeapi.ContainerConfig
	state                      runtimeapi.ContainerState
	created, started, finished int64
	exitCode                   int32
	reason, message            string
}

func (st *state) init(now func() time.Time) {
	st.now = now
	st.sandboxes = make(map[string]*sandbox)
	st.containers = make(map[string]*container)
	st.images = make(map[string]*runtimeapi.Image)
	st.watchers = make(map[chan *runtimeapi.ContainerEventResponse]struct{})
}

// nextIDLocked makes an ID of 64 hex digits, as runtimes do.
func (st *state) nextIDLocked() (id string, order int) {
	st.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "fake %d", st.serial))
	return hex.EncodeToString(sum[:]), st.serial
}

// endLocked makes a running container an exited one.
func (st *state) endLocked(c *container, code int32, reason string) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.finished = st.now().UnixNano()
	c.exitCode, c.reason = code, reason
	st.notifyLocked(c, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

func (st *state) notifyLocked(c *container, t runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{ContainerId: c.id, ContainerEventType: t, CreatedAt: st.now().UnixNano()}
	for w := range st.watchers {
		select {
		case w <- e:
		default: // as containerd: a reader that is too slow loses events
		}
	}
}

// Exit ends a running container behind everybody's back, as an OOM kill or a
// crash does. reason is "Completed", "Error" or "OOMKilled".
func (s *Server) Exit(containerID string, code int32, reason string) error {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	c, ok := s.state.containers[containerID]
	if !ok {
		return fmt.Errorf("no container %s", containerID)
	}
	s.state.endLocked(c, code, reason)
	return nil
}

// Vanish removes a container or sandbox with all its containers behind
// everybody's back.
func (s *Server) Vanish(id string) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	delete(s.state.containers, id)
	delete(s.state.sandboxes, id)
	for cid, c := range s.state.containers {
		if c.sandbox == id {
			delete(s.state.containers, cid)
		}
	}
}

// AddImage makes an image known.
func (s *Server) AddImage(ref string, size uint64, pinned bool) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	sum := sha256.Sum256([]byte(ref))
	s.state.images[ref] = &runtimeapi.Image{
		Id: "sha256:" + hex.EncodeToString(sum[:]), RepoTags: []string{ref}, Size: size, Pinned: pinned,
		Spec: &runtimeapi.ImageSpec{Image: ref},
	}
}
