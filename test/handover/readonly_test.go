package handover

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cri-evictd/cri-evictd/holds"
)

// A file system that the kernel finds damaged turns read-only under the state
// directory. The evictor goes on, says so, and starts on it as well.
func TestStateDirectoryTurnsReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	r := newRig(t, "")
	damage := r.withStateOnItsOwn()
	r.hold()
	r.start("proxy")
	s := r.start("evict")
	cri := r.serving()
	evicts := func() bool { return r.adminPID() == s.cmd.Process.Pid }
	eventually(t, "the evictor answers", evicts)
	if out := r.command("status"); strings.Contains(out, "ledger:") {
		t.Errorf("before: %s", out)
	}
	damage()
	refused(t, cri)
	r.command("holds", "release", "default/hog")
	eventually(t, "status tells of the ledger", func() bool { return strings.Contains(r.command("status"), "ledger:") })
	eventually(t, "the same evictor answers", evicts)
	w := holds.OpenReader(r.path("run"))
	if _, held := w.Held(heldUID); held {
		t.Error("the hold stands, although it was released")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.done
	s = r.start("evict")
	eventually(t, "an evictor starts on a read-only disk", evicts)
	eventually(t, "status tells of it", func() bool { return strings.Contains(r.command("status"), "ledger") })
	r.serving()
}

// withStateOnItsOwn puts a small file system below the state directory; damage turns
// it read-only.
func (r *rig) withStateOnItsOwn() (damage func()) {
	r.t.Helper()
	image, state := r.path("state.img"), r.path("state")
	run := func(name string, args ...string) string {
		r.t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			r.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("dd", "if=/dev/zero", "of="+image, "bs=1M", "count=16")
	run("mke2fs", "-q", "-F", "-t", "ext4", image)
	if err := os.Mkdir(state, 0o700); err != nil {
		r.t.Fatal(err)
	}
	run("mount", "-o", "loop,errors=remount-ro", image, state)
	r.t.Cleanup(func() { run("umount", "-l", state) }) // its processes have ended by then, or end now
	device := filepath.Base(run("findmnt", "-n", "-o", "SOURCE", state))
	return func() {
		r.t.Helper()
		if err := os.WriteFile(filepath.Join("/sys/fs/ext4", device, "trigger_fs_error"), []byte("1"), 0); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, "x"), nil, 0o600); err == nil {
			r.t.Fatal("the disk can be written to")
		}
	}
}

// command runs a command of the program and returns what it prints, whatever it
// thinks of it.
func (r *rig) command(args ...string) string {
	r.t.Helper()
	out, _ := exec.Command(filepath.Join(build(r.t), "v1"), append(args, "--admin-socket", r.path("admin.sock"))...).CombinedOutput()
	return string(out)
}
