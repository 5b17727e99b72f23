package eviction

import (
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

const (
	// stopAgainFirst and stopAgainLongest are how long after a held pod was stopped it
	// is stopped once more, the second time and at most.
	stopAgainFirst   = time.Second
	stopAgainLongest = 30 * time.Second
)

// spacing keeps the stops of held pods that come up again and again apart. Where no
// proxy refuses them (agent mode, the bypass) kubelet starts each within a second;
// answering each at once would cost the node more than the pods do. The loop's own.
type spacing struct {
	stops map[uint64]stops // by the record's ID
}

// stops is how often a held pod was stopped, and when last.
type stops struct {
	last  time.Time
	times uint
}

// due says whether the pod of a record may be stopped now, and notes that it is.
func (s *spacing) due(id uint64, now time.Time) bool {
	of := s.stops[id]
	if of.times > 0 && now.Sub(of.last) < stopAgainAfter(of.times) {
		return false
	}
	if s.stops == nil {
		s.stops = map[uint64]stops{}
	}
	s.stops[id] = stops{last: now, times: of.times + 1}
	return true
}

// stopAgainAfter is the distance of the next stop after so many.
func stopAgainAfter(times uint) time.Duration {
	wait := stopAgainFirst
	for ; times > 1 && wait < stopAgainLongest; times-- {
		wait *= 2
	}
	return min(wait, stopAgainLongest)
}

// keep forgets what is about other records than these.
func (s *spacing) keep(records []holds.Record) {
	kept := map[uint64]stops{}
	for _, r := range records {
		if of, ok := s.stops[r.ID]; ok {
			kept[r.ID] = of
		}
	}
	s.stops = kept
}
