package gc

import (
	"cmp"
	"slices"
	"sync"
)

// Count is how many things of a kind were removed, or could not be.
type Count struct {
	Kind   string `json:"kind"` // container, sandbox or image
	Why    string `json:"why"`  // a For… constant
	Failed bool   `json:"failed"`
	Count  uint64 `json:"count"`
}

// Counts are the Collector's counters since it began.
type Counts struct {
	Removed []Count `json:"removed"`
	GaveUp  uint64  `json:"gaveUp"`
	// Unused and Needed are the images of the last look: that may be removed, and
	// that stay.
	Unused int `json:"unused"`
	Needed int `json:"needed"`
}

type counters struct {
	mu     sync.Mutex
	counts map[Count]uint64 // by all but Count
	c      Counts
}

// newCounters begins at 0 with all there can be: increase() then sees the first.
func newCounters() *counters {
	n := &counters{counts: map[Count]uint64{}}
	for _, kind := range []string{KindContainer, KindSandbox} {
		for _, why := range []string{ForPressure, ForCount} {
			n.counts[Count{Kind: kind, Why: why}], n.counts[Count{Kind: kind, Why: why, Failed: true}] = 0, 0
		}
	}
	for _, why := range []string{ForPressure, ForWatermark, ForAge} {
		n.counts[Count{Kind: KindImage, Why: why}], n.counts[Count{Kind: KindImage, Why: why, Failed: true}] = 0, 0
	}
	return n
}

func (n *counters) removed(kind, why string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts[Count{Kind: kind, Why: why, Failed: err != nil}]++
}

func (n *counters) gaveUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.c.GaveUp++
}

func (n *counters) images(unused, needed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.c.Unused, n.c.Needed = unused, needed
}

func (n *counters) all() Counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.c
	for k, v := range n.counts {
		k.Count = v
		out.Removed = append(out.Removed, k)
	}
	slices.SortFunc(out.Removed, func(a, b Count) int {
		failed := 0
		if a.Failed != b.Failed {
			failed = 1
			if b.Failed {
				failed = -1
			}
		}
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Why, b.Why), failed)
	})
	return out
}

// Counts returns the counters.
func (c *Collector) Counts() Counts { return c.counts.all() }
