package eviction

import (
	"context"
	"sync"
	"time"
)

const (
	verifyEvery   = 5 * time.Millisecond
	verifySlow    = 100 * time.Millisecond
	verifyFastFor = 2 * time.Second
	settleFor     = 50 * time.Millisecond
	settleAtMost  = 2 * time.Second
	// killGiveUp: a victim that cannot be emptied for this long is let go.
	killGiveUp = time.Minute

	killRetryFirst   = 250 * time.Millisecond
	killRetryLongest = 5 * time.Second
)

// verifier watches a kill until the pod's cgroup is empty and its usage has
// settled. It is a pure state machine; time is passed in.
type verifier struct {
	start    time.Time
	emptyAt  time.Time
	retryAt  time.Time
	retry    time.Duration
	lowest   uint64
	lastFall time.Time
	tries    int
}

type verifyStep uint8

const (
	verifyWait verifyStep = iota
	verifyRetry
	verifySettled
	verifyGiveUp
)

func newVerifier(now time.Time) *verifier {
	return &verifier{start: now, retry: killRetryFirst, retryAt: now.Add(killRetryFirst), tries: 1}
}

// observe takes what is seen now: whether a process is left, and the usage in
// bytes when it could be read.
func (v *verifier) observe(now time.Time, populated bool, usage uint64, known bool) verifyStep {
	if populated {
		v.emptyAt = time.Time{}
		switch {
		case now.Sub(v.start) >= killGiveUp:
			return verifyGiveUp
		case !now.Before(v.retryAt):
			v.tries++
			v.retry = min(2*v.retry, killRetryLongest)
			v.retryAt = now.Add(v.retry)
			return verifyRetry
		}
		return verifyWait
	}
	if v.emptyAt.IsZero() {
		v.emptyAt, v.lowest, v.lastFall = now, usage, now
	}
	if !known {
		return verifySettled // removed: nothing is left to settle
	}
	if usage+fallStep <= v.lowest {
		v.lowest, v.lastFall = usage, now
	}
	if now.Sub(v.lastFall) >= settleFor || now.Sub(v.emptyAt) >= settleAtMost {
		return verifySettled
	}
	return verifyWait
}

// pause is how long to wait for the next look.
func (v *verifier) pause(now time.Time) time.Duration {
	if now.Sub(v.start) < verifyFastFor {
		return verifyEvery
	}
	return verifySlow
}

// verify follows a kill to its end: it repeats the kill with back-off while
// processes are left. stopped says whether CRI has reported the pod stopped,
// which is all that can be known of a pod without a cgroup to look at. empty is
// called once, when no process was left for the first time: before the memory
// is back.
func verify(ctx context.Context, d *Decision, clock func() time.Time, stopped func() bool, empty func()) (ok bool, tries int) {
	empty = sync.OnceFunc(empty)
	pod := d.pod()
	v := newVerifier(clock())
	v.retryAt = v.retryAt.Add(d.Grace) // the first direct kill is the escalation
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, v.tries
		case <-timer.C:
		}
		now := clock()
		populated, err := pod.populated()
		usage, known := pod.usage()
		if err != nil || len(pod.cgroups) == 0 {
			populated, known = !stopped(), false
		}
		step := v.observe(now, populated, usage, known)
		if !v.emptyAt.IsZero() {
			empty()
		}
		switch step {
		case verifySettled:
			d.kill.emptyAt.Store(v.emptyAt.UnixNano())
			return true, v.tries
		case verifyGiveUp:
			return false, v.tries
		case verifyRetry:
			if pod.NoDirect == "" {
				again(d, v.tries)
			}
		}
		timer.Reset(v.pause(now))
	}
}

// again repeats a direct kill. Its outcome is what the next look shows.
func again(d *Decision, tries int) {
	for _, c := range d.pod().cgroups {
		// A write that hung once would hang here too, and verifying with it.
		if !d.kill.fallback.Load() {
			if _, err := c.Kill(); err == nil && tries <= 2 {
				continue
			}
		}
		_, _ = c.KillByPidfd()
	}
}
