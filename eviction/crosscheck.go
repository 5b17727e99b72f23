package eviction

import (
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// crossCheckEvery is how often kubelet's own sources are read in calm times when
// they are not what is compared.
const crossCheckEvery = 10 * time.Second

// crossCheck compares kubelet's reading, which is computed from /proc/meminfo,
// with kubelet's own sources (design §7). It is for the reader of explain; nothing
// is decided by it. Its fields are the loop's own but for what latest shows.
type crossCheck struct {
	root RootSource
	last time.Time
}

// readCrossCheck reads kubelet's own sources now and then, never in an alarm:
// memory.stat contends with the reclaiming kernel.
func (e *Engine) readCrossCheck() {
	c, l := &e.cross, &e.sampler.latest
	now := e.clock()
	if c.root == nil || l.met.Load() || now.Sub(c.last) < crossCheckEvery {
		return
	}
	c.last = now
	usage, inactive, err := c.root.Read()
	if err != nil {
		l.checkedAt.Store(0)
		return
	}
	l.checked.Store(cgroupfs.KubeletAvailableFrom(l.capacity.Load(), usage, inactive, l.hugePools.Load()))
	l.checkedAt.Store(l.of(now))
}
