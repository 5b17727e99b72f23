package eviction

import "sync/atomic"

// extremes keeps the lowest and the highest of the numbers that one thread
// notes until another takes them. The slow half looks once a second and has to
// know of the samples between, because a single one that is clear restarts the
// grace of a soft threshold (bugs.md B19).
type extremes struct {
	high atomic.Uint64
	// low is kept as the highest complement, so that zero means that nothing
	// was noted.
	low atomic.Uint64
}

// note is for one thread. It does not allocate or wait.
func (x *extremes) note(v uint64) {
	if v > x.high.Load() {
		x.high.Store(v)
	}
	if ^v > x.low.Load() {
		x.low.Store(^v)
	}
}

// take returns what was noted since it was called last; ok is false when that
// is nothing. A number noted while it runs counts now, later or both times,
// which does no harm.
func (x *extremes) take() (low, high uint64, ok bool) {
	high = x.high.Swap(0)
	c := x.low.Swap(0)
	return ^c, max(high, ^c), c != 0
}
