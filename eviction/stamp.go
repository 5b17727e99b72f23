package eviction

import "time"

// stamps turn times into numbers that atomics can hold, and back. The numbers look
// like unix nanoseconds, but go on with the monotonic clock from base on: when
// somebody sets the clock, what is seconds old stays seconds old, and nothing lies
// in the future. Without base, or one that has no monotonic reading, they are unix
// nanoseconds.
type stamps struct{ base time.Time }

// of is never 0 for a time of today; 0 means never.
func (s stamps) of(t time.Time) int64 {
	if s.base.IsZero() {
		return t.UnixNano()
	}
	return s.base.UnixNano() + int64(t.Sub(s.base))
}

// time is the inverse of of.
func (s stamps) time(n int64) time.Time {
	if s.base.IsZero() {
		return time.Unix(0, n)
	}
	return s.base.Add(time.Duration(n - s.base.UnixNano()))
}
