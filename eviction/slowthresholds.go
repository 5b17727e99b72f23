package eviction

import (
	"fmt"
	"slices"
	"time"
)

// SlowThreshold is a threshold of disk, inodes or PIDs as it was written: a share
// is one of a capacity that may change while we run.
type SlowThreshold struct {
	Signal            Signal
	Value, MinReclaim Threshold
	// Grace is that of a soft threshold.
	Grace time.Duration
	Hard  bool
}

// text tells two thresholds apart that were written differently.
func (t *SlowThreshold) text() string {
	return fmt.Sprintf("%s+%s/%s", t.Value.Text, t.MinReclaim.Text, t.Grace)
}

// inForce are the slow thresholds in a layout: those of containerfs are copies
// (Layout.containerSource), the rest as written; what is off is left out.
func (set *Settings) inForce(l Layout) []SlowThreshold {
	var out []SlowThreshold
	for _, s := range Signals() {
		from := s
		if s == ContainerFsAvailable || s == ContainerFsInodesFree {
			from = l.containerSource(s)
		}
		for _, hard := range []bool{true, false} {
			for _, t := range set.Slow {
				if t.Signal == from && t.Hard == hard && !t.Value.Off {
					t.Signal = s
					out = append(out, t)
				}
			}
		}
	}
	return out
}

// slowValues are the thresholds in force by signal, for whoever reads.
func (e *Engine) slowValues() map[Signal][]Threshold {
	out := map[Signal][]Threshold{}
	for _, t := range e.settings().inForce(e.slow.currentLayout()) {
		out[t.Signal] = append(out[t.Signal], t.Value)
	}
	return out
}

func (r *slowReader) currentLayout() Layout {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.layout
}

// thresholds lists all that is watched: those of memory, then those of disk,
// inodes and PIDs as amounts of the capacity there is. One of a signal that was
// never read is not in it, and none that is identical to another (Reading.SameAs).
func (e *Engine) thresholds(set *Settings) []watchKey {
	out := set.thresholds()
	r := e.slow
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range set.inForce(r.layout) {
		capacity, known := r.capacity[t.Signal]
		if !known || r.readings[t.Signal].SameAs != "" {
			continue
		}
		amount := t.Value.Resolve(capacity)
		if amount == 0 {
			continue
		}
		out = append(out, watchKey{
			SoftThreshold: SoftThreshold{Signal: t.Signal, Amount: amount, MinReclaim: t.MinReclaim.Resolve(capacity), Grace: t.Grace},
			hard:          t.Hard, slow: true, text: t.text(), name: t.armedName(), fingerprint: t.Value.fingerprint(),
		})
	}
	return out
}

// armedName is the name the threshold has among those Armed remembers.
func (t *SlowThreshold) armedName() Signal {
	if t.Hard {
		return t.Signal
	}
	return t.Signal.SoftName()
}

// shareMark keeps the fingerprint of a share apart from any amount.
const shareMark = 1 << 63

// fingerprint is what Armed remembers of a threshold: the amount or, for a share,
// the share itself in billionths, because the amount changes with the capacity.
func (t Threshold) fingerprint() uint64 {
	if t.Share == nil {
		return uint64(max(t.Quantity, 0))
	}
	part := Threshold{Share: t.Share}.Resolve(1_000_000_000)
	return shareMark | part
}

// sameThreshold finds the watch of what is the same threshold at another
// capacity. mu is held.
func (s *softHalf) sameThreshold(k watchKey) *softWatch {
	if !k.slow {
		return nil
	}
	for old, w := range s.watches {
		if old.slow && old.Signal == k.Signal && old.hard == k.hard && old.text == k.text {
			return w
		}
	}
	return nil
}

// follow moves the watches of slow thresholds whose amounts changed with the
// capacity to their new keys: what was seen of them stands. mu is held.
func (s *softHalf) follow(keys []watchKey) {
	for _, k := range keys {
		if _, there := s.watches[k]; there {
			continue
		}
		if w := s.sameThreshold(k); w != nil && !slices.Contains(keys, w.key) {
			delete(s.watches, w.key)
			w.key = k
			s.watches[k] = w
		}
	}
}

// slowOf finds the threshold that an eviction of this signal was for.
func (set *Settings) slowOf(s Signal, hard bool) (SlowThreshold, bool) {
	for _, t := range set.Slow {
		if t.Signal == s && t.Hard == hard && !t.Value.Off {
			return t, true
		}
	}
	return SlowThreshold{}, false
}
