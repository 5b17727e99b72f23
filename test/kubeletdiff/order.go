package kubeletdiff

import (
	"cmp"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// key is what kubelet's order for a signal sees of a pod: those with equal keys
// are a set of equals, of which its unstable sort may put any first.
type key struct {
	signal     eviction.Signal
	unmeasured bool
	over       bool
	priority   int32
	excess     int64
}

// keyOf reads the world as the comparators of Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go, do.
func (w *world) keyOf(i int, sig eviction.Signal) key {
	p := &w.sc.Pods[i]
	u, _ := w.use(i)
	k := key{signal: sig, unmeasured: !u.Measured}
	if p.Priority != nil {
		k.priority = *p.Priority
	}
	if !u.Measured {
		return k
	}
	usage := int64(w.sc.Layout.on(sig, u))
	switch sig {
	case eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable:
		k.excess = usage - w.memory[i]
		k.over = k.excess > 0
	case eviction.PIDAvailable:
		k.excess = usage
	case eviction.NodeFsAvailable, eviction.ImageFsAvailable, eviction.ContainerFsAvailable:
		k.excess = usage - w.storage[i]
		k.over = k.excess > 0
	default:
		// The request that is taken off an inode count is one of bytes.
		k.excess = usage - w.storage[i]
		k.over = usage > 0
	}
	return k
}

// before is negative when a pod with key a goes before one with key b.
func (a key) before(b key) int {
	first := func(x, y bool) int {
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	}
	unmeasured, priority := first(a.unmeasured, b.unmeasured), cmp.Compare(a.priority, b.priority)
	if a.signal == eviction.PIDAvailable {
		return cmp.Or(priority, unmeasured, cmp.Compare(b.excess, a.excess))
	}
	return cmp.Or(unmeasured, first(a.over, b.over), priority, cmp.Compare(b.excess, a.excess))
}

// beaten looks for a pod that kubelet may take and that goes before another in its
// order; first is true when there is none.
func (w *world) beaten(i int, sig eviction.Signal) (by int, first bool) {
	own := w.keyOf(i, sig)
	for _, j := range w.alive() {
		if !w.sc.Pods[j].isCritical() && w.keyOf(j, sig).before(own) < 0 {
			return j, false
		}
	}
	return 0, !w.sc.Pods[i].isCritical()
}

// isCritical says whether kubelet never evicts the pod.
func (p *Pod) isCritical() bool {
	return p.Static || p.Priority != nil && *p.Priority >= critical
}

func (w *world) index(name string) int {
	for i := range w.sc.Pods {
		if w.sc.Pods[i].Name == name {
			return i
		}
	}
	return -1
}
