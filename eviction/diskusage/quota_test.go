package diskusage

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestParseProjects(t *testing.T) {
	got := parseProjects([]byte("# comment\n7:/a:b\n\n8:relative\nx:/c\n0:/d\n9:/e\n10 :/f\r\n11:/g\n11:/h\n12:/i\n13:/i\n14:/j\n14:/j\n99999999999:/k\n15:/last"))
	want := projects{"/a:b": 7, "/e": 9, "/f": 10, "/j": 14, "/last": 15}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestParseOverlays(t *testing.T) {
	got := parseOverlays([]byte("1 2 0:45 / /run/x\\040y rw shared:3 - overlay overlay rw,lowerdir=/l,upperdir=/u\\040p,workdir=/w\n" +
		"1 2 0:46 / /y rw - overlay overlay ro,lowerdir=/l\n1 2 0:47 / /z rw - tmpfs tmpfs rw,upperdir=/no\nbroken\n" +
		"1 2 259:300 / /z rw - overlay overlay rw,upperdir=relative\n1 2 259:301 / /z rw - overlay overlay rw,upperdir=/v"))
	want := map[uint64]string{unix.Mkdev(0, 45): "/u p", unix.Mkdev(259, 301): "/v"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The structures have the kernel's sizes.
func TestQuotaLayout(t *testing.T) {
	if n := unsafe.Sizeof(fsxattr{}); n != 28 {
		t.Errorf("struct fsxattr has %d bytes", n)
	}
	if n := unsafe.Sizeof(dqblk{}); n != 72 || unsafe.Offsetof(dqblk{}.space) != 16 || unsafe.Offsetof(dqblk{}.inodes) != 40 || unsafe.Offsetof(dqblk{}.valid) != 64 {
		t.Errorf("struct if_dqblk has %d bytes", n)
	}
}

// loopExt4 mounts a small ext4 of its own; features as for mkfs.ext4 -O.
func loopExt4(t *testing.T, features string, options string) string {
	t.Helper()
	needRoot(t)
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("no mkfs.ext4 here")
	}
	dir := t.TempDir()
	img, at := filepath.Join(dir, "img"), mkdir(t, dir, "mnt")
	must(t, os.WriteFile(img, nil, 0o600))
	must(t, os.Truncate(img, 64<<20))
	args := []string{"-q", "-F"}
	if features != "" {
		args = append(args, "-O", features, "-E", "quotatype=prjquota")
	}
	if out, err := exec.Command(mkfs, append(args, img)...).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	out, err := exec.Command("mount", "-o", "loop"+options, img, at).CombinedOutput()
	if err != nil {
		t.Skipf("this kernel mounts no ext4 with %q (project quotas need CONFIG_QFMT_V2): %s", features, strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return at
}

func setProject(t *testing.T, dir string, project uint32) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer shut(fd)
	const set = 0x401c5820 // FS_IOC_FSSETXATTR
	x := fsxattr{xflags: xflagProjInherit, projid: project}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), set, uintptr(unsafe.Pointer(&x))); errno != 0 {
		t.Fatal(errno)
	}
}

// A filesystem without projects is walked, whatever a file says of it; st_blocks
// are believed and not sizes.
func TestExt4WithoutQuota(t *testing.T) {
	at := loopExt4(t, "", "")
	put(t, 300000, at, "pods", "v", "file")
	f, err := os.Create(filepath.Join(at, "pods", "v", "sparse"))
	must(t, err)
	must(t, f.Truncate(1<<40))
	_, err = f.WriteAt([]byte{1}, 1<<30)
	must(t, err)
	must(t, f.Close())
	settle(t, at)
	bytes, inodes := du(t, filepath.Join(at, "pods", "v"))
	w := newTree(filepath.Join(at, "pods"), "v")
	w.quota = projects{filepath.Join(at, "pods", "v"): 7}.usage
	p := walkAll(t, w, nil)
	wantPart(t, p, bytes, inodes)
	if p.Source != FromWalk || bytes > 1<<20 {
		t.Errorf("%+v", p)
	}
}

// bugs.md B67: a project that kubelet noted for this directory is asked about and
// not walked; one that the directory has and nobody noted, or another one, is not
// trusted. None is ever set.
func TestCaseB67Ext4ProjectQuota(t *testing.T) {
	at := loopExt4(t, "quota,project", ",prjquota")
	base := filepath.Join(at, "pods")
	v := mkdir(t, base, "v")
	setProject(t, v, 1048578)
	put(t, 300000, v, "dir", "file")
	settle(t, at)
	bytes, inodes := du(t, v)
	for _, c := range []struct {
		name   string
		noted  projects
		source Source
	}{
		{"noted", projects{v: 1048578}, FromQuota},
		{"noted with another", projects{v: 1048577}, FromWalk},
		{"not noted", nil, FromWalk},
	} {
		w := newTree(base, "v")
		w.quota = c.noted.usage
		p := walkAll(t, w, nil)
		if p.Source != c.source {
			t.Errorf("%s: %+v", c.name, p)
		}
		wantPart(t, p, bytes, inodes)
	}
	for dir, want := range map[string]uint32{v: 1048578, base: 0} {
		f, err := os.Open(dir)
		must(t, err)
		if got, _, ok := projectOf(int(f.Fd())); !ok || got != want {
			t.Errorf("project %d of %s, want %d", got, dir, want)
		}
		must(t, f.Close())
	}
	// What is deleted and open is in the quota, and taken out of the volume's part.
	f := deleted(t, 1<<20, v, "gone")
	must(t, f.Sync())
	w := newTree(base, "v")
	w.quota = projects{v: 1048578}.usage
	p := walkAll(t, w, nil)
	o := newOpen(t, v)
	o.quotas = true
	o.step(never)
	pod, _ := merge(&inputs{trees: []Part{p}, open: o.found, openAt: t0}, t0, 1)
	if e := only(t, pod, EmptyDir); e.Bytes.Value != bytes || e.Inodes.Value != inodes {
		t.Errorf("%+v, want %d bytes %d inodes", e, bytes, inodes)
	}
	if d := only(t, pod, DeletedFiles); d.Bytes.Value != 1<<20 || d.Inodes.Value != 1 {
		t.Errorf("%+v", d)
	}
}
