package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// graceTimeout bounds stopping the pods the polite way, through CRI.
	graceTimeout = 15 * time.Second
	// killTimeout bounds the wait for killed processes, and their cgroups, to
	// disappear: the kernel frees about 12 GiB/s, and builds may run beside us.
	killTimeout = 20 * time.Second
)

// Cleanup ends and removes everything this containerd has started and made:
// pods, shims, mounts, cgroups (QoS levels and kubepods only if nobody else
// uses them), sockets, its folder. It works the same after Kill, with pods
// running, and after the context of StartContainerd has ended, and may be
// called again. The caller's own folder stays, see NewScratch.
func (c *Containerd) Cleanup() error {
	c.left.collect(c.layout)
	// The polite way runs runc's and the shims' own clean-up. What it does
	// not manage is done by force afterwards, so that its errors do not count.
	if c.Pid() != 0 {
		c.stopPods()
	}
	stopErr := c.Stop()
	return errors.Join(stopErr, sweep(c.layout, &c.left))
}

// Leftovers lists what is left of this containerd; see the function Leftovers.
// It also knows the cgroups and sockets after the folder has gone.
func (c *Containerd) Leftovers() []string {
	c.left.collect(c.layout)
	return leftovers(c.layout.dir, &c.left)
}

// stopPods stops and removes every sandbox through CRI.
func (c *Containerd) stopPods() {
	ctx, cancel := context.WithTimeout(context.Background(), graceTimeout)
	defer cancel()
	conn, err := c.Dial()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }() // only used here
	rt := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	for _, sandbox := range list.Items {
		wg.Go(func() {
			if err := RemovePod(ctx, rt, sandbox.Id); err != nil {
				fmt.Fprintf(c.opts.Log, "lab: cleanup: %v (going on by force)\n", err)
			}
		})
	}
	wg.Wait()
}

// sweep removes what the lab in l has made, by force and without containerd.
func sweep(l layout, t *traces) error {
	t.collect(l)
	id := newIdentity(l.dir)
	err := errors.Join(
		id.kill(killTimeout),
		unmountBelow(l.dir),
		stopSlices(t.systemdSlices()),
		t.removeCgroups(killTimeout),
		t.removeSockets(),
	)
	if err != nil {
		return err // the folder is what the next try finds the rest by
	}
	return removeAll(l.dir)
}

// unmountBelow takes away every mount at or below dir, the deepest first.
func unmountBelow(dir string) error {
	// One mount can be on top of another: look again until none is left.
	for range 10 {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		if len(mounts) == 0 {
			return nil
		}
		slices.SortFunc(mounts, func(a, b *mountinfo.Info) int { return len(b.Mountpoint) - len(a.Mountpoint) })
		for _, m := range mounts {
			err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: went with its parent
				return fmt.Errorf("lab: unmount %s: %w", m.Mountpoint, err)
			}
		}
	}
	return fmt.Errorf("lab: mounts below %s come back", dir)
}

// stopSlices stops the pods' slices where the systemd driver was used. Without
// systemd a slice's name is a directory like any other.
func stopSlices(names []string) error {
	if len(names) == 0 {
		return nil
	}
	if _, err := os.Stat("/run/systemd/system"); errors.Is(err, fs.ErrNotExist) {
		return nil // as sd_booted(3) tells
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	args := append([]string{"stop", "--"}, names...)
	if out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("lab: systemctl stop %v: %w\n%s", names, err, lastLines(out, 5))
	}
	return nil
}

// removeSockets removes the sockets of 1.6's shims, which have a fixed place,
// and the place itself if that leaves it empty.
func (t *traces) removeSockets() error {
	var errs []error
	for _, p := range keys(t.sockets) {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("lab: shim socket: %w", err))
		}
	}
	if len(t.sockets) > 0 {
		for _, dir := range []string{shimSocketRoot, filepath.Dir(shimSocketRoot)} {
			if err := unix.Rmdir(dir); err != nil {
				break // in use, or not there
			}
		}
	}
	return errors.Join(errs...)
}

// removeAll is os.RemoveAll, tried again while something that was just killed
// still writes there.
func removeAll(dir string) error {
	var err error
	for range 10 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	return fmt.Errorf("lab: %w", err)
}
