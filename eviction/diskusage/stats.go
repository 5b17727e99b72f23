package diskusage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Stats is the part of the CRI client that tells the writable layers.
type Stats interface {
	ListContainerStats(ctx context.Context) ([]*runtimeapi.ContainerStats, error)
}

// filesystem is where a snapshotter's directory lies.
type filesystem struct {
	device uint64
	size   uint64 // bytes
}

// filesystemOf looks at a snapshotter's directory. It may wait for a disk.
func filesystemOf(path string) (filesystem, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return filesystem{}, fmt.Errorf("%s: %w", path, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return filesystem{}, fmt.Errorf("%s: %w", path, err)
	}
	return filesystem{device: st.Dev, size: fs.Blocks * uint64(fs.Bsize)}, nil
}

// elsewhere are the snapshotters whose directory holds no layers: those are in a
// pool that the kernel does not show as a filesystem (bugs.md B53).
func elsewhere(mountpoint string) bool {
	name := filepath.Base(mountpoint)
	return strings.HasSuffix(name, ".devmapper") || strings.HasSuffix(name, ".zfs")
}

// layersOf takes the writable layers out of the runtime's stats, by container.
// find looks at a directory; each is asked about once.
func layersOf(stats []*runtimeapi.ContainerStats, received time.Time, find func(string) (filesystem, error)) map[string]Layer {
	type answer struct {
		fs  filesystem
		why string
	}
	known := map[string]answer{}
	where := func(dir string) answer {
		a, ok := known[dir]
		if ok {
			return a
		}
		switch {
		case !filepath.IsAbs(dir):
			a.why = "the runtime does not tell where it lies"
		case elsewhere(dir):
			a.why = "it lies in a pool that is no filesystem"
		default:
			var err error
			if a.fs, err = find(dir); err != nil {
				a.why = fmt.Sprintf("where it lies cannot be told: %v", err)
			}
		}
		known[dir] = a
		return a
	}
	out := make(map[string]Layer, len(stats))
	for _, s := range stats {
		id, w := s.GetAttributes().GetId(), s.GetWritableLayer()
		if id == "" || w == nil || w.GetTimestamp() <= 0 {
			continue
		}
		a := where(w.GetFsId().GetMountpoint())
		l := Layer{Device: a.fs.device, Why: a.why, At: time.Unix(0, w.GetTimestamp())}
		if l.At.After(received) {
			l.At = received
		}
		l.Bytes = number(w.GetUsedBytes())
		l.Inodes = number(w.GetInodesUsed())
		if size := a.fs.size; size > 0 && l.Bytes.Value > size {
			l.Bytes, l.Why = Number{}, "the runtime says more than the filesystem has"
		}
		out[id] = l
	}
	return out
}

func number(v *runtimeapi.UInt64Value) Number {
	if v == nil {
		return Number{}
	}
	return Number{Value: v.GetValue(), Known: true, Exact: true}
}
