package diskusage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pidsOf is the processes of cgroups, from a table.
type pidsOf map[string][]int

func (p pidsOf) Pids(cgroup string, dst []int) ([]int, error) { return append(dst, p[cgroup]...), nil }

func newOpen(t *testing.T, dirs ...string) *openFiles {
	t.Helper()
	tl := newTools(Places{Proc: "/proc"})
	tl.devices.on = map[uint64]bool{}
	for _, d := range dirs {
		dev, ok := deviceOf(d)
		if !ok {
			t.Fatal(d)
		}
		tl.devices.on[dev] = true
	}
	return &openFiles{
		proc: "/proc", cgroups: []string{"/pod"}, procs: pidsOf{"/pod": {os.Getpid(), os.Getpid()}}, count: tl.devices.real,
		links: &links{mem: tl.mem}, buf: &tl.buf, stat: &tl.opener.stat,
	}
}

// deleted opens and deletes a file of this size.
func deleted(t *testing.T, size int, path ...string) *os.File {
	t.Helper()
	p := put(t, size, path...)
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	must(t, os.Remove(p))
	return f
}

// Files that were deleted and are still open count once, however many
// descriptors they have, in steps of one look as in one go (bugs.md B58).
func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	f := deleted(t, 1<<20, dir, "gone")
	for range 300 {
		fd, err := unix.Dup(int(f.Fd()))
		must(t, err)
		t.Cleanup(func() { shut(fd) })
	}
	deleted(t, 1<<16, dir, strings.Repeat("n", 200))
	// One that has another name is not gone, and one that is only called so is
	// not either.
	linked := put(t, 1<<20, dir, "linked")
	must(t, os.Link(linked, filepath.Join(dir, "other")))
	g, err := os.Open(linked)
	must(t, err)
	defer func() { _ = g.Close() }()
	must(t, os.Remove(linked))
	h, err := os.Open(put(t, 1<<20, dir, "called (deleted)"))
	must(t, err)
	defer func() { _ = h.Close() }()
	memfd, err := unix.MemfdCreate("m", 0)
	must(t, err)
	defer shut(memfd)
	must(t, unix.Ftruncate(memfd, 1<<20))
	settle(t, dir)
	var want uint64
	for _, fd := range []int{int(f.Fd())} {
		in, err := statFd(fd, new(unix.Statx_t))
		must(t, err)
		want += in.blocks
	}
	want += 1 << 16 / 512
	for _, stop := range []func() bool{never, always} {
		o := newOpen(t, dir)
		steps := 0
		for !o.step(stop) {
			if steps++; steps > 100000 {
				t.Fatal("no end")
			}
		}
		if len(o.found) != 1 || o.found[0].blocks != want || o.found[0].inodes != 2 || o.why != "" {
			t.Errorf("%+v %q, want %d blocks of 2", o.found, o.why, want)
		}
	}
}

// Files on devices that no pod's own part is on are somebody else's.
func TestOpenFilesElsewhere(t *testing.T) {
	dir := t.TempDir()
	deleted(t, 1<<20, dir, "gone")
	o := newOpen(t)
	o.step(never)
	if len(o.found) != 0 || o.why != "" {
		t.Errorf("%+v %q", o.found, o.why)
	}
}

// The look has an end, and says that it stopped.
func TestOpenFilesBounded(t *testing.T) {
	o := newOpen(t, t.TempDir())
	o.seen = maxDescriptors - 2
	if !o.step(never) || !strings.Contains(o.why, fmt.Sprint(maxDescriptors)) {
		t.Errorf("%q", o.why)
	}
	o = newOpen(t, t.TempDir())
	o.done = maxProcesses
	if !o.step(never) || !strings.Contains(o.why, "processes") {
		t.Errorf("%q", o.why)
	}
}

// A process that has ended is no failure; one that cannot be listed is said.
func TestOpenFilesOfNobody(t *testing.T) {
	o := newOpen(t)
	o.procs = pidsOf{"/pod": {1 << 30}}
	if !o.step(never) || o.why != "" {
		t.Errorf("%q", o.why)
	}
	o = newOpen(t)
	o.procs = failing{}
	if !o.step(never) || !strings.Contains(o.why, "cannot be listed") {
		t.Errorf("%q", o.why)
	}
}

type failing struct{}

func (failing) Pids(_ string, dst []int) ([]int, error) { return dst, os.ErrPermission }

// A file on an overlay lies where the overlay's writes go.
func TestOpenFilesOnOverlay(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	for _, d := range []string{"lower", "upper", "work", "root"} {
		mkdir(t, dir, d)
	}
	at := filepath.Join(dir, "root")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
		t.Skipf("no overlay can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	deleted(t, 1<<20, at, "gone")
	o := newOpen(t, dir)
	proc := fakeProc(t)
	o.count = (&devices{proc: proc, on: o1(t, dir), clock: newTools(Places{}).devices.clock}).real
	o.step(never)
	dev, _ := deviceOf(dir)
	if len(o.found) != 1 || o.found[0].device != dev || o.found[0].blocks*512 < 1<<20 {
		t.Errorf("%+v, want 1 MiB on %d", o.found, dev)
	}
}

func o1(t *testing.T, dir string) map[uint64]bool {
	t.Helper()
	dev, ok := deviceOf(dir)
	if !ok {
		t.Fatal(dir)
	}
	return map[uint64]bool{dev: true}
}

// fakeProc is a procfs whose first process sees our own mounts.
func fakeProc(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	dir := t.TempDir()
	mkdir(t, dir, "1")
	must(t, os.WriteFile(filepath.Join(dir, "1", "mountinfo"), b, 0o600))
	return dir
}
