package eviction

import (
	"slices"
	"testing"
	"time"
)

// nearDisks notes which devices it was told of.
type nearDisks struct {
	*fakeDisks
	told []uint64
}

func (n *nearDisks) Near(devices []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = slices.Clone(devices)
}

// Whoever measures pods is told where a threshold is near, and when it is not any
// more.
func TestNearDevicesAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		near := &nearDisks{fakeDisks: f}
		r.slow.Usage = near
		f.mount("/img", 2, 60*gi)
		defer r.start()()
		for _, step := range []struct {
			available uint64
			want      []uint64
		}{{60 * gi, nil}, {33 * gi, []uint64{2}}, {60 * gi, nil}} {
			f.set("/img", step.available)
			pass(5 * time.Second)
			near.mu.Lock()
			got := near.told
			near.mu.Unlock()
			if !slices.Equal(got, step.want) {
				t.Errorf("with %d available: told of %d, want %d", step.available, got, step.want)
			}
		}
	})
}
