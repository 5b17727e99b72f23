package eviction

import (
	"context"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// SlowParts are what the signals of disk, inodes and PIDs are read and acted on
// with. Each part but the first four may be nil.
type SlowParts struct {
	// Filesystems reads a file system with a time limit.
	Filesystems Filesystems
	// ImagePaths asks the runtime where it keeps images and the writable layers of
	// containers; empty for a path it does not name.
	ImagePaths func(ctx context.Context) (images, containers string, err error)
	// PIDs reads the machine's tasks.
	PIDs func() (cgroupfs.PIDs, error)
	// CgroupPIDs is pids.current of a cgroup.
	CgroupPIDs func(path string) (uint64, error)
	// KubeletRoot is the directory nodefs is told by, PodLogs that of the pods'
	// logs.
	KubeletRoot, PodLogs string
	// Usage knows what pods have on disk; nil: of nobody.
	Usage PodUsageSource
	// Reclaim frees what nobody needs before a pod has to go; nil: nothing.
	Reclaim Reclaimer
	// Remove removes stopped containers of a victim, which gives their writable
	// layers back; nil: they are left to kubelet.
	Remove ContainerRemover
	// EndedAt is when a container ended; zero when it has not, or is not there. It
	// is for what a previous process had stopped and not removed; nil: that is left
	// to kubelet.
	EndedAt func(ctx context.Context, id string) (time.Time, error)
}

// Filesystems reads file systems (cgroupfs.StatfsReader): an answer or an error
// within a few seconds, and never more than one call per path that hangs.
type Filesystems interface {
	Read(ctx context.Context, path string) (cgroupfs.Filesystem, error)
}

// ContainerRemover removes containers that have ended; one that is not there is
// removed.
type ContainerRemover interface {
	RemoveContainer(ctx context.Context, id string) error
}

// Reclaimer frees disk space or inodes without ending anybody: dead containers
// and unused images.
type Reclaimer interface {
	// Reclaim frees what lies on the device of the pressed signal, step by step,
	// until want says that enough is there, nothing is left to free, or ctx ends. A
	// signal or layout for which it can do nothing is no error.
	Reclaim(ctx context.Context, want ReclaimWant) (ReclaimedDisk, error)
}

// ReclaimWant is what a Reclaimer is asked for.
type ReclaimWant struct {
	Signal Signal
	// Hard: the hard threshold is met. A soft one lets more things be.
	Hard bool
	// Device is st_dev of the pressed file system, Path a path on it.
	Device uint64
	Path   string
	// Need is threshold + minimum reclaim − available, in the signal's unit.
	Need uint64
	// Measure reads the signal anew: how much is still needed, 0 when it is
	// enough. An error is a number that is not known: stop.
	Measure func(ctx context.Context) (need uint64, err error)
}

// ReclaimedDisk is what a Reclaimer did.
type ReclaimedDisk struct {
	Containers int `json:"containers"`
	Images     int `json:"images"`
	// Freed is by how much available rose meanwhile, in the signal's unit.
	Freed uint64 `json:"freed"`
	// Text says in a sentence what was done or why nothing was.
	Text string `json:"text,omitempty"`
}

// did says whether anything was removed.
func (d *ReclaimedDisk) did() bool { return d.Containers+d.Images > 0 }

const (
	// diskEvery is how often the file systems are read, pidEvery the tasks; near a
	// threshold pidNear.
	diskEvery = 2 * time.Second
	pidEvery  = time.Second
	pidNear   = 100 * time.Millisecond
	// pathsEvery is how often the runtime is asked for its paths, pathsAgain after
	// it did not answer.
	pathsEvery = time.Minute
	pathsAgain = 5 * time.Second
	// pathsPatience bounds one question.
	pathsPatience = 2 * time.Second
	// StatfsLimit is how long a file system may take to answer: kubelet's limit.
	StatfsLimit = 2 * time.Second
)
