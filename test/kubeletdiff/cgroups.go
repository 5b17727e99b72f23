package kubeletdiff

import (
	"strings"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
)

const podsPath = "/kubepods"

func cgroupPath(p *Pod) string { return podsPath + "/burstable/pod" + p.Name }

// tree is the cgroups and /proc/meminfo of the world.
type tree struct {
	w    *world
	ours *oursSide
}

// Read implements eviction.MeminfoSource. kubelet's own reading does not come from
// it, and the kernel's, which is another one, is not asked.
func (t *tree) Read(m *cgroupfs.Meminfo) error {
	a := t.w.available(ourView, eviction.MemoryAvailable)
	*m = cgroupfs.Meminfo{MemTotal: nodeBytes, MemAvailable: a / 2, HasAvailable: true, AnonPages: nodeBytes - a, HasKubelet: true}
	return nil
}

// Open implements eviction.Cgroups.
func (t *tree) Open(path string) (eviction.OpenCgroup, error) {
	for _, i := range t.w.alive() {
		if cgroupPath(&t.w.sc.Pods[i]) == path {
			return cgroup{t, i}, nil
		}
	}
	return nil, cgroupfs.ErrGone
}

// Foreign implements eviction.Cgroups.
func (t *tree) Foreign(eviction.OpenCgroup) ([]string, error) { return nil, nil }

// Container implements eviction.Cgroups and inventory.Tree.
func (t *tree) Container(parent, id string) (string, bool) {
	return parent + "/" + id, strings.HasSuffix(parent, id)
}

// Freezes implements eviction.Cgroups.
func (t *tree) Freezes() bool { return false }

// MemoryVolumes implements eviction.Cgroups.
func (t *tree) MemoryVolumes(string) uint64 { return 0 }

// Pods implements inventory.Tree.
func (t *tree) Pods() ([]cgroupfs.PodPath, error) {
	var out []cgroupfs.PodPath
	for _, i := range t.w.alive() {
		if p, ok := cgroupfs.ParsePodPath(cgroupPath(&t.w.sc.Pods[i])); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

// Recover implements inventory.Tree.
func (t *tree) Recover(string, inventory.Container) (inventory.Recovered, bool) {
	return inventory.Recovered{}, false
}

// CgroupOf implements inventory.Tree.
func (t *tree) CgroupOf(int) (string, error) { return "", cgroupfs.ErrGone }

// cgroup is one pod's.
type cgroup struct {
	t   *tree
	pod int
}

// Usage implements eviction.Cgroup.
func (c cgroup) Usage() (uint64, error) {
	u, ok := c.t.w.use(c.pod)
	switch {
	case !ok:
		return 0, cgroupfs.ErrGone
	case !u.Measured:
		return 0, errNone
	}
	return u.Memory + c.t.w.sc.Pods[c.pod].Inactive, nil
}

// InactiveFile implements eviction.Cgroup.
func (c cgroup) InactiveFile() (uint64, error) { return c.t.w.sc.Pods[c.pod].Inactive, nil }

// MemoryStat implements eviction.Cgroup.
func (c cgroup) MemoryStat(m *cgroupfs.MemoryStat) error {
	*m = cgroupfs.MemoryStat{InactiveFile: c.t.w.sc.Pods[c.pod].Inactive}
	return nil
}

// Populated implements eviction.Cgroup.
func (c cgroup) Populated() (bool, error) {
	_, ok := c.t.w.use(c.pod)
	return ok, nil
}

// Kill implements eviction.Cgroup.
func (c cgroup) Kill() (int, error) {
	c.t.ours.endWith(c.t.w.sc.Pods[c.pod].Name, 0)
	return 1, nil
}

// KillByPidfd implements eviction.Cgroup.
func (c cgroup) KillByPidfd() (int, error) { return c.Kill() }

// Thaw implements eviction.Cgroup.
func (c cgroup) Thaw() error { return nil }

// Inode implements eviction.OpenCgroup.
func (c cgroup) Inode() uint64 { return uint64(c.pod) + 1 }

// Close implements eviction.OpenCgroup.
func (c cgroup) Close() error { return nil }

// rootMemory is what kubelet reads for the whole node.
type rootMemory struct{ w *world }

// Read implements eviction.RootSource.
func (r rootMemory) Read() (usage, inactive uint64, err error) {
	return nodeBytes - r.w.available(ourView, eviction.MemoryAvailable), 0, nil
}

// podsMemory is the cgroup of all pods.
type podsMemory struct{ w *world }

// Path implements eviction.PodsMemory.
func (podsMemory) Path() string { return podsPath }

// Usage implements eviction.PodsMemory.
func (p podsMemory) Usage() (uint64, error) {
	return capacityOf(eviction.AllocatableMemoryAvailable) - p.w.available(ourView, eviction.AllocatableMemoryAvailable), nil
}

// Limit implements eviction.PodsMemory.
func (podsMemory) Limit() (uint64, error) {
	return capacityOf(eviction.AllocatableMemoryAvailable), nil
}

// Stat implements eviction.PodsMemory.
func (podsMemory) Stat(m *cgroupfs.MemoryStat) error {
	*m = cgroupfs.MemoryStat{}
	return nil
}

// Close implements eviction.PodsMemory.
func (podsMemory) Close() error { return nil }
