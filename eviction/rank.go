package eviction

import "strings"

// Candidate is what ranking knows of one pod. All amounts are bytes.
type Candidate struct {
	UID      string
	Priority int32
	// Request is valid when RequestKnown. A pod whose request is unknown never
	// counts as over it.
	Request      uint64
	RequestKnown bool
	// Usage is the working set, valid when Known.
	Usage uint64
	// Gain is what a stop of the pod gives back at once.
	Gain  uint64
	Known bool
	// Evicting: a soft eviction has begun to stop it. A hard one shortens that
	// instead of taking another pod.
	Evicting bool
	// Out: it cannot be the victim of this decision, because it is dying already
	// or because the signal is not about it.
	Out bool
}

// OverRequest says whether the pod uses more than it asked for.
func (c *Candidate) OverRequest() bool { return c.Known && c.RequestKnown && c.Usage > c.Request }

// Excess is how far usage lies above (below: negative) the request; without a
// known request it is 0, so that only the usage decides among such pods.
func (c *Candidate) Excess() int64 {
	if !c.RequestKnown {
		return 0
	}
	return int64(c.Usage) - int64(c.Request)
}

// smallGainDivisor: a pod whose stop frees less than 1/20 (5 %) of the shortage
// comes last within its class (design §8).
const smallGainDivisor = 20

// RankOptions names the departures from kubelet's order.
type RankOptions struct {
	// Shortage is threshold − available in bytes, for SmallGainLast.
	Shortage uint64
	// SmallGainLast puts pods whose stop frees under 5 % of the shortage last
	// within their class (over request, or not).
	SmallGainLast bool
	AsKubelet
}

// rankBy is how candidates are ranked with this much available.
func (r *Rules) rankBy(available uint64) RankOptions {
	need := r.Amount
	if available >= need { // met before, and not yet clear
		need += r.MinReclaim
	}
	return RankOptions{Shortage: need - min(need, available), SmallGainLast: r.SmallGainLast, AsKubelet: r.AsKubelet}
}

// compareMemory orders two candidates for memory pressure: negative when a is
// to be evicted before b. The keys are those of kubelet's rankMemoryPressure
// (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go): usage over request, lower
// priority, larger excess; then, to make the order total, larger usage and the
// UID. Departures: one that a soft eviction is stopping already comes before the
// others, and those that RankOptions names.
func compareMemory(a, b *Candidate, o RankOptions) int {
	if a.Known != b.Known {
		return firstIf(a.Known != o.UnmeasuredFirst)
	}
	if a.Evicting != b.Evicting {
		return firstIf(a.Evicting)
	}
	if ao, bo := a.OverRequest(), b.OverRequest(); ao != bo {
		return firstIf(ao)
	}
	if o.SmallGainLast {
		limit := o.Shortage / smallGainDivisor
		if as, bs := a.Gain < limit, b.Gain < limit; as != bs {
			return firstIf(bs)
		}
	}
	switch {
	case a.Priority != b.Priority:
		return firstIf(a.Priority < b.Priority)
	case a.Excess() != b.Excess():
		return firstIf(a.Excess() > b.Excess())
	case a.Usage != b.Usage:
		return firstIf(a.Usage > b.Usage)
	}
	return strings.Compare(a.UID, b.UID)
}

func firstIf(first bool) int {
	if first {
		return -1
	}
	return 1
}
