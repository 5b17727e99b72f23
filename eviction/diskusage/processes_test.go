package diskusage

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// A file that a process of a real cgroup deleted is found, and is nobody's any
// more when the process has ended: a stop frees it.
func TestDeletedFileOfARealCgroup(t *testing.T) {
	needRoot(t)
	fs, err := cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if err != nil {
		t.Skipf("no cgroups here: %v", err)
	}
	root := "/sys/fs/cgroup"
	if fs.Mode() != cgroupfs.V2 {
		root = filepath.Join(root, "memory")
	}
	name := fmt.Sprintf("/evictd-diskusage-%d", os.Getpid())
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })

	// A shell that keeps the file open, says so, and ends with its input.
	at := t.TempDir()
	file := put(t, 1<<20, at, "data")
	settle(t, at)
	cmd := exec.Command("sh", "-c", `exec 9<"$1"; rm "$1"; echo ready; read x`, "sh", file)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = cmd.Wait() // read fails at the end of its input
		}
	}
	t.Cleanup(end)
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q %v", line, err)
	}

	o := newOpen(t, at)
	o.procs, o.cgroups = CgroupProcesses{FS: fs}, []string{name}
	if !o.step(never) || len(o.found) != 1 || o.found[0].blocks*512 != 1<<20 || o.found[0].inodes != 1 || o.why != "" {
		t.Errorf("%+v %q", o.found, o.why)
	}
	if pids, err := o.procs.Pids(name, nil); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("%v %v", pids, err)
	}
	end()
	o = newOpen(t, at)
	o.procs, o.cgroups = CgroupProcesses{FS: fs}, []string{name, "/evictd-none"}
	if !o.step(never) || len(o.found) != 0 || o.why != "" {
		t.Errorf("%+v %q", o.found, o.why)
	}
}
