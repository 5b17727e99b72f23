package diskusage

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// One pass and steps of one inode each find what another walk finds, on kernels
// with and without openat2.
func TestTreeCountsBlocksAndInodes(t *testing.T) {
	base := t.TempDir()
	v := mkdir(t, base, "u1", "v")
	for i := range 300 {
		put(t, i*37, v, "wide", name(i))
	}
	for i := range 40 {
		put(t, 5000, v, "dirs", name(i), "in", "file")
	}
	put(t, 100, v, deepPath(60, "d"), "bottom")
	must(t, os.Link(filepath.Join(v, "wide", name(7)), filepath.Join(v, "dirs", "again")))
	must(t, os.Symlink("/etc", filepath.Join(v, "link")))
	must(t, unix.Mkfifo(filepath.Join(v, "fifo"), 0o600))
	// A sparse file has a size and no blocks.
	f, err := os.Create(filepath.Join(v, "sparse"))
	must(t, err)
	must(t, f.Truncate(1<<40))
	must(t, f.Close())
	settle(t, v)
	bytes, inodes := du(t, v)
	if bytes > 1<<30 {
		t.Fatalf("du itself says %d", bytes)
	}
	for _, old := range []bool{false, true} {
		w := newTree(base, "u1", "v")
		w.opener.old = old
		if !w.step(never) {
			t.Fatal("one step without an end to it is not the whole walk")
		}
		p, _ := w.part()
		wantPart(t, p, bytes, inodes)
		w = newTree(base, "u1", "v")
		w.opener.old = old
		wantPart(t, walkAll(t, w, nil), bytes, inodes)
	}
}

// bugs.md B60: the same files say the same each time.
func TestCaseB60(t *testing.T) {
	base := t.TempDir()
	put(t, 167936, base, "logs", "c", "0.log")
	settle(t, base)
	bytes, inodes := du(t, filepath.Join(base, "logs"))
	for range 10 {
		wantPart(t, walkAll(t, newTree(base, "logs"), nil), bytes, inodes)
	}
}

func TestTreeOfAFile(t *testing.T) {
	base := t.TempDir()
	put(t, 10000, base, "u1", "etc-hosts")
	settle(t, base)
	bytes, _ := du(t, filepath.Join(base, "u1", "etc-hosts"))
	wantPart(t, walkAll(t, newTree(base, "u1", "etc-hosts"), nil), bytes, 1)
}

// What is not there, or is a link to elsewhere, is no part.
func TestTreeThatIsNotThere(t *testing.T) {
	base := t.TempDir()
	put(t, 10000, base, "secret", "file")
	must(t, os.Symlink("secret", filepath.Join(base, "link")))
	must(t, os.Symlink(filepath.Join(base, "secret", "file"), filepath.Join(base, "flink")))
	for _, below := range [][]string{{"none"}, {"none", "deeper"}, {"link"}, {"link", "file"}, {"flink"}} {
		for _, old := range []bool{false, true} {
			w := newTree(base, below...)
			w.opener.old = old
			if !w.step(never) {
				t.Fatalf("%q: no end", below)
			}
			if p, ok := w.part(); ok {
				t.Errorf("%q is a part: %+v", below, p)
			}
		}
	}
	w := newTree(filepath.Join(base, "nobase"), "x")
	w.step(never)
	if p, ok := w.part(); ok {
		t.Errorf("without a base: %+v", p)
	}
}

// bugs.md B64: mounts in the tree do not count, whether on the same device or
// another; nor does a root that is one.
func TestCaseB64(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	v := mkdir(t, base, "v")
	put(t, 5000, v, "own")
	put(t, 50000, base, "host", "big")
	mountTmpfs(t, filepath.Join(v, "mem"))
	put(t, 9000, v, "mem", "x")
	bind(t, filepath.Join(base, "host"), mkdir(t, v, "hostpath"))
	bind(t, filepath.Join(base, "host", "big"), put(t, 0, v, "hostfile"))
	settle(t, base)
	own, _ := du(t, filepath.Join(v, "own"))
	dir, _ := du(t, mkdir(t, base, "empty"))
	for _, old := range []bool{false, true} {
		w := newTree(base, "v")
		w.opener.old = old
		wantPart(t, walkAll(t, w, nil), own+dir, 2)
		for _, root := range []string{"mem", "hostpath", "hostfile"} {
			w := newTree(base, "v", root)
			w.opener.old = old
			w.step(never)
			if p, ok := w.part(); ok {
				t.Errorf("the mount %s is a part: %+v", root, p)
			}
		}
	}
}

func bind(t *testing.T, from, at string) {
	t.Helper()
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("no bind mounts here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}
