package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for something that happens at once on a
// quiet machine.
const patience = 20 * time.Second

// real is a pod's cgroup in a mounted hierarchy, with one container.
type real struct {
	fs        *FS
	roots     []string // hierarchy directories that have the pod
	path      string
	container string
}

// mountOf finds a mount of a file system type, by an option if it is not "".
func mountOf(t *testing.T, fstype, option string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[2] == fstype && (option == "" || slices.Contains(strings.Split(f[3], ","), option)) {
			return f[1]
		}
	}
	return ""
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups and kills processes in them")
	}
}

// realV1 makes a pod in the memory and freezer hierarchies.
func realV1(t *testing.T) *real {
	t.Helper()
	needRoot(t)
	memory := mountOf(t, "cgroup", "memory")
	freezer := mountOf(t, "cgroup", "freezer")
	if memory == "" || freezer == "" || filepath.Dir(memory) != filepath.Dir(freezer) {
		t.Skip("needs cgroup v1 with memory and freezer")
	}
	return makePod(t, filepath.Dir(memory), memory, freezer)
}

// realV2 makes a pod in a v2 hierarchy; a hybrid machine's has no memory
// controller, and everything but the numbers is real.
func realV2(t *testing.T) *real {
	t.Helper()
	needRoot(t)
	mount := mountOf(t, "cgroup2", "")
	if mount == "" {
		t.Skip("needs a mounted cgroup v2")
	}
	return makePod(t, mount, mount)
}

// realMemoryV2 is realV2 with the memory controller.
func realMemoryV2(t *testing.T) *real {
	t.Helper()
	mount := mountOf(t, "cgroup2", "")
	if mount == "" || !hasController(t, mount, "memory") {
		t.Skip("needs cgroup v2 with the memory controller")
	}
	r := realV2(t)
	// from the root down, as the kernel wants it
	dir := mount
	for d := range strings.SplitSeq(r.container, "/") {
		dir = filepath.Join(dir, d)
		if dir == filepath.Join(mount, r.container) {
			break
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Skipf("needs the memory controller below %s: %v", dir, err)
		}
	}
	return r
}

// realMemory makes a pod in the hierarchy that has the memory controller.
func realMemory(t *testing.T) *real {
	t.Helper()
	if mountOf(t, "cgroup", "memory") != "" {
		return realV1(t)
	}
	return realMemoryV2(t)
}

func hasController(t *testing.T, dir, name string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), name)
}

func makePod(t *testing.T, cgroup string, hierarchies ...string) *real {
	t.Helper()
	f, err := Open(Roots{Proc: "/proc", Cgroup: cgroup})
	if err != nil {
		t.Fatal(err)
	}
	top := fmt.Sprintf("/cri-evictd-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	r := &real{fs: f, roots: hierarchies, path: top + "/kubepods/burstable/pod" + dashed}
	r.container = r.path + "/container"
	t.Cleanup(func() { r.remove(t, top) })
	for _, h := range hierarchies {
		if err := os.MkdirAll(h+r.container, 0o755); err != nil {
			t.Skipf("needs a writable cgroup hierarchy: %v", err)
		}
	}
	return r
}

// remove thaws, ends what is left in the cgroups made here, and removes them.
func (r *real) remove(t *testing.T, top string) {
	var dirs []string
	for _, h := range r.roots {
		err := filepath.WalkDir(h+top, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	slices.Reverse(dirs)
	eventually(t, "removing "+top, func() bool {
		for _, d := range dirs {
			_ = os.WriteFile(d+"/freezer.state", []byte("THAWED"), 0) // not everywhere
			_ = os.WriteFile(d+"/cgroup.freeze", []byte("0"), 0)
			for _, pid := range procsOf(d) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		dirs = slices.DeleteFunc(dirs, func(d string) bool {
			err := os.Remove(d)
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
		return len(dirs) == 0
	})
}

func procsOf(dir string) []int {
	b, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		return nil
	}
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// process is a program that was started outside and waits for its gate before
// it does anything.
type process struct {
	cmd  *exec.Cmd
	gate io.WriteCloser
	done chan struct{}
}

const (
	sleeper = "read gate; exec sleep 1000"
	// forker makes children that stay, up to 400 of them.
	forker = "read gate; i=0; while [ $i -lt 400 ]; do sleep 1000 & i=$((i+1)); done; wait"
	// runner is one process that is always about to be another: it forks and
	// ends.
	runner = "read gate; run() { run & }; run"
)

// start runs a shell script in a cgroup of all the pod's hierarchies.
func (r *real) start(t *testing.T, cgroup, script string) *process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Stderr = new(bytes.Buffer)
	gate, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, gate: gate, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // killed, as it should
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it is dead already unless the test failed
		select {
		case <-p.done:
		case <-time.After(patience):
			t.Errorf("process %d did not end", cmd.Process.Pid)
		}
	})
	for _, h := range r.roots {
		r.move(t, h+cgroup, cmd.Process.Pid)
	}
	if _, err := io.WriteString(gate, "go\n"); err != nil {
		t.Fatal(err)
	}
	return p
}

func (r *real) move(t *testing.T, dir string, pid int) {
	t.Helper()
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) waitDead(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("process %d is alive", p.pid())
	}
	if st, ok := p.cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }); !ok || st.Signal() != unix.SIGKILL {
		t.Errorf("process %d ended by %v", p.pid(), p.cmd.ProcessState)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func waitEmpty(t *testing.T, p *PodCgroup) {
	t.Helper()
	eventually(t, "pod is empty", func() bool {
		populated, err := p.Populated()
		if err != nil {
			t.Fatal(err)
		}
		return !populated
	})
}

func waitForking(t *testing.T, p *PodCgroup) {
	t.Helper()
	eventually(t, "the forker has children", func() bool {
		pids, err := p.Pids(nil)
		return err == nil && len(pids) > 5
	})
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }
