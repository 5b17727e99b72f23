package eviction

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// fsOf is a file system of 100 GiB and 1,000,000 inodes with this percentage of
// both free.
func fsOf(path string, device, percent uint64) fsRead {
	return fsRead{path: path, fs: cgroupfs.Filesystem{
		Device: device, Capacity: 100 * gi, Free: percent * gi, Available: percent * gi,
		Inodes: 1_000_000, InodesFree: percent * 10_000, At: t0,
	}}
}

func threshold(t *testing.T, text string) Threshold {
	t.Helper()
	th, err := ParseThreshold(text)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

func TestLayouts(t *testing.T) {
	hung := fsRead{path: "/img", err: cgroupfs.ErrHangs}
	for _, c := range []struct {
		name                     string
		node, images, containers fsRead
		want                     Layout
		containerfs              Signal
		containerDevice          uint64
	}{
		{"single", fsOf("/k", 1, 50), fsOf("/i", 1, 50), fsOf("/i", 1, 50), LayoutSingle, NodeFsAvailable, 1},
		{"dedicated", fsOf("/k", 1, 50), fsOf("/i", 2, 50), fsOf("/i", 2, 50), LayoutDedicated, ImageFsAvailable, 2},
		{"the runtime names no containers' one", fsOf("/k", 1, 50), fsOf("/i", 2, 50), fsRead{}, LayoutDedicated, ImageFsAvailable, 2},
		{"split", fsOf("/k", 1, 50), fsOf("/i", 3, 50), fsOf("/c", 1, 50), LayoutSplit, NodeFsAvailable, 1},
		{"three", fsOf("/k", 1, 50), fsOf("/i", 2, 50), fsOf("/c", 3, 50), LayoutThree, "", 3},
		{"images hang", fsOf("/k", 1, 50), hung, fsRead{}, LayoutUnknown, ImageFsAvailable, 0},
	} {
		in := diskInput{node: c.node, images: c.images, containers: c.containers}
		got := in.readings(nil)[ContainerFsAvailable]
		if in.layout() != c.want || got.SameAs != c.containerfs || got.Device != c.containerDevice {
			t.Errorf("%s: %s, containerfs on %d as %q; want %s, %d, %q", c.name, in.layout(), got.Device, got.SameAs, c.want, c.containerDevice, c.containerfs)
		}
		if node := in.readings(nil)[NodeFsAvailable]; node.At.IsZero() {
			t.Errorf("%s: nodefs is unknown: %s", c.name, node.Problem)
		}
	}
}

// What cannot be read is unknown, and so is what makes no sense: never healthy,
// never empty.
func TestUnknownReadings(t *testing.T) {
	no := func(change func(f *cgroupfs.Filesystem)) fsRead {
		r := fsOf("/i", 2, 50)
		change(&r.fs)
		return r
	}
	gone := fsRead{path: "/i", err: fmt.Errorf("/i: %w", fs.ErrNotExist)}
	for _, c := range []struct {
		name                  string
		images                fsRead
		imagesErr             error
		available, inodesFree string // known, absent, or unknown
	}{
		{"well", fsOf("/i", 2, 50), nil, "known", "known"},
		{"no table of inodes", no(func(f *cgroupfs.Filesystem) { f.Inodes, f.InodesFree = 0, 0 }), nil, "known", "absent"},
		{"capacity 0", no(func(f *cgroupfs.Filesystem) { f.Capacity, f.Available = 0, 0 }), nil, "unknown", "known"},
		{"more than there is", no(func(f *cgroupfs.Filesystem) { f.Available = f.Capacity + 1 }), nil, "unknown", "known"},
		{"hung", fsRead{path: "/i", err: cgroupfs.ErrHangs}, nil, "unknown", "unknown"},
		{"not there", gone, nil, "unknown", "unknown"},
		{"the runtime does not say", fsRead{}, errors.New("unavailable"), "unknown", "unknown"},
		{"the runtime names none", fsRead{}, nil, "unknown", "unknown"},
		{"devmapper", fsOf("/var/lib/containerd/io.containerd.snapshotter.v1.devmapper", 1, 70), nil, "unknown", "unknown"},
	} {
		in := diskInput{node: fsOf("/k", 1, 50), images: c.images, imagesErr: c.imagesErr}
		for s, want := range map[Signal]string{ImageFsAvailable: c.available, ImageFsInodesFree: c.inodesFree} {
			r := in.readings(nil)[s]
			got := "unknown"
			switch {
			case r.Absent:
				got = "absent"
			case !r.At.IsZero():
				got = "known"
			}
			if got != want || got == "unknown" && r.Problem == "" {
				t.Errorf("%s: %s is %s (%q), want %s", c.name, s, got, r.Problem, want)
			}
		}
		if r := in.readings(nil)[NodeFsAvailable]; r.At.IsZero() {
			t.Errorf("%s: nodefs is unknown as well: %s", c.name, r.Problem)
		}
	}
}

// A log directory on a device of its own counts as nodefs, the worse one by the
// threshold wins.
func TestLogsCountAsNodeFs(t *testing.T) {
	share, amount := []Threshold{threshold(t, "12%")}, []Threshold{threshold(t, "10Gi")}
	small := fsOf("/logs", 2, 50) // 10 GiB, half of it free
	small.fs.Capacity, small.fs.Available = 10*gi, 5*gi
	absent := fsRead{path: "/logs", err: fmt.Errorf("/logs: %w", fs.ErrNotExist)}
	hung := fsRead{path: "/logs", err: cgroupfs.ErrHangs}
	for _, c := range []struct {
		name       string
		node, logs fsRead
		values     []Threshold
		device     uint64
		known      bool
	}{
		{"logs are worse", fsOf("/k", 1, 50), fsOf("/logs", 2, 5), share, 2, true},
		{"node is worse", fsOf("/k", 1, 5), fsOf("/logs", 2, 50), share, 1, true},
		{"same device", fsOf("/k", 1, 50), fsOf("/logs", 1, 50), share, 1, true},
		{"not made yet", fsOf("/k", 1, 50), absent, share, 1, true},
		{"by share the small one is nearer", fsOf("/k", 1, 20), small, share, 2, true},
		{"by amount it is short", fsOf("/k", 1, 20), small, amount, 2, true},
		{"logs hang, node is well", fsOf("/k", 1, 50), hung, share, 1, false},
		{"logs hang, node is short", fsOf("/k", 1, 5), hung, share, 1, true},
		{"node hangs, logs are short", fsRead{path: "/k", err: cgroupfs.ErrHangs}, fsOf("/logs", 2, 5), share, 2, true},
		{"node hangs, logs are well", fsRead{path: "/k", err: cgroupfs.ErrHangs}, fsOf("/logs", 2, 50), share, 0, false},
	} {
		in := diskInput{node: c.node, logs: c.logs}
		got := in.readings(map[Signal][]Threshold{NodeFsAvailable: c.values})[NodeFsAvailable]
		if got.Device != c.device || got.At.IsZero() == c.known {
			t.Errorf("%s: device %d, known %v; want %d, %v (%s)", c.name, got.Device, !got.At.IsZero(), c.device, c.known, got.Problem)
		}
	}
}

// bugs.md B50: the node is kubelet's root directory, not the machine's.
func TestCaseB50(t *testing.T) {
	in := diskInput{node: fsOf("/var/lib/kubelet", 2, 60), images: fsOf("/var/lib/containerd", 2, 60)}
	node := in.readings(nil)[NodeFsAvailable]
	if node.Device != 2 || Met(node.Available, threshold(t, "12%").Resolve(node.Capacity)) {
		t.Errorf("nodefs on device %d with %d bytes: / (device 1, 96 %% full) is nobody's concern", node.Device, node.Available)
	}
}

// bugs.md B53: a devmapper pool is not seen by statfs of the path the runtime
// names: unknown, never healthy.
func TestCaseB53(t *testing.T) {
	in := diskInput{node: fsOf("/var/lib/kubelet", 1, 70), images: fsOf("/var/lib/containerd/io.containerd.snapshotter.v1.devmapper", 1, 70)}
	if r := in.readings(nil)[ImageFsAvailable]; !r.At.IsZero() || r.Problem == "" {
		t.Errorf("%+v: want unknown, with a reason", r)
	}
}

// bugs.md B56: a snapshotter's path that is not there is unknown and has no
// capacity of 0.
func TestCaseB56(t *testing.T) {
	in := diskInput{node: fsOf("/var/lib/kubelet", 1, 70), images: fsRead{path: "/gone", err: fs.ErrNotExist}}
	r := in.readings(nil)[ImageFsAvailable]
	var w watch
	w.armed = true
	w.round(SoftThreshold{Signal: ImageFsAvailable, Amount: 17 * gi}, observation{At: r.At, Available: r.Available}, t0.Add(time.Second))
	if !r.At.IsZero() || w.past || !w.lastMet.IsZero() {
		t.Errorf("%+v, past %v: an unknown signal is not met", r, w.past)
	}
}
