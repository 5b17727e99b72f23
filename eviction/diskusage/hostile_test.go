package diskusage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Names are bytes: newlines, what looks like a path, what is not UTF-8.
func TestHostileNames(t *testing.T) {
	base := t.TempDir()
	v := mkdir(t, base, "v")
	for _, n := range []string{"a\nb", "\n", " ", "...", "-rf", "\xff\xfe", "x (deleted)", strings.Repeat("n", 255), "a\\134b", "\t:|"} {
		put(t, 5000, v, n)
		put(t, 5000, v, "dir"+n[:min(len(n), 252)], "f")
	}
	settle(t, v)
	bytes, inodes := du(t, v)
	wantPart(t, walkAll(t, newTree(base, "v"), nil), bytes, inodes)
}

// A directory that becomes a link to elsewhere between two steps leads nowhere,
// at every depth and at the root.
func TestHostileSwapForASymlink(t *testing.T) {
	for level := range 4 {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			base := t.TempDir()
			at := filepath.Join(base, "v")
			for range level {
				at = filepath.Join(at, "d")
			}
			for i := range 200 {
				put(t, 0, at, "in", name(i))
			}
			for i := range 500 {
				put(t, 0, base, "elsewhere", "in", name(i))
			}
			w := newTree(base, "v")
			swapped := false
			p := walkAll(t, w, func(step int) {
				if len(w.frames) == level+2 && w.entries > 40 && !swapped {
					swapped = true
					must(t, os.Rename(at, filepath.Join(base, "old")))
					must(t, os.Symlink(filepath.Join(base, "elsewhere"), at))
				}
			})
			if !swapped {
				t.Fatal("the directory was never swapped")
			}
			if p.Inodes.Value > 220 {
				t.Errorf("%d inodes: the link was followed", p.Inodes.Value)
			}
		})
	}
}

// A directory replaced by another one of the same name is not taken for it.
func TestHostileSwapForAnotherDirectory(t *testing.T) {
	base := t.TempDir()
	for i := range 200 {
		put(t, 0, base, "v", "d", name(i))
		put(t, 0, base, "w", name(1000+i))
	}
	w := newTree(base, "v")
	swapped := false
	p := walkAll(t, w, func(int) {
		if len(w.frames) == 2 && w.entries > 40 && !swapped {
			swapped = true
			must(t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(base, "v", "d"), unix.AT_FDCWD, filepath.Join(base, "w"), unix.RENAME_EXCHANGE))
		}
	})
	if !swapped || p.Inodes.Value > 150 {
		t.Errorf("swapped %v, %d inodes", swapped, p.Inodes.Value)
	}
}

// A directory moved out of the tree while the walk is in it does not take the
// walk along: neither further down nor through its new parent.
func TestHostileMoveOut(t *testing.T) {
	base := t.TempDir()
	put(t, 0, base, "v", "a", "b", "c", "f")
	put(t, 0, base, "v", "z")
	for i := range 3000 {
		put(t, 0, base, "big", name(i))
	}
	w := newTree(base, "v")
	inside, moved := false, false
	p := Part{}
	for i := 0; ; i++ {
		if i > 100000 {
			t.Fatal("no end")
		}
		// Within one step: the move comes between two looks at the clock.
		done := w.step(func() bool {
			if inside = len(w.frames) == 4; inside && !moved {
				moved = true
				must(t, os.Rename(filepath.Join(base, "v", "a", "b"), filepath.Join(base, "big", "b")))
			}
			return false
		})
		if done {
			p, _ = w.part()
			break
		}
	}
	if !moved || p.Inodes.Value > 8 || p.AtLeast {
		t.Errorf("moved %v, %+v", moved, p)
	}
}

// What vanishes meanwhile is no error and no endless loop.
func TestHostileVanishing(t *testing.T) {
	base := t.TempDir()
	v := mkdir(t, base, "v")
	for i := range 100 {
		for j := range 5 {
			put(t, 10, v, name(i), name(j))
		}
	}
	w := newTree(base, "v")
	p := walkAll(t, w, func(step int) {
		if step < 100 {
			must(t, os.RemoveAll(filepath.Join(v, name(99-step))))
		}
		if step == 100 {
			must(t, os.RemoveAll(v))
		}
	})
	if p.AtLeast || p.Why != "" || p.Inodes.Value == 0 {
		t.Errorf("%+v", p)
	}
}

