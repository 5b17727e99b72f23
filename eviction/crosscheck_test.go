package eviction

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// countedRoot is a RootSource.
type countedRoot struct {
	mu              sync.Mutex
	usage, inactive uint64
	err             error
	reads           int
}

func (c *countedRoot) Read() (uint64, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return c.usage, c.inactive, c.err
}

func (c *countedRoot) fail(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
}

func (c *countedRoot) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// Design §7: memory.stat is a calm-time cross-check, never in the alarm path.
func TestCrossCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		root := &countedRoot{usage: 10 * gi, inactive: 3 * gi}
		r.rootCheck = root
		stop := r.start()
		defer stop()
		pass(35 * time.Second)
		if n := r.eng.State().Memory; n.KubeletSources != 9*gi || n.KubeletSourcesTime.IsZero() || n.AvailableKubelet != 8*gi {
			t.Errorf("kubelet's own sources %d at %v", n.KubeletSources, n.KubeletSourcesTime)
		}
		if n := root.count(); n != 4 {
			t.Errorf("%d readings in 35 s", n)
		}
		r.node.setAvailable(400 * mi)
		pass(time.Minute)
		if n := root.count(); n != 4 {
			t.Errorf("%d readings in an alarm", n-4)
		}
		r.node.setAvailable(8 * gi)
		root.fail(errors.New("input/output error"))
		pass(11 * time.Second)
		if n := r.eng.State().Memory; n.KubeletSources != 0 {
			t.Errorf("still shown: %d", n.KubeletSources)
		}
	})
}
