package eviction

import (
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// conditionKind is a node condition.
type conditionKind uint8

const (
	memoryPressure conditionKind = iota
	diskPressure
	pidPressure
	conditionKinds
)

// condition returns the condition the signal belongs to (Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go signalToNodeCondition).
func (s Signal) condition() conditionKind {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return memoryPressure
	case PIDAvailable:
		return pidPressure
	}
	return diskPressure
}

// conditionsFor is how long published conditions hold without being renewed: an
// evictor that died must not keep pods out.
const conditionsFor = 15 * time.Second

// pressure is one node condition. It begins with the first sample that meets a
// threshold, soft ones included and before their grace (bugs.md B40), and ends
// when none was met for the transition period.
type pressure struct {
	since   time.Time // zero: it does not hold
	lastMet time.Time
}

// update takes when any of its thresholds was last met, and whether one still is:
// a disk is read less often than a short transition period.
func (p *pressure) update(now, lastMet time.Time, still bool, transition time.Duration) {
	if lastMet.After(p.lastMet) {
		p.lastMet = lastMet
	}
	if p.lastMet.IsZero() || !still && now.Sub(p.lastMet) >= transition {
		p.since = time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since = p.lastMet
	}
}

// conditions is the node's conditions.
type conditions [conditionKinds]pressure

// published is what the proxy is told.
func (c *conditions) published(now time.Time) holds.Conditions {
	out := holds.Conditions{
		Memory: !c[memoryPressure].since.IsZero(), Disk: !c[diskPressure].since.IsZero(), PID: !c[pidPressure].since.IsZero(),
	}
	for i := range c {
		if s := c[i].since; !s.IsZero() && (out.Since.IsZero() || s.Before(out.Since)) {
			out.Since = s
		}
	}
	if !out.Since.IsZero() {
		out.Expires = now.Add(conditionsFor)
	}
	return out
}
