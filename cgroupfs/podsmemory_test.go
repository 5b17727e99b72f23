package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const gib = uint64(1) << 30

func openPods(t *testing.T, f *FS) *PodsMemory {
	t.Helper()
	p, err := f.OpenPodsMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPodsMemoryOfEachTree(t *testing.T) {
	limits := map[string]uint64{"v1": 12 * gib, "v2-systemd": 12 * gib} // the others are unlimited
	for _, tree := range trees() {
		p := openPods(t, openTree(t, tree.name))
		want := "/kubepods"
		if tree.name == "v2-systemd" {
			want = "/kubepods.slice"
		}
		if p.Path() != want {
			t.Errorf("%s: path %s, want %s", tree.name, p.Path(), want)
		}
		if usage, err := p.Usage(); err != nil || usage != 900*mib {
			t.Errorf("%s: usage %d, %v", tree.name, usage, err)
		}
		limit, err := p.Limit()
		if want := limits[tree.name]; want != 0 && (err != nil || limit != want) {
			t.Errorf("%s: limit %d, %v, want %d", tree.name, limit, err, want)
		} else if want == 0 && !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: limit %d, %v, want ErrAbsent", tree.name, limit, err)
		}
		var m MemoryStat
		stat := MemoryStat{Anon: 600 * mib, File: 300 * mib, InactiveFile: 100 * mib, ActiveFile: 200 * mib}
		if err := p.Stat(&m); err != nil || m != stat {
			t.Errorf("%s: %+v, %v, want %+v", tree.name, m, err, stat)
		}
	}
}

// The usage is read in each tick of the alarm.
func TestPodsMemoryUsageDoesNotAllocate(t *testing.T) {
	for _, tree := range trees() {
		p := openPods(t, openTree(t, tree.name))
		var failed error
		n := testing.AllocsPerRun(200, func() {
			if _, err := p.Usage(); err != nil {
				failed = err
			}
		})
		if n != 0 || failed != nil {
			t.Errorf("%s: %v allocations, %v", tree.name, n, failed)
		}
	}
}

// Nothing that kills may be within reach of a reader of all pods together.
func TestPodsMemoryCannotKill(t *testing.T) {
	_, r := copyTree(t, "v2-systemd")
	writeFile(t, "", r.Cgroup, "kubepods.slice/cgroup.kill")
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	p := openPods(t, f)
	if p.cgroup.kill != noFd || p.cgroup.state != noFd {
		t.Error("cgroup.kill or the freezer is open")
	}
	if _, err := p.cgroup.Kill(KillOptions{}); !errors.Is(err, ErrNotPod) {
		t.Errorf("Kill: %v, want ErrNotPod", err)
	}
}

// podsTree makes a v2 machine with trees of pods and what each uses.
func podsTree(t *testing.T, trees map[string]string) *FS {
	t.Helper()
	root := t.TempDir()
	writeFile(t, "", root, "cgroup.controllers")
	for p, usage := range trees {
		writeFile(t, "", root, p, "cgroup.procs")
		if usage != "" {
			writeFile(t, usage+"\n", root, p, "memory.current")
		}
	}
	f, err := Open(Roots{Proc: "/proc", Cgroup: root})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPodsMemoryBelowACgroupRoot(t *testing.T) {
	for _, tt := range []struct {
		name  string
		trees map[string]string
		want  string
	}{
		{"cgroupfs", map[string]string{"kubelet/kubepods": "4096", "system.slice": "8192"}, "/kubelet/kubepods"},
		{"systemd", map[string]string{"kubelet.slice/kubelet-kubepods.slice": "4096"}, "/kubelet.slice/kubelet-kubepods.slice"},
		{"the old tree of another driver", map[string]string{"kubepods": "4096", "kubepods.slice": "8192"}, "/kubepods.slice"},
		{"and the other way round", map[string]string{"kubepods": "8192", "kubepods.slice": "4096"}, "/kubepods"},
		{"one without the controller", map[string]string{"kubepods": "", "kubepods.slice": "0"}, "/kubepods.slice"},
		{"one that cannot be understood", map[string]string{"kubepods": "many", "kubepods.slice": "0"}, "/kubepods.slice"},
	} {
		if got := openPods(t, podsTree(t, tt.trees)).Path(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestPodsMemoryErrors(t *testing.T) {
	for name, trees := range map[string]map[string]string{
		"no pods":            {"system.slice": "4096"},
		"no controller":      {"kubepods": ""},
		"too deep":           {"a/b/kubepods": "4096"},
		"a name that is not": {"kubepods2": "4096"},
	} {
		if p, err := podsTree(t, trees).OpenPodsMemory(); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %+v, %v, want ErrAbsent", name, p, err)
		}
	}
	var b *BrokenError
	if _, err := podsTree(t, map[string]string{"kubepods": "-1"}).OpenPodsMemory(); !errors.As(err, &b) || b.Text != "-1" {
		t.Errorf("%v, want a BrokenError with the text", err)
	}
}

// What was open is closed again, whichever tree is taken.
func TestPodsMemoryKeepsNoDescriptors(t *testing.T) {
	f := podsTree(t, map[string]string{"kubepods": "8192", "kubepods.slice": "4096", "x/kubepods": "9000", "y/kubepods": "", "z/kubepods": "-1"})
	// and one whose file cannot even be opened
	loop := filepath.Join(f.memory, "kubelet/kubepods")
	writeFile(t, "", loop, "cgroup.procs")
	if err := os.Symlink("memory.current", filepath.Join(loop, "memory.current")); err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	for range 10 {
		p, err := f.OpenPodsMemory()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	return len(names)
}

// A real one: gone with its cgroup, found again when it is made anew.
func TestRealPodsMemory(t *testing.T) {
	r := realMemory(t)
	p := openPods(t, r.fs)
	if _, err := p.Usage(); err != nil {
		t.Error(err)
	}
	c := r.fs.newCgroup(filepath.Dir(filepath.Dir(r.path)))
	if err := c.openReading(); err != nil {
		t.Fatal(err)
	}
	own := &PodsMemory{cgroup: c}
	defer func() { _ = own.Close() }()
	proc := r.start(t, r.container, sleeper)
	eventually(t, "memory is charged to the pods' cgroup", func() bool {
		usage, err := own.Usage()
		if err != nil {
			t.Fatal(err)
		}
		return usage > 0
	})
	if _, err := own.Limit(); !errors.Is(err, ErrAbsent) {
		t.Errorf("limit: %v, want ErrAbsent", err)
	}
	file := filepath.Join(c.full, c.limitFile())
	if err := os.WriteFile(file, []byte("1073741824"), 0); err != nil {
		t.Fatal(err)
	}
	if limit, err := own.Limit(); err != nil || limit != gib {
		t.Errorf("limit %d, %v", limit, err)
	}
	var m MemoryStat
	if err := own.Stat(&m); err != nil {
		t.Error(err)
	}
	if err := proc.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-proc.done
	eventually(t, "the pods' cgroup can be removed", func() bool {
		for _, d := range []string{r.container, r.path, filepath.Dir(r.path), c.path} {
			_ = os.Remove(r.fs.memory + d)
		}
		return !isDir(c.full)
	})
	if _, err := own.Usage(); !errors.Is(err, ErrGone) {
		t.Errorf("usage after the removal: %v, want ErrGone", err)
	}
}
