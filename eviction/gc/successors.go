package gc

import (
	"slices"
	"sort"
	"time"
)

// stamp is what tells the order in which things of one name came.
type stamp struct {
	created time.Time
	attempt uint32
}

// successors says of each stamp which one came after it, the earliest of those that
// counts says may: its index, or -1 for none. Both signs have to agree: a clock that
// was set, or a count that began anew, proves nothing. It takes n log n.
func successors(stamps []stamp, counts func(i int) bool) []int {
	order := make([]int, len(stamps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return stamps[b].created.Compare(stamps[a].created) })
	out := make([]int, len(stamps))
	// From the newest to the oldest. open are those that can still be the earliest
	// successor of something: each was created before the one in front of it, and
	// has the lower attempt.
	var open []int
	for len(order) > 0 {
		same := 1
		for same < len(order) && stamps[order[same]].created.Equal(stamps[order[0]].created) {
			same++
		}
		for _, i := range order[:same] {
			out[i] = -1
			if n := sort.Search(len(open), func(k int) bool { return stamps[open[k]].attempt <= stamps[i].attempt }); n > 0 {
				out[i] = open[n-1]
			}
		}
		for _, i := range order[:same] {
			if !counts(i) {
				continue
			}
			for len(open) > 0 && stamps[open[len(open)-1]].attempt <= stamps[i].attempt {
				open = open[:len(open)-1]
			}
			open = append(open, i)
		}
		order = order[same:]
	}
	return out
}
