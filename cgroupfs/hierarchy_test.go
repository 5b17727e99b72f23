package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenFindsTheMode(t *testing.T) {
	for _, tree := range trees() {
		f := openTree(t, tree.name)
		if f.Mode() != tree.mode {
			t.Errorf("%s: mode %v, want %v", tree.name, f.Mode(), tree.mode)
		}
		if f.live {
			t.Errorf("%s: taken for a mounted hierarchy", tree.name)
		}
	}
	for m, want := range map[Mode]string{V1: "v1", Hybrid: "hybrid", V2: "v2", 9: "mode(9)"} {
		if m.String() != want {
			t.Errorf("%q, want %q", m.String(), want)
		}
	}
}

func TestOpenOfThisMachine(t *testing.T) {
	f, err := Open(Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if errors.Is(err, ErrAbsent) {
		t.Skip("no memory hierarchy here")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !f.live {
		t.Error("not seen as a mounted hierarchy")
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	unified := strings.Contains(string(mounts), " /sys/fs/cgroup cgroup2 ")
	if (f.Mode() == V2) != unified {
		t.Errorf("mode %v, but cgroup2 at the root is %v", f.Mode(), unified)
	}
}

func TestOpenWithoutHierarchy(t *testing.T) {
	empty := t.TempDir()
	noMemory := t.TempDir()
	writeFile(t, "", noMemory, "pids", "cgroup.procs")
	for name, root := range map[string]string{
		"empty": empty, "no memory": noMemory, "not there": filepath.Join(empty, "missing"),
	} {
		_, err := Open(Roots{Proc: "/proc", Cgroup: root})
		if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: %v, want ErrAbsent with the path", name, err)
		}
	}
}

func TestOpenBrokenTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cgroup")
	if err := os.Symlink(root, root); err != nil { // ELOOP, also for root
		t.Fatal(err)
	}
	_, err := Open(Roots{Proc: "/proc", Cgroup: root})
	var b *BrokenError
	if !errors.As(err, &b) || b.Path != root {
		t.Errorf("got %v, want a BrokenError naming %s", err, root)
	}
}

func TestV1WithoutFreezer(t *testing.T) {
	_, r := copyTree(t, "v1")
	if err := os.RemoveAll(filepath.Join(r.Cgroup, "freezer")); err != nil {
		t.Fatal(err)
	}
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	p := openPod(t, f, cgroupfsBurstable)
	if p.Freezes() {
		t.Error("freezes without a freezer")
	}
	if err := p.Thaw(); !errors.Is(err, ErrAbsent) {
		t.Errorf("Thaw: %v, want ErrAbsent", err)
	}
	if err := f.ThawPath(cgroupfsBurstable); err != nil {
		t.Errorf("ThawPath: %v", err)
	}
}
