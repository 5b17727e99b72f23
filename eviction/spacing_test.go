package eviction

import (
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

func TestStopsOfAHeldPodAreSpaced(t *testing.T) {
	var s spacing
	begin := time.Unix(1e9, 0)
	var at []time.Duration
	for now := time.Duration(0); now < 2*time.Minute; now += 500 * time.Millisecond {
		if s.due(7, begin.Add(now)) {
			at = append(at, now/time.Second)
		}
	}
	want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}
	if len(at) != len(want) {
		t.Fatalf("stopped at %d, want %d", at, want)
	}
	for i := range want {
		if at[i] != want[i] {
			t.Fatalf("stopped at %d, want %d", at, want)
		}
	}
	if !s.due(8, begin) {
		t.Error("another pod waits as well")
	}
	s.keep([]holds.Record{{ID: 8}})
	if len(s.stops) != 1 || !s.due(7, begin) {
		t.Error("a record that is gone is remembered")
	}
}
