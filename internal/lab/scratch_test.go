package lab

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shortDir is a folder whose path leaves room for sockets, unlike t.TempDir.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestNewScratch(t *testing.T) {
	base := shortDir(t)
	t.Setenv("TMPDIR", base)
	a, removeA, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a, "in-use"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(base, scratchPrefix+"foreign") // no lock file: not ours to judge
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	b, removeB, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(a) != base || a == b {
		t.Errorf("scratch folders %q and %q; want two in %q", a, b, base)
	}
	for _, p := range []string{filepath.Join(a, "in-use"), foreign} {
		if _, err := os.Stat(p); err != nil {
			t.Errorf("a second NewScratch has removed what is in use: %v", err)
		}
	}
	removeA()
	removeB()
	removeB() // again does no harm
	for _, dir := range []string{a, b} {
		if left := Leftovers(dir); len(left) > 0 {
			t.Errorf("left of %s: %q", dir, left)
		}
	}
}

func TestScratchBaseTooLong(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	dir, remove, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if len(dir) > scratchMax || strings.HasPrefix(dir, long) {
		t.Errorf("scratch folder %q; want a short one", dir)
	}
	if (layout{dir: filepath.Join(dir, "ctd")}).shimSockets() == "" {
		t.Errorf("scratch folder %q leaves no room for shim sockets", dir)
	}
}

const childEnv = "CRI_EVICTD_LAB_TEST_CHILD"

// A test run or demo that is killed cannot clean up; the next one does.
func TestNewScratchSweepsTheKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs containerd and containers")
	}
	t.Setenv("TMPDIR", shortDir(t))
	cmd := exec.Command(os.Args[0], "-test.run=^TestScratchChild$", "-test.v") // killed below
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir, root string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "child runs in "); ok {
			dir, root, _ = strings.Cut(rest, " ")
			break
		}
		t.Log("child: " + lines.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if dir == "" {
		t.Fatal("the child has not come up")
	}
	if left := strings.Join(Leftovers(dir), "\n"); !strings.Contains(left, "ctd.sock") || !strings.Contains(left, "cgroup ") {
		t.Fatalf("the killed child has left nothing, so that this test shows nothing:\n%s", left)
	}

	_, remove, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	remove()
	if left := Leftovers(dir); len(left) > 0 {
		t.Errorf("left of the killed child:\n%s", strings.Join(left, "\n"))
	}
	wantNothing(t, dir, root, nil, nil, nil)
}

// TestScratchChild is the process that TestNewScratchSweepsTheKilled kills.
func TestScratchChild(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("only as a child of another test")
	}
	tools, err := Ensure(t.Context(), os.Stderr, Debian)
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	c, err := StartContainerd(t.Context(), ContainerdOptions{Tools: tools, Version: Debian, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	root := "/" + filepath.Base(dir)
	runAll(t, runtimeClient(t, c), testPods(root)[1:2])
	_, _ = os.Stdout.WriteString("child runs in " + dir + " " + root + "\n") // the parent will time out
	select {}                                                                // until killed
}
