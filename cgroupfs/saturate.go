package cgroupfs

import "math"

// satAdd, satSub and satMul stay at the end of the range instead of wrapping
// round: counters of the kernel are read one after the other while they move,
// so a part can be larger than its whole for a moment.
func satAdd(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func satSub(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func satMul(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}
