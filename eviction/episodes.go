package eviction

import "sync/atomic"

// episodes count how often a threshold came to be met, and why nobody was taken
// meanwhile: each reason once per breach, however often it was found. One
// goroutine writes, without a lock and without allocating; anybody may read.
type episodes struct {
	breaches  atomic.Uint64
	notActing [noVictims]atomic.Uint64
	// The writer's own.
	met  bool
	seen [noVictims]bool
}

// sample takes one sample: whether the threshold is met.
func (e *episodes) sample(met bool) {
	if met && !e.met {
		e.breaches.Add(1)
		clear(e.seen[:])
	}
	e.met = met
}

// note takes the reason why nobody is taken in the present breach.
func (e *episodes) note(why NoVictim) {
	if why == Chosen || why >= noVictims || e.seen[why] {
		return
	}
	e.seen[why] = true
	e.notActing[why].Add(1)
}

// episodes are those of every signal that is watched, or was.
func (e *Engine) episodes() map[Signal]*episodes {
	out := map[Signal]*episodes{}
	for _, h := range e.sampler.hards() {
		if h.signal == MemoryAvailable || h.amount() > 0 || h.latest.episodes.breaches.Load() > 0 {
			out[h.signal] = &h.latest.episodes
		}
	}
	for _, t := range e.settings().Slow {
		if ep := e.slowEpisodes[t.Signal]; ep != nil && t.Hard && !t.Value.Off {
			out[t.Signal] = ep
		}
	}
	for s, ep := range e.slowEpisodes {
		if ep.breaches.Load() > 0 {
			out[s] = ep
		}
	}
	return out
}
