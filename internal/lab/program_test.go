package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell is a program that runs a script.
func shell(t *testing.T, script string) *program {
	t.Helper()
	dir := t.TempDir()
	p := &program{
		name: "shell", path: "/bin/sh", args: []string{"-c", script}, dir: dir,
		logFile: filepath.Join(dir, "log"), ready: time.Minute,
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// wrote is ready when the log has this many lines.
func (p *program) wrote(n int) func(context.Context) error {
	return func(context.Context) error {
		b, err := os.ReadFile(p.logFile)
		if err == nil && strings.Count(string(b), "\n") < n {
			err = os.ErrNotExist
		}
		return err
	}
}

func TestProgramStartsStopsAndStartsAgain(t *testing.T) {
	p := shell(t, `echo up; exec sleep 1000`)
	if err := p.start(t.Context(), p.wrote(1)); err != nil {
		t.Fatal(err)
	}
	first := p.pid()
	if first == 0 || syscall.Kill(first, 0) != nil {
		t.Fatalf("pid %d does not run", first)
	}
	if err := p.stop(); err != nil || p.pid() != 0 || syscall.Kill(first, 0) == nil {
		t.Errorf("after stop (%v) pid is %d and the process is there", err, p.pid())
	}
	if err := p.start(t.Context(), p.wrote(2)); err != nil {
		t.Fatal(err) // the log goes on
	}
}

func TestProgramThatEndsAtOnce(t *testing.T) {
	p := shell(t, `echo this is why >&2; exit 1`)
	err := p.start(t.Context(), func(context.Context) error { return os.ErrNotExist })
	if err == nil || !strings.Contains(err.Error(), "this is why") {
		t.Errorf("error %v, want what it said last", err)
	}
}

func TestProgramThatIsNeverReadyIsEnded(t *testing.T) {
	p := shell(t, `exec sleep 1000`)
	p.ready = 50 * time.Millisecond
	if err := p.start(t.Context(), func(context.Context) error { return os.ErrNotExist }); err == nil || p.pid() != 0 {
		t.Errorf("error %v, pid %d, want an error and no process", err, p.pid())
	}
}

// A test that was killed leaves kubelet, the API server and etcd running.
func TestScratchEndsWhatRunsFromIt(t *testing.T) {
	dir, remove, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelet", "kube-apiserver", "etcd"} {
		// It waits by itself: a child of it would be left behind.
		cmd := exec.Command("/bin/sh", "-c", "read -r line", filepath.Join(dir, "x"))
		cmd.Args[0] = name
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // killed
		}()
		t.Cleanup(func() {
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Errorf("%s runs on after its scratch folder was removed", name)
				_ = cmd.Process.Kill()
			}
		})
	}
	remove()
	if l := Leftovers(dir); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}

func TestCgroupRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	dir, remove, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(dir)
	roots, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be there already
		if err := makeCgroupRoot(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, root := range roots {
		if err := os.MkdirAll(filepath.Join(root, name, "kubepods", "burstable"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	for _, root := range roots {
		if isDir(filepath.Join(root, name)) {
			t.Errorf("%s is left in %s", name, root)
		}
	}
}
