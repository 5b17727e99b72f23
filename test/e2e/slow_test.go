package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// onLoop puts containerd's root on an ext4 file system of its own, an image file in
// the scratch folder: what it runs out of is nobody else's.
func onLoop(t *testing.T, size int64, inodes int) func(dir string) {
	return func(dir string) {
		t.Helper()
		image, root := filepath.Join(dir, "disk.img"), filepath.Join(dir, "root")
		run := func(name string, args ...string) {
			t.Helper()
			if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s %q: %v\n%s", name, args, err, out)
			}
		}
		if err := os.Mkdir(root, 0o711); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(image)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		run("mkfs.ext4", "-q", "-F", "-m", "0", "-N", fmt.Sprint(inodes), image)
		run("mount", "-o", "loop", image, root)
		t.Cleanup(func() { run("umount", root) })
	}
}

// slowOnly is a configuration without a memory threshold.
func (n *node) slowOnly(thresholds string) string {
	return n.defaults(`evictionHard:
  memory.available: "0%"
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
` + thresholds + "evictionPressureTransitionPeriod: 1s\n")
}

// serveSlow starts cri-evictd with these thresholds.
func (n *node) serveSlow(thresholds string) *daemon {
	n.t.Helper()
	d := n.start(binary(n.t, ""), nil, "serve", "--config", n.slowOnly(thresholds))
	eventually(n.t, "cri-evictd ready", 60*time.Second, func() bool {
		s, err := d.admin().Status(n.t.Context())
		return err == nil && s.Engine.Inventory.Listed && s.Proxy.Reachable && s.Proxy.UpstreamState == "READY"
	})
	return d
}

// A pod that makes processes without end is the victim, and not its neighbours;
// the tasks come back.
func TestForkBombIsEvicted(t *testing.T) {
	n := newNode(t, lab.Current)
	fs, err := cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := fs.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	const margin = 400
	d := n.serveSlow(fmt.Sprintf("  imagefs.available: \"0%%\"\n  imagefs.inodesFree: \"0%%\"\n  pid.available: %d\n", before.Available()-margin))
	neighbour := n.run(d.cri, n.pod("neighbour", "Burstable", 128*mi, "fork", "--count", "3"))
	time.Sleep(2 * time.Second) // the threshold is seen clear

	bombSpec := n.pod("bomb", "Burstable", 128*mi, "fork", "--count", "300")
	n.run(d.cri, bombSpec)
	hold := d.waitKilled(bombSpec.UID)
	if hold.Signal != "pid.available" || hold.Available >= hold.Threshold || hold.Usage < margin/2 {
		t.Errorf("the numbers of the hold make no sense: %s", jsonText(hold))
	}
	if got := d.evictions(); len(got) != 1 || got["bomb"] != 1 {
		t.Errorf("evicted %v, want the bomb alone, once", got)
	}
	n.mustRun("the neighbour", neighbour.ContainerIDs[0])
	mustBeRefused(t, d, bombSpec)
	eventually(t, "the tasks are back", 30*time.Second, func() bool {
		now, err := fs.PIDs()
		return err == nil && now.Available()+margin/2 > before.Available()-margin/2
	})
}
