package kubeletdiff

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// side is whose view of the world it is. Both are the same but for the garbage that
// kubelet collects: it is gone for the rest of that pass only, as its victims live
// on, and for good once ours has collected it.
type side int

const (
	kubeletView side = iota
	ourView
	sides
)

// garbageKind is a kind of what can be collected without ending anybody.
type garbageKind int

const (
	deadContainers garbageKind = iota
	unusedImages
	garbageKinds
)

// world is the node as both sides see it.
type world struct {
	sc *Scenario
	// memory and storage are the pods' requests by kubelet's own formula.
	memory, storage []int64

	mu    sync.Mutex
	step  int
	dead  map[string]bool
	freed map[eviction.Signal]uint64 // in this step, by pods that ended
	// collected: this step's garbage is gone for a side.
	collected [sides][garbageKinds]bool
}

func newWorld(sc *Scenario) *world {
	w := &world{sc: sc, step: before, dead: map[string]bool{}, freed: map[eviction.Signal]uint64{}}
	for i := range sc.Pods {
		w.memory = append(w.memory, sc.Pods[i].request(v1.ResourceMemory))
		w.storage = append(w.storage, sc.Pods[i].request(v1.ResourceEphemeralStorage))
	}
	return w
}

// before is the step before the first one: calm.
const before = -1

// now is the present step; mu is held.
func (w *world) now() *Step { return &w.sc.Steps[max(w.step, 0)] }

// enter makes a step's numbers the present.
func (w *world) enter(step int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step = step
	w.collected = [sides][garbageKinds]bool{}
	clear(w.freed)
}

// available is what a side sees of a signal now, in its unit.
func (w *world) available(of side, sig eviction.Signal) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.step == before {
		return capacityOf(sig)
	}
	source := w.sc.Layout.source(sig)
	n := w.now().Available[source] + w.freed[source]
	for kind, gone := range w.collected[ourView] {
		if gone || w.collected[of][kind] {
			n += w.garbage(garbageKind(kind), source)
		}
	}
	return min(n, capacityOf(sig))
}

// garbage is what one kind of it takes of a source signal in this step; mu is
// held.
func (w *world) garbage(kind garbageKind, source eviction.Signal) uint64 {
	if w.sc.Layout.lies(kind, source) {
		if kind == unusedImages {
			return w.now().Garbage.Images.in(source)
		}
		return w.now().Garbage.Containers.in(source)
	}
	return 0
}

// lies says whether garbage of a kind is on the device of a signal.
func (l Layout) lies(kind garbageKind, sig eviction.Signal) bool {
	bytes, inodes := eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree
	if kind == unusedImages {
		bytes, inodes = eviction.ImageFsAvailable, eviction.ImageFsInodesFree
	}
	return l.source(sig) == l.source(bytes) || l.source(sig) == l.source(inodes)
}

// in is the part of files that a signal counts.
func (f Files) in(sig eviction.Signal) uint64 {
	switch sig.Unit() {
	case eviction.Inodes:
		return f.Inodes
	case eviction.Tasks:
		return 0
	}
	return f.Bytes
}

// source is the signal of the device that a signal is about.
func (l Layout) source(sig eviction.Signal) eviction.Signal {
	node, inodes := eviction.NodeFsAvailable, eviction.NodeFsInodesFree
	image, imageInodes := eviction.ImageFsAvailable, eviction.ImageFsInodesFree
	if l == SingleFs {
		image, imageInodes = node, inodes
	}
	switch sig {
	case eviction.ImageFsAvailable:
		return image
	case eviction.ImageFsInodesFree:
		return imageInodes
	case eviction.ContainerFsAvailable:
		if l == ImageFs {
			return image
		}
		return node
	case eviction.ContainerFsInodesFree:
		if l == ImageFs {
			return imageInodes
		}
		return inodes
	}
	return sig
}

// thresholdsOf is the signal whose thresholds a signal has: those written for
// containerfs are replaced by copies (Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go UpdateContainerFsThresholds).
func (l Layout) thresholdsOf(sig eviction.Signal) eviction.Signal {
	switch sig {
	case eviction.ContainerFsAvailable:
		if l == ImageFs {
			return eviction.ImageFsAvailable
		}
		return eviction.NodeFsAvailable
	case eviction.ContainerFsInodesFree:
		if l == ImageFs {
			return eviction.ImageFsInodesFree
		}
		return eviction.NodeFsInodesFree
	}
	return sig
}

// on is what a pod has on the device of a signal, in its unit: what ends with it.
func (l Layout) on(sig eviction.Signal, u Use) uint64 {
	switch sig {
	case eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable:
		return u.Memory
	case eviction.PIDAvailable:
		return u.Processes
	}
	var n uint64
	if source := l.source(sig); source == eviction.NodeFsAvailable || source == eviction.NodeFsInodesFree {
		n = u.Logs.in(sig) + u.Volume.in(sig)
	}
	if l.lies(deadContainers, sig) { // where writable layers are
		n += u.Layer.in(sig)
	}
	return n
}

// collect removes one kind of garbage for a side.
func (w *world) collect(of side, kind garbageKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.step != before {
		w.collected[of][kind] = true
	}
}

// collectedBy says what a side has collected.
func (w *world) collectedBy(of side) [garbageKinds]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.collected[of]
}

// passOver undoes what kubelet collected in its pass.
func (w *world) passOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.collected[kubeletView] = [garbageKinds]bool{}
}

// alive lists the indexes of the pods that run.
func (w *world) alive() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []int
	for i := range w.sc.Pods {
		if !w.dead[w.sc.Pods[i].Name] {
			out = append(out, i)
		}
	}
	return out
}

// use is what a pod uses now; ok is false when it has ended.
func (w *world) use(i int) (u Use, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead[w.sc.Pods[i].Name] {
		return Use{}, false
	}
	return w.now().Pods[i], true
}

// end ends a pod: what it used is available at once.
func (w *world) end(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead[name] {
		return
	}
	w.dead[name] = true
	for i := range w.sc.Pods {
		if w.sc.Pods[i].Name != name {
			continue
		}
		for _, sig := range eviction.Signals() {
			if w.sc.Layout.source(sig) == sig {
				w.freed[sig] += w.sc.Layout.on(sig, w.now().Pods[i])
			}
		}
	}
}
