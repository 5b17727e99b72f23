package proxy

import (
	"strings"
	"time"
)

// Types of events.
const (
	EventHello = "hello" // first line of each stream
	EventDirty = "dirty" // events were lost or the runtime was away: list anew
	// EventHandOver: another process serves new connections, to the events socket
	// too. This stream goes on with the calls that are still under way here.
	EventHandOver         = "handOver"
	EventRunBegin         = "runBegin"
	EventRunEnd           = "runEnd"
	EventRunRefused       = "runRefused"       // a held pod asked for a sandbox: it is still there
	EventAdmissionRefused = "admissionRefused" // a new pod was refused under Condition
	EventCreateBegin      = "createBegin"
	EventCreateEnd        = "createEnd"
	EventPullBegin        = "pullBegin"
	EventPullEnd          = "pullEnd"
	EventSandboxStarted   = "sandboxStarted"
	EventSandboxStopped   = "sandboxStopped"
	EventSandboxRemoved   = "sandboxRemoved"
	EventContainerCreated = "containerCreated"
	EventContainerStarted = "containerStarted"
	EventContainerStopped = "containerStopped"
	EventContainerRemoved = "containerRemoved"
	EventImageRemoved     = "imageRemoved"
)

// PodRef names a pod.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Event is one thing that passed through the proxy. "…Begin" and "…End" frame a
// call under way; all others tell of a success only.
type Event struct {
	// Seq counts all events since the proxy started; a gap is a loss.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Type string    `json:"type"`

	Pod           *PodRef `json:"pod,omitempty"`
	SandboxID     string  `json:"sandboxID,omitempty"`
	ContainerID   string  `json:"containerID,omitempty"`
	ContainerName string  `json:"containerName,omitempty"`
	Image         string  `json:"image,omitempty"`
	// ImageID is what the runtime calls the image that was pulled (pullEnd).
	ImageID string `json:"imageID,omitempty"`
	// MountedImages are those that a container mounts as volumes.
	MountedImages []string `json:"mountedImages,omitempty"`
	Attempt       uint32   `json:"attempt,omitempty"`
	CgroupParent  string   `json:"cgroupParent,omitempty"`
	OOMScoreAdj   *int64   `json:"oomScoreAdj,omitempty"`
	// MemoryLimit is in bytes, 0 is unlimited.
	MemoryLimit *int64 `json:"memoryLimit,omitempty"`
	// ConfigSource is where kubelet has the pod from: "api", "file", "http".
	ConfigSource string            `json:"configSource,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	// Err is the gRPC code of a call that failed (end events only).
	Err string `json:"err,omitempty"`
	// Held: the pod became held while this call was under way, and the call
	// succeeded: it must be killed again.
	Held bool `json:"held,omitempty"`
	// Condition is why a new pod was refused (EventAdmissionRefused).
	Condition string `json:"condition,omitempty"`
	// Upstream is the state of the connection to the runtime ("hello" only).
	Upstream string `json:"upstream,omitempty"`
}

const configSourceAnnotation = "kubernetes.io/config.source"

// keptAnnotations are those the evictor has a use for. Annotations can be large
// and secret, so that all others stay out of the stream.
func keptAnnotations(all map[string]string) map[string]string {
	var kept map[string]string
	for k, v := range all {
		if strings.HasPrefix(k, "cri-evictd.io/") || strings.HasPrefix(k, "kubernetes.io/config.") {
			if kept == nil {
				kept = make(map[string]string)
			}
			kept[k] = v
		}
	}
	return kept
}
