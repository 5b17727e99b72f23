package kubeletdiff

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// Where kubelet's directory, the pods' logs, images and writable layers are.
const (
	nodePath      = "/kubelet"
	logPath       = "/logs"
	imagePath     = "/images"
	containerPath = "/containers"
)

// The devices there are.
const (
	nodeDevice  uint64 = 1
	imageDevice uint64 = 2
)

// device is the one that a signal of the disks is about.
func (l Layout) device(sig eviction.Signal) uint64 {
	if s := l.source(sig); s == eviction.ImageFsAvailable || s == eviction.ImageFsInodesFree {
		return imageDevice
	}
	return nodeDevice
}

// disks are the file systems and tasks of the world as ours reads them.
type disks struct {
	w    *world
	ours *oursSide
}

// Read implements eviction.Filesystems.
func (d *disks) Read(_ context.Context, path string) (cgroupfs.Filesystem, error) {
	bytes, inodes := eviction.NodeFsAvailable, eviction.NodeFsInodesFree
	switch path {
	case nodePath, logPath:
	case imagePath:
		bytes, inodes = eviction.ImageFsAvailable, eviction.ImageFsInodesFree
	case containerPath:
		bytes, inodes = eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree
	default:
		return cgroupfs.Filesystem{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	available := d.w.available(ourView, bytes)
	return cgroupfs.Filesystem{
		Device: d.w.sc.Layout.device(bytes), Capacity: capacityOf(bytes), Free: available, Available: available,
		Inodes: capacityOf(inodes), InodesFree: d.w.available(ourView, inodes), At: time.Now(),
	}, nil
}

// imagePaths is eviction.SlowParts.ImagePaths.
func (d *disks) imagePaths(context.Context) (images, containers string, err error) {
	if d.w.sc.NoImageFs {
		return "", "", nil
	}
	return imagePath, containerPath, nil
}

// pids is eviction.SlowParts.PIDs.
func (d *disks) pids() (cgroupfs.PIDs, error) {
	most := capacityOf(eviction.PIDAvailable)
	return cgroupfs.PIDs{Max: most, Tasks: most - d.w.available(ourView, eviction.PIDAvailable)}, nil
}

// cgroupPIDs is eviction.SlowParts.CgroupPIDs.
func (d *disks) cgroupPIDs(path string) (uint64, error) {
	for _, i := range d.w.alive() {
		if cgroupPath(&d.w.sc.Pods[i]) != path {
			continue
		}
		if u, ok := d.w.use(i); ok && u.Measured {
			return u.Processes, nil
		}
		return 0, errNone
	}
	return 0, cgroupfs.ErrGone
}

// PodUsage implements eviction.PodUsageSource.
func (d *disks) PodUsage() map[string]*eviction.PodUsage {
	out := map[string]*eviction.PodUsage{}
	number := func(n uint64) eviction.UsageNumber { return eviction.UsageNumber{Value: n, Known: true, Exact: true} }
	for _, i := range d.w.alive() {
		u, ok := d.w.use(i)
		if !ok || !u.Measured {
			continue
		}
		layers := d.w.sc.Layout.device(eviction.ContainerFsAvailable)
		var parts []eviction.UsagePart
		for _, p := range []struct {
			what   string
			device uint64
			has    Files
		}{{eviction.PartWritableLayer, layers, u.Layer}, {eviction.PartLogs, nodeDevice, u.Logs}, {eviction.PartEmptyDir, nodeDevice, u.Volume}} {
			// Here all a pod has is there again when it has ended.
			parts = append(parts, eviction.UsagePart{
				What: p.what, Name: "a", Device: p.device, Freed: eviction.FreedByStop, Bytes: number(p.has.Bytes), Inodes: number(p.has.Inodes),
				Source: eviction.UsageFromWalk, At: time.Now(),
			})
		}
		out[d.w.sc.Pods[i].Name] = &eviction.PodUsage{Parts: parts}
	}
	return out
}

// Near implements eviction.PodUsageSource.
func (d *disks) Near([]uint64) {}

// Reclaim implements eviction.Reclaimer as kubelet collects garbage: all of what
// lies on the device, once the driver has let kubelet look.
func (d *disks) Reclaim(ctx context.Context, want eviction.ReclaimWant) (eviction.ReclaimedDisk, error) {
	a := &act{line: line{want.Signal, !want.Hard}, done: make(chan struct{})}
	select {
	case d.ours.acts <- a:
	case <-ctx.Done():
		return eviction.ReclaimedDisk{}, ctx.Err()
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return eviction.ReclaimedDisk{}, ctx.Err()
	}
	d.collect(want.Signal)
	return eviction.ReclaimedDisk{Text: "all of it"}, nil
}

// collect removes the garbage on the device of a signal.
func (d *disks) collect(sig eviction.Signal) {
	for kind := range garbageKinds {
		if d.w.sc.Layout.lies(kind, sig) {
			d.w.collect(ourView, kind)
		}
	}
}

// RemoveContainer implements eviction.ContainerRemover. What the pod had is
// available since its end.
func (d *disks) RemoveContainer(context.Context, string) error { return nil }
