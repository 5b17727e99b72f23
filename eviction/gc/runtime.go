package gc

import (
	"context"
	"errors"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// Runtime is what the Collector asks and tells the runtime. What is to be removed
// and is not there counts as removed.
type Runtime interface {
	List(ctx context.Context) (Listing, error)
	Images(ctx context.Context) ([]Image, error)
	// ConfiguredSandboxImages are those the runtime's configuration names; none
	// when it names none.
	ConfiguredSandboxImages(ctx context.Context) ([]string, error)
	// SandboxImage is the image one sandbox was made of; empty when the runtime
	// does not say. ErrNoSuch: the sandbox is gone.
	SandboxImage(ctx context.Context, sandboxID string) (string, error)
	// MountedImages are the images that one container mounts as volumes. ErrNoSuch:
	// it is gone.
	MountedImages(ctx context.Context, containerID string) ([]string, error)
	// ResolveImage returns the ID of the image of that name, empty for none.
	ResolveImage(ctx context.Context, name string) (id string, err error)

	RemoveContainer(ctx context.Context, id string) error
	// RemoveSandbox stops and removes a sandbox that is not ready.
	RemoveSandbox(ctx context.Context, id string) error
	RemoveImage(ctx context.Context, id string) error
}

// ErrNoSuch is for Runtime: what was asked about is not there (any more).
var ErrNoSuch = errors.New("not there any more")

// Reservations keep an image from being pulled or used while it is removed.
type Reservations interface {
	// Reserve returns once nobody can pull or use an image with one of these names
	// until release is called, or for limit at most. ErrWanted: somebody does, or
	// did within quiet. Any other error: it is not known, as without a proxy.
	Reserve(ctx context.Context, names []string, quiet, limit time.Duration) (release func(), err error)
}

// ErrWanted says that an image is being pulled or used, or was a short while ago.
var ErrWanted = errors.New("it is wanted")

// Devices are where removals free something.
type Devices struct {
	// Images and Containers are st_dev of the file systems with the images and with
	// the writable layers, ImagesPath and ContainersPath a path on each.
	Images, Containers         uint64
	ImagesPath, ContainersPath string
}

// Consumer is who occupies space that no removal gives back.
type Consumer struct {
	Name   string
	Amount uint64 // in the unit that was asked for
}

// Settings are the Collector's; Options.Settings returns those in force.
type Settings struct {
	// High and Low are imageGCHighThresholdPercent and imageGCLowThresholdPercent.
	High, Low int
	// MinAge and MaxAge are imageMinimumGCAge and imageMaximumGCAge; MaxAge 0:
	// never.
	MinAge, MaxAge time.Duration
	Keep           AllowList
	// Configured: somebody wrote one of the keys of image GC.
	Configured bool
}

// Options wire a Collector. All functions may be called at any time from any
// goroutine.
type Options struct {
	Runtime Runtime
	// Reservations are the proxy's.
	Reservations Reservations
	Uses         *Uses
	// Save keeps the uses; nil: nobody does.
	Save func(map[string]Use) error
	// Pods is the inventory, Gone says that a pod has ended for good. Held are the
	// UIDs of those that were evicted, or are being, and may not start.
	Pods func() *inventory.Snapshot
	Gone func(uid string) bool
	Held func() map[string]bool
	// Devices asks the runtime for its paths and looks at them.
	Devices func(ctx context.Context) (Devices, error)
	// Filesystem reads the file system of a path.
	Filesystem func(ctx context.Context, path string) (cgroupfs.Filesystem, error)
	// Consumers are who occupies most of a device, the largest first.
	Consumers func(device uint64, unit eviction.Unit) []Consumer
	// Acts says whether anything may be removed now: not in mode observe, nor in a
	// pause.
	Acts func() bool
	// Kubelet says whether there is a kubelet on this node: without one nobody may
	// be there to pull an image again (design §8).
	Kubelet  func() bool
	Settings func() Settings
	Clock    func() time.Time
}
