package eviction

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// What this very machine offers is taken into use without a complaint, and let
// go of again.
func TestRealWakeups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: asks the kernel for events and makes a cgroup")
	}
	const mount = "/sys/fs/cgroup"
	fs, err := cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: mount})
	if err != nil {
		t.Skipf("needs a machine: %v", err)
	}
	meminfo, err := fs.OpenMeminfo()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = meminfo.Close() }()
	var info cgroupfs.Meminfo
	if err := meminfo.Read(&info); err != nil {
		t.Fatal(err)
	}
	v2 := fs.Mode() == cgroupfs.V2
	if v2 {
		makePodsCgroup(t, mount)
	}

	log, lines := quietLog()
	w := newWakeups(RealKernelEvents{FS: fs}, log)
	w.waker = openWaker(t)
	before := openFiles(t)
	// A threshold this high can be passed however much page cache there is.
	in := wakeInput{capacity: info.MemTotal, threshold: info.MemTotal - 64*mi}
	w.keep(t0, in)
	for _, s := range w.states() {
		t.Logf("%s: in use %v, %s", s.Source, s.InUse, s.Detail)
	}
	if s := w.states()[wakeUsage]; s.InUse == v2 {
		t.Errorf("%s: %+v", fs.Mode(), s)
	}
	if s := w.states()[wakePods]; s.InUse != v2 {
		t.Errorf("%s: %+v", fs.Mode(), s)
	}
	if _, err := os.Stat("/proc/pressure/memory"); err == nil && !w.states()[wakePressure].InUse {
		// a kernel with PSI may still not give a trigger to us
		t.Logf("no PSI trigger: %s", w.states()[wakePressure].Detail)
	}
	for i := range 20 {
		w.keep(t0.Add(time.Duration(i)*wakeupsEvery), in)
	}
	w.waker.wait(20 * time.Millisecond)
	w.closeAll()
	if got := lines.at(logrus.WarnLevel); len(got) != 0 {
		t.Errorf("warnings %q", got)
	}
	if got := lines.at(logrus.InfoLevel); len(got) != 1 || !strings.HasPrefix(got[0], "kernel wake-ups") {
		t.Errorf("lines %q", got)
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// makePodsCgroup makes a cgroup for pods below a cgroup root of its own.
func makePodsCgroup(t *testing.T, mount string) {
	t.Helper()
	root := filepath.Join(mount, fmt.Sprintf("cri-evictd-test-%d", os.Getpid()))
	pods := filepath.Join(root, "kubepods")
	t.Cleanup(func() {
		for _, d := range []string{pods, root} {
			if err := os.Remove(d); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	})
	if err := os.MkdirAll(pods, 0o755); err != nil {
		t.Skipf("needs a writable cgroup hierarchy: %v", err)
	}
	for _, d := range []string{mount, root} {
		if err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Skipf("needs the memory controller: %v", err)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	return len(names)
}
