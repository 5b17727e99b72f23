package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRealV2Kill(t *testing.T) {
	r := realV2(t)
	p := openPod(t, r.fs, r.path)
	if populated, err := p.Populated(); err != nil || populated {
		t.Fatalf("populated %v, %v before anything runs", populated, err)
	}
	c := r.start(t, r.container, sleeper)
	if populated, err := p.Populated(); err != nil || !populated {
		t.Fatalf("populated %v, %v", populated, err)
	}
	want := UnknownCount
	if p.kill == noFd {
		want = 1 // a kernel before 5.14
	}
	began := time.Now()
	n, err := p.Kill(KillOptions{Skip: []int{os.Getpid()}})
	t.Logf("Kill took %v", time.Since(began))
	if err != nil || n != want {
		t.Errorf("killed %d, %v, want %d", n, err, want)
	}
	waitEmpty(t, p)
	t.Logf("empty after %v", time.Since(began))
	c.waitDead(t)
}

func TestRealV2KillForking(t *testing.T) {
	for _, tc := range []struct {
		name string
		kill func(*PodCgroup) (int, error)
	}{
		{"cgroup.kill", func(p *PodCgroup) (int, error) { return p.Kill(KillOptions{}) }},
		{"pidfd only", func(p *PodCgroup) (int, error) { return p.KillByPidfd() }},
		{"kernel without cgroup.kill", func(p *PodCgroup) (int, error) {
			if p.kill != noFd {
				if err := unix.Close(p.kill); err != nil {
					return 0, err
				}
				p.kill = noFd
			}
			return p.Kill(KillOptions{Timeout: patience})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := realV2(t)
			p := openPod(t, r.fs, r.path)
			f := r.start(t, r.container, forker)
			waitForking(t, p)
			if n, err := tc.kill(p); err != nil || n == 0 {
				t.Errorf("killed %d, %v", n, err)
			}
			f.waitDead(t)
			waitEmpty(t, p)
		})
	}
}

// A frozen v2 cgroup dies all the same.
func TestRealV2KillFrozen(t *testing.T) {
	r := realV2(t)
	p := openPod(t, r.fs, r.path)
	c := r.start(t, r.container, sleeper)
	freeze := filepath.Join(r.fs.memory, r.path, "cgroup.freeze")
	if err := os.WriteFile(freeze, []byte("1"), 0); err != nil {
		t.Skipf("needs cgroup.freeze: %v", err)
	}
	if _, err := p.Kill(KillOptions{}); err != nil {
		t.Error(err)
	}
	c.waitDead(t)
	waitEmpty(t, p)
}

func TestRealV2KillSkips(t *testing.T) {
	r := realV2(t)
	p := openPod(t, r.fs, r.path)
	victim := r.start(t, r.container, sleeper)
	inner := r.container + "/inner"
	if err := os.Mkdir(r.fs.memory+inner, 0o755); err != nil {
		t.Fatal(err)
	}
	spared := r.start(t, inner, sleeper)
	if n, err := p.Kill(KillOptions{Skip: []int{spared.pid()}}); n != 1 || err != nil {
		t.Errorf("killed %d, %v, want 1", n, err)
	}
	victim.waitDead(t)
	if !alive(spared.pid()) {
		t.Error("the spared process is dead")
	}
}

// A threaded cgroup does not list its processes; its domain does.
func TestRealV2ThreadedChild(t *testing.T) {
	r := realV2(t)
	threaded := r.container + "/threaded"
	if err := os.Mkdir(r.fs.memory+threaded, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.fs.memory+threaded+"/cgroup.type", []byte("threaded"), 0); err != nil {
		t.Skipf("needs threaded cgroups: %v", err)
	}
	p := openPod(t, r.fs, r.path)
	c := r.start(t, r.container, sleeper)
	pids, err := p.Pids(nil)
	if err != nil || len(pids) != 1 || pids[0] != c.pid() {
		t.Errorf("pids %v, %v, want %d", pids, err, c.pid())
	}
	if n, err := p.KillByPidfd(); n != 1 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	c.waitDead(t)
	waitEmpty(t, p)
}

// The numbers of a v2 hierarchy that has the memory controller.
func TestRealV2Memory(t *testing.T) {
	r := realV2(t)
	mount := r.fs.memory
	for dir := mount; ; {
		if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte("+memory"), 0); err != nil {
			t.Skipf("needs the memory controller on cgroup v2: %v", err)
		}
		if dir == mount+r.path {
			break
		}
		rest := strings.TrimPrefix(mount+r.path, dir+"/")
		next, _, _ := strings.Cut(rest, "/")
		dir += "/" + next
	}
	if err := os.WriteFile(mount+r.container+"/memory.max", []byte("268435456"), 0); err != nil {
		t.Fatal(err)
	}
	p := openPod(t, r.fs, r.path)
	r.start(t, r.container, sleeper)
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
	if limit, limited, err := p.ChildMemoryLimit("container"); err != nil || !limited || limit != 256*mib {
		t.Errorf("container limit %d %v, %v", limit, limited, err)
	}
	pods, err := walk(t, r.fs)
	if err != nil || !slices.Contains(pods, PodPath{r.path, dashed, Burstable, Cgroupfs}) {
		t.Errorf("walk found %+v, %v", pods, err)
	}
	root, err := r.fs.OpenRootMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}()
	if usage, inactive, err := root.Read(); err != nil || usage == 0 || inactive > usage {
		t.Errorf("root usage %d, inactive_file %d, %v", usage, inactive, err)
	}
	if n, err := p.Kill(KillOptions{}); err != nil || n != UnknownCount {
		t.Errorf("killed %d, %v", n, err)
	}
	waitEmpty(t, p)
	t.Logf("%+v", m)
}

// The v2 hierarchy of a hybrid machine has no memory controller: absent, not
// broken and not zero.
func TestRealV2WithoutMemoryController(t *testing.T) {
	r := realV2(t)
	p := openPod(t, r.fs, r.path)
	if p.usage != noFd {
		t.Skip("needs a v2 hierarchy without the memory controller")
	}
	if v, err := p.Usage(); !errors.Is(err, ErrAbsent) || errors.Is(err, ErrGone) {
		t.Errorf("usage %d, %v, want ErrAbsent", v, err)
	}
	if v, err := p.InactiveFile(); !errors.Is(err, ErrAbsent) {
		t.Errorf("inactive_file %d, %v, want ErrAbsent", v, err)
	}
}
