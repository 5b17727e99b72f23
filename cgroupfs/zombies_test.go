package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// B06: 68,680 memory cgroups in the kernel, 240 directories.
func TestB06ZombieMemcgs(t *testing.T) {
	_, r := copyTree(t, "v1")
	writeFile(t, "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t11\t1\nmemory\t4\t68680\t1\npids\t8\t12\t1\n", r.Proc, "cgroups")
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	have, err := f.MemcgCount()
	if err != nil || have.Kernel != 68680 || have.Directories < 8 {
		t.Fatalf("%+v, %v", have, err)
	}
	for i := have.Directories; i < 240; i++ {
		if err := os.Mkdir(filepath.Join(r.Cgroup, "memory", "system.slice", string(rune('a'+i/26))+string(rune('a'+i%26))), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := f.MemcgCount(); err != nil || c.Directories != 240 || c.Ratio() != 286 {
		t.Errorf("%+v, %v, ratio %d, want 286", c, err, c.Ratio())
	}
}

func TestMemcgRatio(t *testing.T) {
	for _, tt := range []struct {
		c    MemcgCount
		want uint64
	}{
		{MemcgCount{Kernel: 100, Directories: 100}, 1},
		{MemcgCount{Kernel: 199, Directories: 100}, 1},
		{MemcgCount{Kernel: 200, Directories: 100}, 2},
		{MemcgCount{Kernel: 10, Directories: 1}, 10},
		{MemcgCount{}, 0},
	} {
		if got := tt.c.Ratio(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.c, got, tt.want)
		}
	}
}

// Newer v2 kernels leave the controller out of /proc/cgroups.
func TestMemcgsFromCgroupStat(t *testing.T) {
	_, r := copyTree(t, "v2-systemd")
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.MemcgCount(); !errors.Is(err, ErrAbsent) {
		t.Errorf("without either: %v, want ErrAbsent", err)
	}
	writeFile(t, "nr_descendants 99\nnr_dying_descendants 900\n", r.Cgroup, "cgroup.stat")
	for _, text := range []string{"", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t5\t1\n"} {
		if text != "" {
			writeFile(t, text, r.Proc, "cgroups")
		}
		if c, err := f.MemcgCount(); err != nil || c.Kernel != 1000 {
			t.Errorf("%q: %+v, %v, want 1000", text, c, err)
		}
	}
	writeFile(t, "memory\t0\t77\t1\n", r.Proc, "cgroups")
	if c, err := f.MemcgCount(); err != nil || c.Kernel != 77 {
		t.Errorf("%+v, %v, want what /proc/cgroups says", c, err)
	}
}

func TestMemcgCountErrors(t *testing.T) {
	for _, text := range []string{"memory\t4\t-1\t1\n", "memory\n", "memory\t4\t17", "memory\t4\t99999999999999999999\t1\n"} {
		_, r := copyTree(t, "v1")
		writeFile(t, text, r.Proc, "cgroups")
		f, err := Open(r)
		if err != nil {
			t.Fatal(err)
		}
		var b *BrokenError
		if _, err := f.MemcgCount(); !errors.As(err, &b) || b.Field != "memory" || b.Path == "" {
			t.Errorf("%q: %v, want a BrokenError with path and field", text, err)
		}
	}
	for _, text := range []string{"nr_descendants x\n", "nr_descendants 1\nnr_dying_descendants -1\n", "nr_descendants 1"} {
		if n, err := parseDescendants([]byte(text)); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
	if _, err := parseDescendants([]byte("nr_dying_descendants 5\n")); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v, want ErrAbsent", err)
	}
}

func FuzzParseNumCgroups(f *testing.F) {
	f.Add([]byte("#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t1887\t1\n"))
	f.Add([]byte("memory\t4\t18446744073709551616\t1\n"))
	f.Add([]byte("memory"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := parseNumCgroups(b)
		onlyBroken(t, err, ErrAbsent)
	})
}

func FuzzParseDescendants(f *testing.F) {
	f.Add([]byte("nr_descendants 359\nnr_subsys_memory 360\nnr_dying_descendants 3\n"))
	f.Add([]byte("nr_descendants 18446744073709551615\nnr_dying_descendants 18446744073709551615\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseDescendants(b)
		onlyBroken(t, err, ErrAbsent)
		if err == nil && n == 0 {
			t.Error("no cgroup at all, not even the root")
		}
	})
}
