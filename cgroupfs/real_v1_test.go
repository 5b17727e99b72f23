package cgroupfs

import (
	"errors"
	"os"
	"slices"
	"testing"
)

func TestRealV1Readings(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	if populated, err := p.Populated(); err != nil || populated {
		t.Errorf("populated %v, %v before anything runs", populated, err)
	}
	c := r.start(t, r.container, sleeper)
	if populated, err := p.Populated(); err != nil || !populated {
		t.Errorf("populated %v, %v with a process in the container", populated, err)
	}
	eventually(t, "memory is charged to the pod", func() bool {
		usage, err := p.Usage()
		if err != nil {
			t.Fatal(err)
		}
		return usage > 0
	})
	var m MemoryStat
	if err := p.MemoryStat(&m); err != nil {
		t.Error(err)
	}
	if _, limited, err := p.MemoryLimit(); err != nil || limited {
		t.Errorf("limited %v, %v", limited, err)
	}
	if err := os.WriteFile(r.roots[0]+r.container+"/memory.limit_in_bytes", []byte("268435456"), 0); err != nil {
		t.Fatal(err)
	}
	if limit, limited, err := p.ChildMemoryLimit("container"); err != nil || !limited || limit != 256*mib {
		t.Errorf("container limit %d %v, %v", limit, limited, err)
	}
	if foreign, err := r.fs.Foreign(p, os.Getpid()); err != nil || len(foreign) != 0 {
		t.Errorf("foreign %v, %v", foreign, err)
	}
	foreign, err := r.fs.Foreign(p, c.pid())
	if err != nil || len(foreign) != 1 || foreign[0].Pid != c.pid() {
		t.Errorf("foreign %v, %v, want ourselves", foreign, err)
	}
	pods, err := walk(t, r.fs)
	if err != nil || !slices.Contains(pods, PodPath{r.path, dashed, Burstable, Cgroupfs}) {
		t.Errorf("walk found %+v, %v", pods, err)
	}
}

// A v1 kernel answers an open cgroup.procs from a list it made up to a second
// ago; a process that has just arrived must be seen all the same.
func TestRealV1PidsAreFresh(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	var want []int
	for range 5 {
		want = append(want, r.start(t, r.container, sleeper).pid())
		got, err := p.Pids(nil)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
	}
}

func testGone(t *testing.T, r *real) {
	t.Helper()
	p := openPod(t, r.fs, r.path)
	for _, h := range r.roots {
		for _, d := range []string{h + r.container, h + r.path} {
			if err := os.Remove(d); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(when string) {
		t.Helper()
		calls := map[string]func() error{
			"Usage":        func() error { _, err := p.Usage(); return err },
			"InactiveFile": func() error { _, err := p.InactiveFile(); return err },
			"MemoryLimit":  func() error { _, _, err := p.MemoryLimit(); return err },
			"Populated":    func() error { _, err := p.Populated(); return err },
			"Pids":         func() error { _, err := p.Pids(nil); return err },
			"Children":     func() error { _, err := p.Children(); return err },
			"Kill":         func() error { _, err := p.Kill(KillOptions{}); return err },
			"KillByPidfd":  func() error { _, err := p.KillByPidfd(); return err },
			"Thaw":         p.Thaw,
			"Foreign":      func() error { _, err := r.fs.Foreign(p, 1); return err },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, ErrGone) || errors.Is(err, ErrAbsent) {
				t.Errorf("%s: %s: %v, want ErrGone", when, name, err)
			}
		}
	}
	check("removed")
	for _, h := range r.roots {
		if err := os.MkdirAll(h+r.container, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := r.start(t, r.container, sleeper)
	check("made anew")
	if !alive(c.pid()) {
		t.Error("a kill of the old cgroup hit the new one")
	}
	again := openPod(t, r.fs, r.path)
	if again.Inode() == p.Inode() {
		t.Errorf("both have inode %d", p.Inode())
	}
	if _, err := r.fs.OpenPod(r.path + "/nobody"); !errors.Is(err, ErrGone) {
		t.Errorf("open: %v, want ErrGone", err)
	}
}

func TestRealV1Gone(t *testing.T) { testGone(t, realV1(t)) }

func TestRealV2Gone(t *testing.T) { testGone(t, realV2(t)) }
