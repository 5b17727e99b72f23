package gc

import (
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// ContainerState is CRI's.
type ContainerState uint8

// The states. Unknown is also that of a container the runtime lost sight of.
const (
	Unknown ContainerState = iota
	Created
	Running
	Exited
)

// String names the state as CRI does, in lower case.
func (s ContainerState) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	}
	return "unknown"
}

// Sandbox is one entry of ListPodSandbox.
type Sandbox struct {
	ID      string
	Pod     inventory.Ref
	Attempt uint32
	Ready   bool
	Created time.Time
}

// Container is one entry of ListContainers.
type Container struct {
	ID, SandboxID, Name string
	Attempt             uint32
	State               ContainerState
	Created             time.Time
	// Images are all the ways in which the runtime names its image: ID, reference,
	// digest.
	Images []string
}

// Listing is what the runtime has.
type Listing struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// Image is one entry of ListImages.
type Image struct {
	ID string
	// Names are its tags and digests.
	Names []string
	// Size is the runtime's, in bytes: layers that images share are in each, and
	// containerd counts them packed. It is shown and never added up.
	Size   uint64
	Pinned bool
}
