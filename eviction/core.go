package eviction

import "time"

// Rules are the settings of the hard memory threshold, resolved for this
// machine; all amounts in bytes.
type Rules struct {
	From   MemoryAvailableFrom
	Amount uint64 // the threshold; 0 = off
	// Floor ends the early band: at or above it only pods over their request
	// can be victims.
	Floor uint64
	// MinReclaim is added to Amount before the condition counts as clear.
	MinReclaim uint64
	// SmallGainLast is the departure RankOptions.SmallGainLast.
	SmallGainLast bool
	// AsKubelet switches other departures off.
	AsKubelet AsKubelet
	// Observe: decide and explain, never hold or kill.
	Observe bool
	// KillBudget and HardGrace are those of the Settings; Sampler.use copies them.
	KillBudget int
	HardGrace  time.Duration
	// Paused: Observe because of a pause by hand (Engine.Pause).
	Paused bool
}

// minGain is the least a stop must give back for a pod to be a victim at all;
// a pause process alone stays below it.
const minGain = 1 * mi

// action is what one sample asks for.
type action uint8

const (
	calm        action = iota // above the threshold
	firstSample               // below it for the first time
	waiting                   // below it, a kill is in flight
	decide                    // a victim is wanted
)

// step is the outcome of one sample.
type step struct {
	verdict MemoryVerdict
	action  action
	// period until the next sample is due.
	period time.Duration
	// cleared: above threshold plus minimum reclaim.
	cleared bool
	// coming is what kills that are over will still give back, in bytes.
	coming uint64
	// emergency: a kill is in flight, and so little is left that a second one
	// may begin.
	emergency bool
}

// core is the pure state machine of a hard memory threshold: a sample goes in,
// what to do comes out. It has no clock of its own.
type core struct {
	rules   Rules
	reclaim directReclaim
	pace    pace
	pending pendingRelease
	met     int
	// past: a pod was wanted for it. From then on it stays met until threshold plus
	// minimum reclaim is reached, as in kubelet (Kubernetes 1.37,
	// pkg/kubelet/eviction/eviction_manager.go synchronize, thresholdsNotYetResolved).
	past bool
	// line is what available has to fall below for a second kill while one is
	// in flight; 0 while none is.
	line uint64
}

// pendingFor is how long memory that a dead victim gave back may take to show:
// freed pages stay on per-CPU lists, which no reading counts, for seconds.
const pendingFor = 10 * time.Second

// pendingRelease is what kills that are over will still give back (design §8).
type pendingRelease struct {
	gain, base, seen uint64
	until            time.Time
}

// add notes a kill that is over: gain bytes are to come back, counted from what
// was available at its decision.
func (p *pendingRelease) add(now time.Time, gain, base uint64) {
	left := p.left(now, p.base+p.seen)
	*p = pendingRelease{gain: gain + left, base: base, until: now.Add(pendingFor)}
}

// left returns the bytes still to come. What has been seen to come back once is
// not expected again.
func (p *pendingRelease) left(now time.Time, available uint64) uint64 {
	if p.until.IsZero() || now.After(p.until) {
		return 0
	}
	p.seen = max(p.seen, available-min(available, p.base))
	return p.gain - min(p.gain, p.seen)
}

// step takes one fresh sample. busy says that a kill is in flight: its samples
// do not count towards the next decision, so that no number from before a kill
// had its effect can cause another.
func (c *core) step(s *MemorySample, busy bool) step {
	c.reclaim.observe(s)
	limit := c.rules.Amount
	if c.past {
		limit += c.rules.MinReclaim
	}
	v := judge(c.rules.From, s, limit, c.reclaim.steady(s.At))
	v.Half = Met(v.Available, c.rules.Amount/2)
	out := step{
		verdict: v,
		period:  c.pace.next(s.At, v.Available, c.rules.Amount, v.Met),
		cleared: v.Available >= c.rules.Amount+c.rules.MinReclaim,
		coming:  c.pending.left(s.At, v.Available),
	}
	switch {
	case !busy:
		c.line = 0
	case c.line == 0:
		c.line = emergencyLine(c.rules.Amount, v.Available)
	}
	switch {
	case !v.Met:
		c.met, c.past = 0, false
	case busy || c.comesBack(out.coming, &v, limit):
		c.met = 0
		out.action = waiting
		out.emergency = busy && v.Available < c.line
	default:
		c.met++
		out.action = firstSample
		if c.met >= 2 || v.Half {
			out.action, c.past = decide, true
		}
	}
	return out
}

// comesBack says whether what earlier victims will still give back makes up for
// the shortage. Below the floor, and below half the threshold, nobody waits.
func (c *core) comesBack(left uint64, v *MemoryVerdict, limit uint64) bool {
	return left > 0 && !v.Half && v.Available >= c.rules.Floor && v.Available+left >= limit
}

// NoVictim says why no pod was chosen.
type NoVictim uint8

