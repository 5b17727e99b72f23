package diskusage

import "time"

const (
	// share: of this much time the walker works one part, which is 5 %.
	share = 20
	// stepTime is how long one step should take. A single call to a slow disk may
	// take longer, and is then rested for as well.
	stepTime = 5 * time.Millisecond
	// minRest keeps steps that measure as nothing from becoming a busy loop.
	minRest = time.Millisecond
	// maxRest ends the rest after a call that hung: then the walker waited for
	// the disk and did not work.
	maxRest = time.Minute
)

// rest is how long to rest after having worked.
func rest(worked time.Duration) time.Duration {
	switch {
	case worked >= maxRest/(share-1):
		return maxRest
	case worked <= minRest/(share-1):
		return minRest
	}
	return worked * (share - 1)
}

// The runtime is asked for stats each statsCalm. It may walk every layer for the
// answer (bugs.md B109), so one that takes long is asked less often: each
// statsSlow at most, and for no more than a tenth of the time.
const (
	statsCalm    = 10 * time.Second
	statsSlow    = 30 * time.Second
	statsTakes   = time.Second
	statsTimeout = 2 * time.Minute
)

// statsPeriod is the time between two questions when the last one took so long.
func statsPeriod(took time.Duration) time.Duration {
	if took <= statsTakes {
		return statsCalm
	}
	return max(statsSlow, 10*took)
}

// The walker begins with a pod again walkCalm after it began the last time, and
// walkNear when a threshold is near.
const (
	walkCalm = time.Minute
	walkNear = 10 * time.Second
	// turn is how many steps a pod gets before it is another one's turn.
	turn = 20
)

// candidate is a pod that may have its turn.
type candidate struct {
	began    time.Time // of the last or present walk; zero for none
	lastTurn uint64    // number of its last turn
	walking  bool
}

// due says whether there is something to do for a pod.
func (c *candidate) due(now time.Time, near bool) bool {
	if c.walking || c.began.IsZero() {
		return true
	}
	period := walkCalm
	if near {
		period = walkNear
	}
	return now.Sub(c.began) >= period || now.Before(c.began)
}
