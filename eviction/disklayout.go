package eviction

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// Unit is what a signal's numbers count.
type Unit string

// The units.
const (
	Bytes  Unit = "bytes"
	Inodes Unit = "inodes"
	Tasks  Unit = "PIDs" // processes and threads
)

// Unit returns the unit of the signal's numbers.
func (s Signal) Unit() Unit {
	switch s {
	case NodeFsInodesFree, ImageFsInodesFree, ContainerFsInodesFree:
		return Inodes
	case PIDAvailable:
		return Tasks
	}
	return Bytes
}

// Memory says whether the signal is the fast half's.
func (s Signal) Memory() bool { return s == MemoryAvailable || s == AllocatableMemoryAvailable }

// Reading is one reading of a disk or PID signal, in the signal's unit.
type Reading struct {
	// At is when it was read; zero while it is not known, and Problem says why.
	At                  time.Time
	Available, Capacity uint64
	// Device is st_dev of the file system it is about, Path a path on it; none for
	// PIDs.
	Device uint64
	Path   string
	// Absent: this machine has no such number, as on a file system without a table
	// of inodes. That is no failure.
	Absent bool
	// SameAs is the signal that this one is identical to in this layout, thresholds
	// included; it then decides alone.
	SameAs  Signal
	Problem string
}

// Layout says how the file systems of node, images and containers lie.
type Layout string

// The layouts, as kubelet knows them (Kubernetes 1.37,
// pkg/kubelet/eviction/eviction_manager.go), and one more.
const (
	LayoutUnknown   Layout = "unknown"
	LayoutSingle    Layout = "single"    // all on one
	LayoutDedicated Layout = "dedicated" // images and writable layers on one of their own
	LayoutSplit     Layout = "split"     // images on one of their own, writable layers with the node
	LayoutThree     Layout = "separate"  // each on one of its own
)

// fsRead is one path that was looked at. An empty path was not asked for.
type fsRead struct {
	path string
	fs   cgroupfs.Filesystem
	err  error
}

func (r *fsRead) known() bool { return r.path != "" && r.err == nil }

// diskInput is what the signals of the disks are made of. imagesErr is why the
// runtime did not name its paths.
type diskInput struct {
	node, logs, images, containers fsRead
	imagesErr                      error
}

// layout of what could be read.
func (in *diskInput) layout() Layout {
	if !in.node.known() || !in.images.known() {
		return LayoutUnknown
	}
	node, images, containers := in.node.fs.Device, in.images.fs.Device, in.images.fs.Device
	if in.containers.known() {
		containers = in.containers.fs.Device
	}
	switch {
	case images == node && containers == node:
		return LayoutSingle
	case containers == images:
		return LayoutDedicated
	case containers == node:
		return LayoutSplit
	}
	return LayoutThree
}

// containerSource is the signal whose thresholds the containerfs one has: they
// are never a user's own (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go
// UpdateContainerFsThresholds).
func (l Layout) containerSource(s Signal) Signal {
	inodes := s.Unit() == Inodes
	switch {
	case l == LayoutSingle || l == LayoutSplit:
		if inodes {
			return NodeFsInodesFree
		}
		return NodeFsAvailable
	case inodes:
		return ImageFsInodesFree
	}
	return ImageFsAvailable
}

// errNoPath is a runtime that names no image file system.
var errNoPath = errors.New("the runtime names no image file system")

// readings makes the six signals of the disks. values are the thresholds, by
// which the worse of node and logs is told.
func (in *diskInput) readings(values map[Signal][]Threshold) map[Signal]Reading {
	out := map[Signal]Reading{}
	layout := in.layout()
	for _, s := range []Signal{NodeFsAvailable, NodeFsInodesFree} {
		out[s] = in.nodeFs(s.Unit() == Inodes, values[s])
	}
	images := in.images
	if in.imagesErr != nil {
		images.err = in.imagesErr
	} else if images.path == "" {
		images.err = errNoPath
	} else if pooled(images.path) {
		// The path is that of its metadata, on the host's own file system.
		images.err = errors.New("the space of this snapshotter's pool cannot be seen by statfs")
	}
	containers := in.containers
	if containers.path == "" || in.imagesErr != nil || pooled(containers.path) {
		containers = images
	}
	for _, s := range []Signal{ImageFsAvailable, ImageFsInodesFree} {
		out[s] = images.reading(s.Unit() == Inodes)
	}
	for _, s := range []Signal{ContainerFsAvailable, ContainerFsInodesFree} {
		r := containers.reading(s.Unit() == Inodes)
		if layout != LayoutThree {
			r.SameAs = layout.containerSource(s)
		}
		out[s] = r
	}
	return out
}

// pooled names snapshotters that keep their data where statfs of the path they
// name does not see it (bugs.md B53).
func pooled(path string) bool { return strings.Contains(path, "snapshotter.v1.devmapper") }

// reading is what one file system says in one unit. Numbers that make no sense
// are unknown, never 0.
func (r *fsRead) reading(inodes bool) Reading {
	out := Reading{Path: r.path}
	if r.err != nil {
		out.Problem = r.err.Error()
		return out
	}
	out.Device = r.fs.Device
	out.Available, out.Capacity = r.fs.Available, r.fs.Capacity
	if inodes {
		out.Available, out.Capacity = r.fs.InodesFree, r.fs.Inodes
		out.Absent = r.fs.Inodes == 0
	}
	switch {
	case out.Absent:
	case out.Capacity == 0 || out.Available > out.Capacity:
		out.Available, out.Capacity = 0, 0
		out.Problem = "the file system gives numbers that make no sense"
	default:
		out.At = r.fs.At
	}
	return out
}

// nodeFs is the file system of kubelet's root directory or, where that lies on
// another one, that of the pods' logs: the one that is worse off by these
// thresholds. While the logs' one cannot be read the node's counts only where it
// is short itself: nobody knows that all is well.
func (in *diskInput) nodeFs(inodes bool, values []Threshold) Reading {
	node := in.node.reading(inodes)
	if in.logs.path == "" || errors.Is(in.logs.err, fs.ErrNotExist) {
		return node // nobody has made it yet
	}
	if in.logs.err != nil {
		if !node.At.IsZero() && margin(&node, values) >= 0 {
			node.At, node.Problem = time.Time{}, in.logs.err.Error()
		}
		return node
	}
	if in.logs.fs.Device == in.node.fs.Device && in.node.err == nil {
		return node
	}
	logs := in.logs.reading(inodes)
	if node.At.IsZero() || logs.At.IsZero() {
		if !logs.At.IsZero() && (margin(&logs, values) < 0 || node.Absent) || node.Absent {
			return logs
		}
		return node
	}
	if a, b := margin(&logs, values), margin(&node, values); a < b || a == b && logs.Available < node.Available {
		return logs
	}
	return node
}

// margin is how far available lies above (below: negative) the highest of the
// thresholds.
func margin(r *Reading, values []Threshold) int64 {
	const most = 1 << 62
	var limit uint64
	for i := range values {
		limit = max(limit, values[i].Resolve(r.Capacity))
	}
	return int64(min(r.Available, most)) - int64(min(limit, most))
}
