package cgroupfs

import (
	"math"
	"testing"
)

func TestSaturate(t *testing.T) {
	const top = math.MaxUint64
	for _, tc := range []struct {
		name string
		f    func(a, b uint64) uint64
		a, b uint64
		want uint64
	}{
		{"add", satAdd, 1, 2, 3},
		{"add to the top", satAdd, top - 1, 1, top},
		{"add over the top", satAdd, top, 1, top},
		{"sub", satSub, 3, 2, 1},
		{"sub equal", satSub, 3, 3, 0},
		{"sub below zero", satSub, 2, 3, 0},
		{"mul", satMul, 3, 1024, 3072},
		{"mul by zero", satMul, top, 0, 0},
		{"mul zero", satMul, 0, top, 0},
		{"mul over the top", satMul, top/1024 + 1, 1024, top},
		{"mul to the top", satMul, top, 1, top},
	} {
		if got := tc.f(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
