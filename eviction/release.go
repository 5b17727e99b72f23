package eviction

import (
	"slices"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// Why a hold ended; written into the holds file.
const (
	ReleasedPressureOver = "pressure-over"
	ReleasedPodGone      = "pod-gone"
	ReleasedPodDeleted   = "pod-deleted" // it is being deleted: kubelet does not start it again
	ReleasedByHand       = "by-hand"
	ReleasedMaximum      = "maximum"
	ReleasedKillFailed   = "kill-failed"
	ReleasedBreachGone   = "breach-gone"
	ReleasedObserve      = "observe" // started anew in mode observe
)

// ReleaseReasons returns why a hold may end.
func ReleaseReasons() []string {
	return []string{
		ReleasedPressureOver, ReleasedPodGone, ReleasedPodDeleted, ReleasedByHand, ReleasedMaximum, ReleasedKillFailed, ReleasedBreachGone, ReleasedObserve,
	}
}

const (
	backOffFirst   = 10 * time.Second
	backOffLongest = 5 * time.Minute
	releaseSpacing = 10 * time.Second
	// goneAfter is how long a pod must have neither a sandbox nor an attempt to
	// get one before it counts as gone (design §6, without the Pods API).
	goneAfter = 2 * time.Minute
	// repeatForgotten: a pod that stayed well this long starts again with the
	// first back-off.
	repeatForgotten = time.Hour
)

// BackOff is the extra time a pod waits after the pressure is over: 10 s at its
// first eviction, doubling to 5 min.
func BackOff(repeat uint32) time.Duration {
	d := backOffFirst
	for range repeat {
		if d *= 2; d >= backOffLongest {
			return backOffLongest
		}
	}
	return d
}

// ReleaseInput is everything a release depends on.
type ReleaseInput struct {
	Now time.Time
	// Records are those of the holds file.
	Records []holds.Record
	// ClearSince is, for each condition, since when every threshold of it that is
	// acted on, hard and soft, has been clear by its minimum reclaim without a
	// break; zero when one is not, or is not known.
	ClearSince [conditionKinds]time.Time
	// Rooms are what each signal has to keep free.
	Rooms map[Signal]Room
	// Unknown are the signals with a threshold that are not known now.
	Unknown     map[Signal]bool
	Transition  time.Duration // evictionPressureTransitionPeriod
	HoldMaximum time.Duration
	// LastRelease is when a hold was last released because the pressure was
	// over.
	LastRelease time.Time
	// AbsentSince tells since when a pod has had no sandbox and not asked for
	// one; a pod not in it is there.
	AbsentSince map[string]time.Time
	// Ended are the pods that Kubernetes is known to have ended or to be ending:
	// why their holds go.
	Ended map[string]string
}

// Room is what a signal has available and what of it has to stay free: the
// largest of its thresholds plus minimum reclaim. Both in the signal's unit.
type Room struct{ Available, Need uint64 }

// Release is one hold to end.
type Release struct {
	Record holds.Record
	Reason string
}

// Releases returns the holds that end now, oldest first. Only completed kills
// are considered; an intent belongs to the kill in progress.
func Releases(in ReleaseInput) []Release {
	records := slices.DeleteFunc(slices.Clone(in.Records), func(r holds.Record) bool { return r.State != holds.Killed })
	slices.SortFunc(records, func(a, b holds.Record) int { return a.Decided.Compare(b.Decided) })
	var out []Release
	paced := false
	for _, r := range records {
		absent, isAbsent := in.AbsentSince[r.UID]
		switch ended := in.Ended[r.UID]; {
		case ended != "":
			out = append(out, Release{r, ended})
		case isAbsent && in.Now.Sub(absent) >= goneAfter:
			out = append(out, Release{r, ReleasedPodGone})
		case in.Now.Sub(r.Decided) >= in.HoldMaximum:
			out = append(out, Release{r, ReleasedMaximum})
		case !paced && in.clearFor(r) && in.fits(r):
			paced = true // one at a time: the next is judged by what this one does
			out = append(out, Release{r, ReleasedPressureOver})
		}
	}
	return out
}

// clearFor: the condition the pod was evicted for has been clear for the
// transition period plus the pod's back-off, and the previous release has had its
// time to show.
func (in *ReleaseInput) clearFor(r holds.Record) bool {
	since := in.ClearSince[heldFor(r).condition()]
	if since.IsZero() || in.Unknown[heldFor(r)] {
		return false
	}
	if r.Decided.After(since) {
		since = r.Decided
	}
	return in.Now.Sub(since) >= in.Transition+BackOff(r.Repeat) && in.Now.Sub(in.LastRelease) >= releaseSpacing
}

// fits: with the pod back at the size it had, available would stay above
// threshold + minimum reclaim: by both memory signals, or by the one it was
// evicted for, because what it had is in that one's unit.
func (in *ReleaseInput) fits(r holds.Record) bool {
	usage := uint64(max(r.Usage, 0))
	of := heldFor(r)
	for s, x := range in.Rooms {
		if s != of && (!s.Memory() || of.condition() != memoryPressure) {
			continue
		}
		if x.Available < usage || x.Available-usage <= x.Need {
			return false
		}
	}
	return true
}

// heldFor is the signal of a record; memory's where there is none.
func heldFor(r holds.Record) Signal {
	if r.Signal == "" {
		return MemoryAvailable
	}
	return Signal(r.Signal)
}
