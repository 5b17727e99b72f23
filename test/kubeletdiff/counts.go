package kubeletdiff

import (
	"sync"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// Outcome is what a look at the world came to, for kubelet and for ours.
type Outcome string

// The outcomes.
const (
	HardVictim    Outcome = "hard victim"
	SoftVictim    Outcome = "soft victim"
	Reclaimed     Outcome = "reclaimed"      // collecting garbage was enough
	Nobody        Outcome = "nobody"         // a threshold was acted on and no pod could be taken
	ConditionOnly Outcome = "condition only" // a soft threshold is met, its grace is not over
	Calm          Outcome = "calm"
)

// The departures that are no switches of ours: what kubelet does is told apart and
// counted.
const (
	// AllThresholdsClear: kubelet takes a pod for a threshold that collecting
	// garbage had cleared, because another threshold is met; ours takes nobody.
	AllThresholdsClear Outcome = "kubelet takes a pod for what is solved"
	// SignalsOnTheirOwn: kubelet comes to no other signal as long as a threshold of
	// memory is past its grace; ours acts on each signal by itself.
	SignalsOnTheirOwn Outcome = "ours acts beside memory"
)

// cell is what is counted.
type cell struct {
	signal  eviction.Signal
	layout  Layout
	outcome Outcome
}

// counts are cells with their numbers, for any number of goroutines.
type counts struct {
	mu sync.Mutex
	n  map[cell]int
}

func newCounts() *counts { return &counts{n: map[cell]int{}} }

func (c *counts) add(at cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[at]++
}

// subject is a kind of scenario.
type subject struct {
	signal eviction.Signal
	layout Layout
}

// subjects are compared by turns: every signal in every layout.
func subjects() []subject {
	var out []subject
	for _, s := range eviction.Signals() {
		for _, l := range []Layout{SingleFs, ImageFs, SplitFs} {
			out = append(out, subject{s, l})
		}
	}
	return out
}

// outcomes are those that a subject can have.
func (s subject) outcomes() []Outcome {
	out := []Outcome{HardVictim, SoftVictim, Nobody, ConditionOnly, Calm}
	if s.layout.lies(deadContainers, s.signal) || s.layout.lies(unusedImages, s.signal) {
		out = append(out, Reclaimed)
	}
	return out
}

// countFocus counts what was done for a signal. That of a focus on containerfs is
// done in the name of the signal whose thresholds it has.
func (d *driver) countFocus(done eviction.Signal, o Outcome) {
	sc := d.w.sc
	if sc.Layout.thresholdsOf(sc.Focus) == done {
		done = sc.Focus
	}
	d.count(cell{done, sc.Layout, o})
}

// countRest counts what a world at rest is for the focus; v is the last pass.
func (d *driver) countRest(v verdict) {
	sc, met, open := d.w.sc, false, false
	for _, soft := range []bool{false, true} {
		l := line{sc.Focus, soft}
		open = open || !d.k.isClear(l)
		if threshold, _, ok := d.k.amountsOf(l); ok && soft {
			met = threshold.Cmp(*quantityOf(sc.Focus, d.w.available(kubeletView, sc.Focus))) > 0
		}
	}
	switch {
	case v.resource == resourceOf(sc.Focus) && len(v.killed) == 0 && open:
		d.count(cell{sc.Focus, sc.Layout, Nobody})
	case v.resource == "" && met:
		d.count(cell{sc.Focus, sc.Layout, ConditionOnly})
	case v.resource == "":
		d.count(cell{sc.Focus, sc.Layout, Calm})
	}
}