// The reasons, from the most to the least specific.
const (
	Chosen        NoVictim = iota // a pod was chosen
	NoPods                        // no pod is known
	AllBarred                     // all are protected, held or dying
	NoNumbers                     // no usage could be read
	NothingToFree                 // no stop would free anything
	WithinRequest                 // early band, and all are inside their requests
	// The breakers (breaker.go).
	Cascade         // the last kills did not make available rise
	OutsidePressure // all pods together could not make up for the shortage
	BudgetSpent     // killBudget: only reported for now
	Unarmed         // the threshold was met when it was loaded, and is not armed
	OnlyDeletion    // disk: only the deletion of pods would free anything
	noVictims       // how many there are
)

// String returns the reason as a sentence fragment.
func (n NoVictim) String() string {
	switch n {
	case Chosen:
		return "a pod was chosen"
	case NoPods:
		return "no pod is known"
	case AllBarred:
		return "every pod is protected, held or already dying"
	case NoNumbers:
		return "the usage of no unprotected pod could be read"
	case NothingToFree:
		return "no unprotected pod would free anything"
	case WithinRequest:
		return "every unprotected pod is inside its request and available is above the floor"
	case Cascade:
		return "the last two kills did not give back half of what was expected, so no pod is taken for a minute"
	case OutsidePressure:
		return "all unprotected pods together could not give back what is missing: the pressure comes from outside of them"
	case BudgetSpent:
		return "killBudget is used up: victims are only reported until the hour is over or available is below the floor"
	case Unarmed:
		return "it was met already when it was loaded; it is acted on once it was clear, or after `cri-evictd arm`"
	case OnlyDeletion:
		return "a stop would free nothing on this device: what the pods have there are volumes and logs, which only kubelet deletes when a pod is over"
	default:
		return "unknown"
	}
}

// Reason returns the reason as a word, for metrics and JSON.
func (n NoVictim) Reason() string {
	switch n {
	case Chosen:
		return "chosen"
	case NoPods:
		return "noPods"
	case AllBarred:
		return "allBarred"
	case NoNumbers:
		return "noNumbers"
	case NothingToFree:
		return "nothingToFree"
	case WithinRequest:
		return "withinRequest"
	case Cascade:
		return "cascade"
	case OutsidePressure:
		return "outsidePressure"
	case BudgetSpent:
		return "budgetSpent"
	case Unarmed:
		return "unarmed"
	case OnlyDeletion:
		return "onlyDeletion"
	default:
		return "unknown"
	}
}

// choose returns the index of the victim among the candidates whose barred
// entry is false. earlyBand allows only pods over their request, and those that
// a soft eviction has begun to stop.
func choose(cands []Candidate, barred []bool, earlyBand bool, o RankOptions) (int, NoVictim) {
	return chooseFrom(cands, barred, earlyBand, minGain, o)
}

// chooseHard is choose for a hard threshold with this much available. Below the
// floor every pod can be the victim; but as long as those over their requests can
// bring available back to it, one of them is, be its gain as small as what is
// lacking: on a node that is packed to the last byte the first page of another
// pod passes the floor.
func chooseHard(cands []Candidate, barred []bool, available, floor uint64, o RankOptions) (int, NoVictim) {
	if available >= floor || o.WithinRequest {
		return choose(cands, barred, true, o)
	}
	if lacking := floor - available; overGain(cands, barred) >= lacking {
		if victim, why := chooseFrom(cands, barred, true, min(lacking, minGain), o); victim >= 0 {
			return victim, why
		}
	}
	return choose(cands, barred, false, o)
}

func chooseFrom(cands []Candidate, barred []bool, earlyBand bool, least uint64, o RankOptions) (int, NoVictim) {
	best, why := -1, NoPods
	for i := range cands {
		c := &cands[i]
		var reason NoVictim
		switch {
		case barred[i] || c.Out:
			reason = AllBarred
		case !c.Known && !o.UnmeasuredFirst:
			reason = NoNumbers
		case c.Known && c.Gain < least && !o.FreesNothing:
			reason = NothingToFree
		case c.Known && earlyBand && !c.Evicting && !c.OverRequest() && !o.WithinRequest:
			reason = WithinRequest
		default:
			if best < 0 || compareMemory(c, &cands[best], o) < 0 {
				best = i
			}
			continue
		}
		why = max(why, reason)
	}
	if best >= 0 {
		return best, Chosen
	}
	return -1, why
}

// allGain is what a stop of every candidate that is not barred would give back,
// in bytes.
func allGain(cands []Candidate, barred []bool) uint64 {
	var total uint64
	for i := range cands {
		if c := &cands[i]; !barred[i] && !c.Out && c.Known {
			total += c.Gain
		}
	}
	return total
}

// overGain is what a stop of every candidate over its request would give back,
// in bytes.
func overGain(cands []Candidate, barred []bool) uint64 {
	var total uint64
	for i := range cands {
		if c := &cands[i]; !barred[i] && !c.Out && c.OverRequest() {
			total += c.Gain
		}
	}
	return total
}
