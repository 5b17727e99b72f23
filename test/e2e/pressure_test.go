package e2e

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// margin is how many bytes have to be allocated until the threshold is crossed:
// enough that a compiler or two beside the test do not cross it. A machine made
// for the tests has less memory and no compilers; what the shims of a few pods, the
// daemon and min_free_kbytes take of it is the same, 200 MiB or so.
func (n *node) margin() int64 {
	if here(n.t).own {
		return n.memTotal / 3
	}
	return 2048 * mi
}

// ballastSize is the part of the margin that an innocent pod holds, inside its
// request. When it ends there is room for the hog again; alone, a hog that caused
// the pressure would not fit and stays held (design §10).
func (n *node) ballastSize() int64 {
	if here(n.t).own {
		return n.margin() / 2
	}
	return n.margin() / 8 * 5
}

// threshold returns a hard threshold that margin bytes of allocation cross, so
// that pressure is real and shortage is not.
func (n *node) threshold() uint64 {
	m := n.meminfo()
	return max(m.KernelAvailable(), m.KubeletAvailable()) - uint64(n.margin())
}

// hogArgs allocate well past the margin, on a machine with other users at most a
// quarter of what is there. The excess makes up for memory of the test before that
// shows only now: the kernel keeps what a process gave back on per-CPU lists for
// seconds.
func (n *node) hogArgs(more ...string) []string {
	m := n.meminfo()
	limit := int64(m.MemAvailable / 4)
	if here(n.t).own {
		limit = int64(m.MemAvailable / 2)
	}
	total := min(n.margin()*7/4, limit)
	if total < n.margin() {
		n.t.Fatalf("needs %d MiB of free memory for a hog that leaves enough, has %d", 4*n.margin()/mi, m.MemAvailable/mi)
	}
	return append([]string{"alloc", "--total", fmt.Sprintf("%dMi", total/mi), "--rate", "500Mi"}, more...)
}

// ballast starts a pod that fills a part of the margin and stays inside its
// request.
func (n *node) ballast(rt runtimeapi.RuntimeServiceClient) lab.Running {
	n.t.Helper()
	args := []string{"alloc", "--total", fmt.Sprintf("%dMi", n.ballastSize()/mi), "--rate", "1000Mi"}
	spec := n.pod("ballast", "Guaranteed", 2*n.ballastSize(), args...)
	r := n.run(rt, spec)
	eventually(n.t, "ballast filled", 60*time.Second, func() bool {
		return n.usage(spec) > uint64(n.ballastSize())*9/10
	})
	return r
}

// usage is what a pod's cgroup is charged with, in bytes; 0 if it cannot be read.
func (n *node) usage(spec lab.PodSpec) uint64 {
	n.t.Helper()
	path, err := cgroupfs.ResolveParent(spec.CgroupParent)
	if err != nil {
		n.t.Fatal(err)
	}
	fs, err := cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if err != nil {
		n.t.Fatal(err)
	}
	pod, err := fs.OpenPod(path)
	if err != nil {
		return 0
	}
	defer func() { _ = pod.Close() }()
	u, err := pod.Usage()
	if err != nil {
		return 0
	}
	return u
}