// Deeper than any path is long; the rest is said to be missing.
func TestHostileDepth(t *testing.T) {
	base := t.TempDir()
	mkdir(t, base, "v")
	fd, err := unix.Open(filepath.Join(base, "v"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range maxDepth + 50 {
		must(t, unix.Mkdirat(fd, "deeper", 0o755))
		next, err := unix.Openat(fd, "deeper", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		shut(fd)
		fd = next
	}
	shut(fd)
	w := newTree(base, "v")
	calls := 0
	for !w.step(func() bool { calls++; return calls%200 == 0 }) {
		if calls > 100*maxDepth {
			t.Fatal("no end")
		}
	}
	p, _ := w.part()
	if p.Inodes.Value != maxDepth+1 || !p.AtLeast || !strings.Contains(p.Why, "deep") || p.Inodes.Exact || w.mem.used != 0 {
		t.Errorf("%+v", p)
	}
}

// The walk remembers names for as long as it needs them, within a bound that
// holds for all walks together.
func TestHostileMemory(t *testing.T) {
	base := t.TempDir()
	for i := range 60 {
		mkdir(t, base, "v", deepPath(3, name(i)))
	}
	w := newTree(base, "v")
	w.mem.limit = 2*(frameCost+chunk) + 100
	p := walkAll(t, w, func(int) {
		if w.mem.used > w.mem.limit {
			t.Fatalf("%d bytes of %d", w.mem.used, w.mem.limit)
		}
	})
	if !p.AtLeast || !strings.Contains(p.Why, "remember") {
		t.Errorf("%+v", p)
	}
}

// Files with several names beyond what can be remembered count for their share,
// so that nothing is counted twice.
func TestHostileHardLinks(t *testing.T) {
	base := t.TempDir()
	v := mkdir(t, base, "v")
	for i := range 50 {
		f := put(t, 8192, v, name(i))
		for j := range 1 + i%3 {
			must(t, os.Link(f, fmt.Sprintf("%s-%d", f, j)))
		}
	}
	settle(t, v)
	bytes, inodes := du(t, v)
	w := newTree(base, "v")
	w.mem.limit = 4*(frameCost+chunk) + 10*linkCost
	w.mem.used = 3*(frameCost+chunk) - 10
	w.step(never)
	p, _ := w.part()
	if p.Bytes.Value != bytes || p.Inodes.Value != inodes || p.Bytes.Exact || len(w.sum.shared) == 0 {
		t.Errorf("%+v, want %d bytes %d inodes as an estimate", p, bytes, inodes)
	}
}

// Somebody who makes files as fast as they are read does not hold the walker: a
// tree is read for so many names, and what is missing is said.
func TestHostileGrowth(t *testing.T) {
	base := t.TempDir()
	v := mkdir(t, base, "v")
	for i := range 60 {
		put(t, 0, v, name(i%6), name(i), "f")
	}
	w := newTree(base, "v")
	w.entries = maxEntries - 50
	p := walkAll(t, w, nil)
	if !p.AtLeast || !strings.Contains(p.Why, "files") || p.Inodes.Value != 51 || p.Inodes.Exact {
		t.Errorf("%+v", p)
	}
}

// A step ends soon after it is told to, whatever the size of the directory.
func TestHostileWidth(t *testing.T) {
	base := t.TempDir()
	v := mkdir(t, base, "v")
	const n = 2000
	for i := range n {
		must(t, os.Mkdir(filepath.Join(v, name(i)), 0o755))
	}
	w := newTree(base, "v")
	most, before := uint64(0), uint64(0)
	p := walkAll(t, w, func(int) {
		most = max(most, w.entries-before)
		before = w.entries
		if w.mem.used > 3*(frameCost+chunk+300) {
			t.Fatalf("%d bytes remembered", w.mem.used)
		}
	})
	if p.Inodes.Value != n+1 || p.AtLeast || most > 2*lookEvery {
		t.Errorf("%+v, %d names in one step", p, most)
	}
}
