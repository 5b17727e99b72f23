package diskusage

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func stat(id, mountpoint string, bytes, inodes uint64, at time.Time) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: id},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: at.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: mountpoint},
			UsedBytes: &runtimeapi.UInt64Value{Value: bytes}, InodesUsed: &runtimeapi.UInt64Value{Value: inodes},
		},
	}
}

func TestLayersOf(t *testing.T) {
	asked := map[string]int{}
	find := func(dir string) (filesystem, error) {
		asked[dir]++
		if dir == "/gone" {
			return filesystem{}, os.ErrNotExist
		}
		return filesystem{device: 5, size: 1000}, nil
	}
	stats := []*runtimeapi.ContainerStats{
		stat("a", "/x/overlayfs", 100, 10, t0),
		stat("b", "/x/overlayfs", 200, 20, t0.Add(time.Hour)),
		stat("big", "/x/overlayfs", 1001, 1, t0),                                           // bugs.md B54: more than there is
		stat("dm", "/var/lib/containerd/io.containerd.snapshotter.v1.devmapper", 7, 1, t0), // B53
		stat("gone", "/gone", 7, 1, t0),                                                    // B56
		stat("nowhere", "", 7, 1, t0),
		stat("old", "/x/overlayfs", 1, 1, time.Unix(0, 0)),
		{Attributes: &runtimeapi.ContainerAttributes{Id: "none"}},
		{},
		nil,
		{Attributes: &runtimeapi.ContainerAttributes{Id: "half"}, WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: t0.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/x/overlayfs"}, InodesUsed: &runtimeapi.UInt64Value{Value: 3},
		}},
	}
	got := layersOf(stats, t0.Add(time.Minute), find)
	if l := got["a"]; l.Device != 5 || l.Bytes != exactly(100) || l.Inodes != exactly(10) || !l.At.Equal(t0) || l.Why != "" {
		t.Errorf("%+v", l)
	}
	if l := got["b"]; !l.At.Equal(t0.Add(time.Minute)) {
		t.Errorf("a sample of the future is of %v", l.At)
	}
	if l := got["big"]; l.Bytes.Known || l.Why == "" {
		t.Errorf("%+v", l)
	}
	for _, id := range []string{"dm", "gone", "nowhere"} {
		if l := got[id]; l.Device != 0 || l.Bytes != exactly(7) || l.Why == "" {
			t.Errorf("%s: %+v", id, l)
		}
	}
	if !strings.Contains(got["gone"].Why, os.ErrNotExist.Error()) {
		t.Errorf("%q", got["gone"].Why)
	}
	if l := got["half"]; l.Bytes.Known || l.Inodes != exactly(3) {
		t.Errorf("%+v", l)
	}
	if len(got) != 7 || asked["/x/overlayfs"] != 1 {
		t.Errorf("%d layers, asked %v", len(got), asked)
	}
}

// bugs.md B54: 300 GiB on a file system of 100 GiB are no number; layers that are
// shared were counted for each snapshot.
func TestCaseB54(t *testing.T) {
	const gib = 1 << 30
	find := func(string) (filesystem, error) { return filesystem{device: 5, size: 100 * gib}, nil }
	got := layersOf([]*runtimeapi.ContainerStats{stat("c", "/x/overlayfs", 300*gib, 7, t0)}, t0, find)["c"]
	if got.Bytes.Known || got.Inodes != exactly(7) || got.Device != 5 || got.Why == "" {
		t.Errorf("%+v", got)
	}
}

func TestFilesystemOf(t *testing.T) {
	dir := t.TempDir()
	dev, _ := deviceOf(dir)
	fs, err := filesystemOf(dir)
	if err != nil || fs.device != dev || fs.size == 0 {
		t.Errorf("%+v %v", fs, err)
	}
	if _, err := filesystemOf(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
