package eviction

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// tree opens the checked-in tree of cgroupfs with this name.
func tree(t *testing.T, name string) RealCgroups {
	t.Helper()
	dir := filepath.Join("..", "cgroupfs", "testdata", name)
	f, err := cgroupfs.Open(cgroupfs.Roots{Proc: filepath.Join(dir, "proc"), Cgroup: filepath.Join(dir, "cgroup")})
	if err != nil {
		t.Fatal(err)
	}
	return RealCgroups{FS: f}
}

// bugs.md B31 on the trees of both drivers and hierarchies.
func TestRealCgroupsFindPods(t *testing.T) {
	for name, freezes := range map[string]bool{"v1": true, "hybrid": true, "v2-cgroupfs": false, "v2-systemd": false} {
		t.Run(name, func(t *testing.T) {
			r := tree(t, name)
			if r.Freezes() != freezes {
				t.Errorf("freezes %v, want %v", r.Freezes(), freezes)
			}
			pods, err := r.Pods()
			if err != nil || len(pods) == 0 {
				t.Fatalf("%d pods, %v", len(pods), err)
			}
			for _, p := range pods {
				c, err := r.Open(p.Path)
				if err != nil {
					t.Errorf("%s: %v", p.Path, err)
					continue
				}
				if _, err := c.Usage(); err != nil {
					t.Errorf("%s: %v", p.Path, err)
				}
				if n, err := c.Kill(); err == nil || n > 0 {
					t.Errorf("%s: killed %d in a checked-in tree", p.Path, n)
				}
				if err := c.Close(); err != nil {
					t.Errorf("%s: %v", p.Path, err)
				}
			}
		})
	}
}

func TestRealCgroupsOpenWhatIsNotThere(t *testing.T) {
	if _, err := tree(t, "v2-cgroupfs").Open("/kubepods/podnone"); !errors.Is(err, cgroupfs.ErrGone) {
		t.Errorf("error %v, want ErrGone", err)
	}
}

func TestRealCgroupsFindContainers(t *testing.T) {
	r := tree(t, "v2-systemd")
	pods, err := r.Pods()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(pods, func(p cgroupfs.PodPath) bool { return p.QoS == cgroupfs.Burstable })
	const id = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff"
	got, ok := r.Container(pods[i].Path, id)
	if want := pods[i].Path + "/cri-containerd-" + id + ".scope"; !ok || got != want {
		t.Errorf("%q, %v; want %q", got, ok, want)
	}
	for _, none := range []string{"", "beef", "../" + id} {
		if got, ok := r.Container(pods[i].Path, none); ok {
			t.Errorf("container %q found at %q", none, got)
		}
	}
	if _, ok := r.Recover(pods[i].Path, inventory.Container{ID: "beef"}); ok {
		t.Error("numbers of a container that is not there")
	}
}

func TestForeignOfAnotherKindOfCgroup(t *testing.T) {
	if names, err := tree(t, "v1").Foreign(&fakeCgroup{}); names != nil || err != nil {
		t.Errorf("%q, %v", names, err)
	}
}

func TestCgroupOfThisProcess(t *testing.T) {
	f, err := cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if err != nil {
		t.Skipf("no cgroup hierarchy here: %v", err)
	}
	got, err := RealCgroups{FS: f}.CgroupOf(os.Getpid())
	if err == nil && !strings.HasPrefix(got, "/") || err != nil && !strings.Contains(err.Error(), "no memory cgroup below the root") {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := (RealCgroups{FS: f}).CgroupOf(1 << 30); err == nil {
		t.Errorf("cgroup %q of a process that is not there", got)
	}
}

// Only tmpfs counts: an emptyDir on disk is no memory.
func TestMemoryVolumes(t *testing.T) {
	root := t.TempDir()
	dirs := filepath.Join(root, "pods", "u1", "volumes", "kubernetes.io~empty-dir")
	for _, v := range []string{"disk", "memory"} {
		if err := os.MkdirAll(filepath.Join(dirs, v), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil || st.Type == unix.TMPFS_MAGIC {
		t.Skip("the temporary directory is itself a tmpfs")
	}
	r := RealCgroups{KubeletRoot: root}
	if got := r.MemoryVolumes("u1"); got != 0 {
		t.Errorf("%d bytes of volumes on disk", got)
	}
	if got := (RealCgroups{}).MemoryVolumes("u1"); got != 0 {
		t.Errorf("%d bytes without kubelet", got)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a tmpfs")
	}
	m := filepath.Join(dirs, "memory")
	if err := unix.Mount("tmpfs", m, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mount refused: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(m, 0) })
	if err := os.WriteFile(filepath.Join(m, "f"), make([]byte, 1*mi), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.MemoryVolumes("u1"); got < 1*mi || got > 1*mi+64<<10 {
		t.Errorf("%d bytes, want one MiB", got)
	}
}

// All pods together, and who has the memory when no pod does.
func TestRealCgroupsTogether(t *testing.T) {
	for name, path := range map[string]string{"v1": "/kubepods", "hybrid": "/kubepods", "v2-cgroupfs": "/kubepods", "v2-systemd": "/kubepods.slice"} {
		r := tree(t, name)
		p, err := r.OpenPods()
		if err != nil {
			t.Fatal(err)
		}
		if p.Path() != path {
			t.Errorf("%s: %s, want %s", name, p.Path(), path)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		all := r.TopLevel()
		if !slices.Contains(all, Consumer{Name: "/system.slice", Bytes: 400 * mi}) || !slices.Contains(all, Consumer{Name: path, Bytes: 900 * mi}) {
			t.Errorf("%s: %v", name, all)
		}
	}
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "cgroup.controllers"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := cgroupfs.Open(cgroupfs.Roots{Proc: empty, Cgroup: empty})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := (RealCgroups{FS: f}).OpenPods(); p != nil || !errors.Is(err, cgroupfs.ErrAbsent) {
		t.Errorf("no pods: %v, %v, want nil and ErrAbsent", p, err)
	}
}
