// Package eviction decides which pod has to go and carries the decision out.
//
// The core is pure: thresholds, the reading of memory, ranking, pacing and
// release are functions of values and of a time that is passed in. The fast
// half (Sampler, killer) and the slow half (Engine) drive it.
package eviction

// Signal names a resource of the node that is watched. The names are
// kubelet's (pkg/kubelet/eviction/api/types.go).
type Signal string

// The signals of design §7.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFsAvailable            Signal = "nodefs.available"
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available"
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	ContainerFsAvailable       Signal = "containerfs.available"
	ContainerFsInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// Signals returns every signal kubelet knows, in a fixed order.
func Signals() []Signal {
	return []Signal{
		MemoryAvailable, AllocatableMemoryAvailable,
		NodeFsAvailable, NodeFsInodesFree,
		ImageFsAvailable, ImageFsInodesFree,
		ContainerFsAvailable, ContainerFsInodesFree,
		PIDAvailable,
	}
}
