package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func walk(t *testing.T, f *FS) ([]PodPath, error) {
	t.Helper()
	var got []PodPath
	err := f.WalkPods(func(p PodPath) error {
		got = append(got, p)
		return nil
	})
	return got, err
}

func TestWalkPods(t *testing.T) {
	for _, tree := range trees() {
		driver := Cgroupfs
		if tree.name == "v2-systemd" {
			driver = Systemd
		}
		want := []PodPath{
			{tree.bestEffort, "hog.test-1", BestEffort, driver},
			{tree.burstable, dashed, Burstable, driver},
			{tree.guaranteed, "0123456789abcdef0123456789abcdef", Guaranteed, driver},
		}
		got, err := walk(t, openTree(t, tree.name))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", tree.name, got, err, want)
		}
	}
}

func TestWalkPodsBelowACgroupRoot(t *testing.T) {
	root := t.TempDir()
	writeFile(t, "", root, "cgroup.controllers")
	for _, p := range []string{
		"kubelet/kubepods/burstable/podA/container",
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podB.slice",
		"kubelet.slice/other-kubepods.slice/other-kubepods-podNo.slice",
		"docker/kubepods.slice/kubepods-podC.slice",
		"kubepods/podD",
		"kubepods/burstable/notapod",
		"kubepods/burstable/podE/kubepods/podNo",
		"deep/er/kubepods/podNo",
		"system.slice/ssh.service",
	} {
		writeFile(t, "", root, p, "cgroup.procs")
	}
	writeFile(t, "", root, "kubepods/burstable/podNoDirectory")
	f, err := Open(Roots{Proc: "/proc", Cgroup: root})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := walk(t, f)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pods {
		got = append(got, p.UID)
	}
	slices.Sort(got)
	if want := []string{"A", "B", "C", "D", "E"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWalkPodsWithoutTrees(t *testing.T) {
	root := t.TempDir()
	writeFile(t, "", root, "cgroup.controllers")
	f, err := Open(Roots{Cgroup: root})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := walk(t, f); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	var b *BrokenError
	if _, err := walk(t, f); !errors.As(err, &b) || b.Path != root {
		t.Errorf("root gone: %v, want a BrokenError naming it", err)
	}
}

// One unreadable level costs its own pods and nothing else.
func TestWalkPodsUnreadableLevel(t *testing.T) {
	f, r := copyTree(t, "v2-cgroupfs")
	dir := filepath.Join(r.Cgroup, "kubepods/burstable")
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if os.Geteuid() == 0 {
		// Root reads every directory. The thread looks as somebody else, who
		// has to get as far as the level.
		if err := os.Chmod(filepath.Join(r.Cgroup, "../.."), 0o755); err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Setfsuid(0); err != nil {
				t.Error(err)
			}
		}()
	}
	pods, err := walk(t, f)
	var b *BrokenError
	if !errors.As(err, &b) || b.Path != dir {
		t.Errorf("%v, want a BrokenError naming %s", err, dir)
	}
	if len(pods) != 2 {
		t.Errorf("the other pods: %+v", pods)
	}
}

func TestWalkPodsStopsAtVisit(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	err := openTree(t, "v1").WalkPods(func(PodPath) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d visits, %v", n, err)
	}
}
