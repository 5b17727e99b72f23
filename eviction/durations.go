package eviction

import "time"

// durationBounds are the upper bounds of the buckets in seconds: a kill takes
// some tens of microseconds to send and, for a large pod on a swapping node,
// tens of seconds to settle.
func durationBounds() []float64 {
	return []float64{
		0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
		0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
	}
}

// Durations are times that were taken, in buckets.
type Durations struct {
	// Bounds are the upper bounds of the buckets in seconds, rising; what is
	// above the last one is in Count alone.
	Bounds []float64
	// Buckets are how many were at most Bounds[i], those of lower bounds
	// included.
	Buckets []uint64
	Count   uint64
	Sum     time.Duration
}

// add notes one. A time that runs backwards (a clock that was set) counts as 0.
func (d *Durations) add(t time.Duration) {
	if d.Bounds == nil {
		d.Bounds = durationBounds()
		d.Buckets = make([]uint64, len(d.Bounds))
	}
	t = max(t, 0)
	for i, b := range d.Bounds {
		if t.Seconds() <= b {
			d.Buckets[i]++
		}
	}
	d.Count++
	d.Sum += t
}

// copy returns one that later additions do not change.
func (d *Durations) copy() Durations {
	out := *d
	if out.Bounds == nil {
		out.Bounds = durationBounds()
		out.Buckets = make([]uint64, len(out.Bounds))
		return out
	}
	out.Buckets = append([]uint64(nil), d.Buckets...)
	return out
}
