package diskusage

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var t0 = time.Unix(1_700_000_000, 0)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a file of this size with its directories.
func put(t testing.TB, size int, path ...string) string {
	t.Helper()
	p := filepath.Join(path...)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.WriteFile(p, make([]byte, size), 0o644))
	return p
}

func mkdir(t testing.TB, path ...string) string {
	t.Helper()
	p := filepath.Join(path...)
	must(t, os.MkdirAll(p, 0o755))
	return p
}

// du is another way to the same numbers: the standard library's walk.
func du(t testing.TB, dir string) (bytes, inodes uint64) {
	t.Helper()
	seen := map[uint64]bool{}
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		if !seen[st.Ino] {
			seen[st.Ino] = true
			bytes += uint64(st.Blocks) * 512
			inodes++
		}
		return nil
	}))
	return bytes, inodes
}

// settle makes the filesystem decide about blocks, so that two readers see the
// same.
func settle(t testing.TB, dir string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer shut(fd)
	must(t, unix.Syncfs(fd))
}

// newTree is a walk through dir/below.
func newTree(base string, below ...string) *tree {
	tl := newTools(Places{})
	return &tree{
		root: root{kind: EmptyDir, name: "v", base: base, below: below}, opener: &tl.opener,
		links: &links{mem: tl.mem}, mem: tl.mem, buf: &tl.buf, stat: &tl.opener.stat,
	}
}

func newTools(p Places) *tools {
	return &tools{places: p, mem: newMemory(), devices: &devices{proc: p.Proc, clock: func() time.Time { return t0 }}}
}

func never() bool  { return false }
func always() bool { return true }

// walkAll walks to the end, in steps that are as small as they can be, with
// between run between them. It fails when there is no end.
func walkAll(t testing.TB, w *tree, between func(step int)) Part {
	t.Helper()
	before := openFds(t)
	for i := 0; ; i++ {
		if i > 500_000 {
			t.Fatal("the walk does not end")
		}
		if w.step(always) {
			break
		}
		if i == 3 {
			if now := openFds(t); now != before {
				t.Fatalf("%d descriptors between steps, %d before", now, before)
			}
		}
		if between != nil {
			between(i)
		}
	}
	p, ok := w.part()
	if !ok {
		t.Fatal("nothing there")
	}
	w.links.release()
	if w.mem.used != 0 {
		t.Errorf("%d bytes are still remembered", w.mem.used)
	}
	return p
}

func openFds(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func wantPart(t testing.TB, p Part, bytes, inodes uint64) {
	t.Helper()
	if p.Bytes.Value != bytes || p.Inodes.Value != inodes || !p.Bytes.Known || !p.Bytes.Exact || !p.Inodes.Exact || p.AtLeast || p.Why != "" {
		t.Errorf("%+v, want %d bytes %d inodes, exact", p, bytes, inodes)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// mountTmpfs mounts a small tmpfs for the test.
func mountTmpfs(t testing.TB, at string) {
	t.Helper()
	needRoot(t)
	mkdir(t, at)
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("a tmpfs cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

func deepPath(n int, name string) string {
	return strings.TrimSuffix(strings.Repeat(name+"/", n), "/")
}

func name(i int) string { return fmt.Sprintf("f%06d", i) }
