package eviction

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

const (
	sharedHogEnv  = "CRI_EVICTD_TEST_SHARED_HOG"
	sharedHogSize = 192 * mi
)

// TestSharedHogProcess is not a test: it is the hog of TestRealSharedMemory,
// which starts this binary again.
func TestSharedHogProcess(t *testing.T) {
	kind := os.Getenv(sharedHogEnv)
	if kind == "" {
		t.Skip("only as a child of TestRealSharedMemory")
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil { // it is in its cgroup now
		t.Fatal(err)
	}
	fd, flags := -1, unix.MAP_SHARED|unix.MAP_ANONYMOUS
	if kind == "shm" {
		f, err := os.CreateTemp("/dev/shm", "cri-evictd-test-")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(f.Name()); err != nil { // it ends with us
			t.Fatal(err)
		}
		if err := f.Truncate(sharedHogSize); err != nil {
			t.Fatal(err)
		}
		fd, flags = int(f.Fd()), unix.MAP_SHARED
	}
	b, err := unix.Mmap(fd, 0, sharedHogSize, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	fmt.Println("touched")
	_, _ = io.Copy(io.Discard, in) // until we are killed or our parent is gone
}

// realPod makes a pod's cgroup in the mounted hierarchy of the memory controller.
func realPod(t *testing.T, uid string) (fs *cgroupfs.FS, path string, procs []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups and kills the process in one")
	}
	path = fmt.Sprintf("/cri-evictd-test-%d/kubepods/burstable/pod%s", os.Getpid(), uid)
	root, hierarchies := "/sys/fs/cgroup", []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/freezer"}
	if b, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		if !strings.Contains(string(b), "memory") {
			t.Skip("needs the memory controller at the root of the v2 hierarchy")
		}
		hierarchies = []string{root}
	} else if _, err := os.Stat(hierarchies[0] + "/memory.usage_in_bytes"); err != nil {
		t.Skip("needs a mounted memory controller")
	}
	for _, h := range hierarchies {
		dir := h
		for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
			if len(hierarchies) == 1 { // v2
				if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
					t.Skipf("needs a writable v2 hierarchy: %v", err)
				}
			}
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
				t.Skipf("needs a writable hierarchy: %v", err)
			}
			made := dir // dir goes on to the next level
			t.Cleanup(func() { removeCgroup(made) })
		}
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
	}
	fs, err := cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: root})
	if err != nil {
		t.Fatal(err)
	}
	return fs, path, procs
}

// removeCgroup removes a cgroup once its last process is gone for good.
func removeCgroup(dir string) {
	for range 200 {
		if err := unix.Rmdir(dir); err == nil || !os.IsExist(err) && err != unix.EBUSY {
			return
		}
		time.Sleep(10 * time.Millisecond) // the kernel says nothing when a cgroup may go
	}
}

// A pod whose memory is all shared is measured like any other, and what its stop
// gives back is predicted within 10 %, by the cgroup's and by the node's numbers.
func TestRealSharedMemory(t *testing.T) {
	for _, kind := range []string{"anonymous", "shm"} {
		t.Run(kind, func(t *testing.T) {
			fs, path, procs := realPod(t, "11111111-2222-3333-4444-555555555555")
			hog := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSharedHogProcess$", "-test.v")
			hog.Env = append(os.Environ(), sharedHogEnv+"="+kind)
			in, err := hog.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := hog.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := hog.Start(); err != nil {
				t.Fatal(err)
			}
			reaped := make(chan struct{})
			t.Cleanup(func() { _ = hog.Process.Kill(); <-reaped })
			for _, p := range procs {
				if err := os.WriteFile(p, []byte(strconv.Itoa(hog.Process.Pid)), 0); err != nil {
					t.Error(err)
				}
			}
			if _, err := io.WriteString(in, "go\n"); err != nil {
				t.Error(err)
			}
			touched := false
			for lines := bufio.NewScanner(out); !touched && lines.Scan(); {
				touched = strings.Contains(lines.Text(), "touched")
			}
			go func() { _ = hog.Wait(); close(reaped) }()
			if !touched {
				t.Fatal("the hog came to nothing")
			}

			log, _ := quietLog()
			pl := newPlanner(RealCgroups{FS: fs}, Protection{}, log)
			defer pl.closeAll()
			r := &planRig{planner: pl, t: t, in: planInput{now: t0}}
			pod := r.only(r.plan(0, inventoryPod("11111111-2222-3333-4444-555555555555", path, true)))
			if pod.Barred != "" || pod.NoDirect != "" {
				t.Fatalf("barred %q, no direct kill %q", pod.Barred, pod.NoDirect)
			}
			var c Candidate
			pod.measure(&c)
			usage := func() uint64 { u, _ := pod.usage(); return u }
			before, shmem := usage(), shmemNow(t, fs)
			if _, err := pod.cgroups[0].Kill(); err != nil {
				t.Fatal(err)
			}
			<-reaped
			var freed, nodeFreed uint64
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				after, node := usage(), shmemNow(t, fs)
				freed, nodeFreed = before-min(before, after), shmem-min(shmem, node)
				if within(c.Gain, freed) && within(c.Gain, nodeFreed) {
					break
				}
			}
			t.Logf("predicted %d MiB, the cgroup gave back %d, the node %d", c.Gain/mi, freed/mi, nodeFreed/mi)
			if !c.Known || c.Gain < sharedHogSize*9/10 || !within(c.Gain, freed) || !within(c.Gain, nodeFreed) {
				t.Errorf("predicted %d MiB; the cgroup gave back %d, the node %d", c.Gain/mi, freed/mi, nodeFreed/mi)
			}
		})
	}
}

// within says whether two amounts are within 10 % of each other.
func within(predicted, real uint64) bool {
	return max(predicted, real)-min(predicted, real) <= predicted/10
}

func shmemNow(t *testing.T, fs *cgroupfs.FS) uint64 {
	t.Helper()
	r, err := fs.OpenMeminfo()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read only
	var m cgroupfs.Meminfo
	if err := r.Read(&m); err != nil {
		t.Fatal(err)
	}
	return m.Shmem
}
