package eviction

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// RealCgroups is Cgroups and inventory.Tree on a mounted hierarchy.
type RealCgroups struct {
	FS *cgroupfs.FS
	// KubeletRoot is kubelet's root directory; below it are the pods' volumes.
	KubeletRoot string
}

type realCgroup struct {
	*cgroupfs.PodCgroup
	skip []int
}

// Kill ends every process of the subtree. On v1, where the processes have to be
// listed anyway, our own is passed over; on v2 Foreign has made sure that it is
// not there.
func (c realCgroup) Kill() (int, error) {
	return c.PodCgroup.Kill(cgroupfs.KillOptions{Skip: c.skip})
}

// Open implements Cgroups.
func (r RealCgroups) Open(name string) (OpenCgroup, error) {
	p, err := r.FS.OpenPod(name)
	if err != nil {
		return nil, err
	}
	c := realCgroup{PodCgroup: p}
	if r.Freezes() {
		c.skip = []int{os.Getpid()}
	}
	return c, nil
}

// Foreign implements Cgroups.
func (r RealCgroups) Foreign(c OpenCgroup) ([]string, error) {
	pod, ok := c.(realCgroup)
	if !ok {
		return nil, nil
	}
	found, err := r.FS.Foreign(pod.PodCgroup, os.Getpid())
	var names []string
	for _, f := range found {
		names = append(names, fmt.Sprintf("%s (pid %d)", f.Comm, f.Pid))
	}
	return names, err
}

// Freezes implements Cgroups.
func (r RealCgroups) Freezes() bool { return r.FS.Mode() != cgroupfs.V2 }

// Container implements Cgroups. containerd and CRI-O name a container's cgroup
// <parent>/<id> with the cgroupfs driver and <parent>/<prefix>-<id>.scope with
// the systemd driver.
func (r RealCgroups) Container(parent, id string) (string, bool) {
	if id == "" {
		return "", false
	}
	// With the cgroupfs driver a slice name is a directory like any other.
	for _, dir := range []string{parent, path.Base(parent), "k8s.io"} {
		for _, name := range []string{id, "cri-containerd-" + id + ".scope", "crio-" + id + ".scope"} {
			p := path.Join("/", dir, name)
			if c, err := r.FS.OpenPod(p); err == nil {
				_ = c.Close() // read only; nothing can be lost
				return p, true
			}
		}
	}
	return "", false
}

// MemoryVolumes implements Cgroups: the used bytes of the tmpfs among the pod's
// emptyDirs.
func (r RealCgroups) MemoryVolumes(uid string) uint64 {
	if r.KubeletRoot == "" || uid == "" {
		return 0
	}
	dirs, err := filepath.Glob(filepath.Join(r.KubeletRoot, "pods", filepath.Base(uid), "volumes/kubernetes.io~empty-dir/*"))
	if err != nil {
		return 0
	}
	var total uint64
	for _, d := range dirs {
		var st unix.Statfs_t
		if unix.Statfs(d, &st) == nil && st.Type == unix.TMPFS_MAGIC {
			total += (st.Blocks - st.Bfree) * uint64(st.Bsize)
		}
	}
	return total
}

// Pods implements inventory.Tree.
func (r RealCgroups) Pods() ([]cgroupfs.PodPath, error) {
	var out []cgroupfs.PodPath
	err := r.FS.WalkPods(func(p cgroupfs.PodPath) error {
		out = append(out, p)
		return nil
	})
	return out, err
}

// Recover implements inventory.Tree. A process may raise its own oom_score_adj
// but not lower it without privilege, so a tenant can only make its request
// look smaller.
func (r RealCgroups) Recover(podCgroup string, c inventory.Container) (inventory.Recovered, bool) {
	name, ok := c.Cgroup, c.Cgroup != ""
	if !ok {
		name, ok = r.Container(podCgroup, c.ID)
	}
	if !ok {
		return inventory.Recovered{}, false
	}
	cg, err := r.FS.OpenPod(name)
	if err != nil {
		return inventory.Recovered{}, false
	}
	defer func() { _ = cg.Close() }() // read only; nothing can be lost
	pids, err := cg.Pids(nil)
	if err != nil || len(pids) == 0 {
		return inventory.Recovered{}, false
	}
	adj, err := r.FS.OOMScoreAdj(pids[0])
	if err != nil {
		return inventory.Recovered{}, false
	}
	out := inventory.Recovered{ContainerID: c.ID, OOMScoreAdj: int64(adj)}
	if limit, limited, err := cg.MemoryLimit(); err == nil && limited {
		out.MemoryLimit = int64(min(limit, 1<<62))
	}
	return out, true
}

// CgroupOf implements inventory.Tree.
func (r RealCgroups) CgroupOf(pid int) (string, error) {
	file := filepath.Join(r.FS.Roots().Proc, strconv.Itoa(pid), "cgroup")
	m, err := cgroups.ParseCgroupFile(file)
	if err != nil {
		return "", fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	// v2 has a single entry without a controller's name
	for _, controller := range []string{"memory", ""} {
		if p, ok := m[controller]; ok && p != "/" && filepath.IsAbs(p) {
			return path.Clean(p), nil
		}
	}
	return "", fmt.Errorf("%s: no memory cgroup below the root", file)
}

// OpenPods opens the cgroup of all pods together (Parts.OpenPods).
func (r RealCgroups) OpenPods() (PodsMemory, error) {
	p, err := r.FS.OpenPodsMemory()
	if err != nil {
		return nil, err
	}
	return p, nil
}

// TopLevel is who has the memory, by the cgroups below the root
// (Parts.TopLevel).
func (r RealCgroups) TopLevel() []Consumer {
	var out []Consumer
	for _, c := range r.FS.TopLevelUsage() {
		out = append(out, Consumer{Name: c.Path, Bytes: c.Usage})
	}
	return out
}

// RealKernelEvents is KernelEvents of a mounted hierarchy.
type RealKernelEvents struct{ FS *cgroupfs.FS }

// Usage implements KernelEvents.
func (k RealKernelEvents) Usage(at uint64) (KernelEvent, error) {
	return granted(k.FS.OpenUsageEvent(at))
}

// InactiveFile implements KernelEvents.
func (k RealKernelEvents) InactiveFile() (uint64, error) {
	if k.FS.Mode() == cgroupfs.V2 {
		return 0, fmt.Errorf("cgroup v2 has no usage events: %w", cgroupfs.ErrAbsent)
	}
	root, err := k.FS.OpenRootMemory()
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }() // read only; nothing can be lost
	_, inactive, err := root.Read()
	return inactive, err
}

// Pressure implements KernelEvents.
func (k RealKernelEvents) Pressure() (KernelEvent, error) { return granted(k.FS.OpenPressureEvent()) }

// Pods implements KernelEvents.
func (k RealKernelEvents) Pods() (KernelEvent, error) { return granted(k.FS.OpenPodsEvent()) }

// granted keeps a nil *cgroupfs.Event from becoming an event that is not nil.
func granted(e *cgroupfs.Event, err error) (KernelEvent, error) {
	if err != nil {
		return nil, err
	}
	return e, nil
}
