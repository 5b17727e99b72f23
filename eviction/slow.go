package eviction

import (
	"context"
	"slices"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// The slow half: disk, inodes and PIDs. What is met, its hysteresis, conditions
// and arming are watch.go's and softhalf.go's, as for soft thresholds; here is
// what is done about it.

// slowDecision is what a decision about disk, inodes or PIDs was made of.
type slowDecision struct {
	reading Reading
	layout  Layout
	unit    Unit
	details []diskDetail // of the candidates
	// reclaimed is what was freed before.
	reclaimed *ReclaimedDisk
}

const (
	// slowGrace is what a hard eviction for disk, inodes or PIDs gives a pod:
	// kubelet's least (design §9).
	slowGrace = 2 * time.Second
	// slowComing is how long what an evicted pod gives back may take to show: the
	// runtime removes snapshots in the background.
	slowComing = 30 * time.Second
)

// slowObservations adds the last readings of disk, inodes and PIDs.
func (e *Engine) slowObservations(out map[Signal]observation) {
	for _, s := range Signals() {
		if s.Memory() {
			continue
		}
		last, good := e.slow.reading(s)
		o := observation{absent: last.Absent, At: good.At, Available: good.Available, Device: good.Device}
		o.Lowest, o.Highest = o.Available, o.Available
		out[s] = o
	}
}

// slowUnknown are the signals with a threshold that are not known now.
func (e *Engine) slowUnknown(now time.Time) map[Signal]bool {
	out := map[Signal]bool{}
	for s := range e.slowValues() {
		last, good := e.slow.reading(s)
		o := observation{At: good.At}
		if !last.Absent && last.SameAs == "" && !o.fresh(now) {
			out[s] = true
		}
	}
	return out
}

// slowWaits says why nothing is begun for a slow threshold that is met; empty
// when nothing stands against it. Memory comes first, and one kill at a time:
// what is in flight for another signal is waited for.
func (e *Engine) slowWaits(set *Settings, w *softWatch, now time.Time) string {
	if !set.Rules.Observe {
		if e.memoryActs() {
			return "a hard memory threshold is met and is acted on first"
		}
		e.mu.Lock()
		pending := len(e.pending)
		e.mu.Unlock()
		if pending > 0 {
			return "a kill is in flight"
		}
	}
	list := e.syncer.State()
	if plan := e.sampler.plan.Load(); !list.Listed || plan == nil || plan.listedAt.IsZero() {
		return "the runtime was not listed yet"
	}
	hurry := w.key.hard && (w.halfGone() || list.ListError != "")
	if !hurry && now.Sub(e.store.Snapshot().ListedAt) > listAge {
		e.syncer.MarkDirty()
		return "the runtime's lists are too old and are being read anew"
	}
	coming, given := e.givenSlow(w)
	s := &e.soft
	s.mu.Lock()
	defer s.mu.Unlock()
	need := w.key.Amount + w.key.MinReclaim
	switch {
	case !w.armed && !w.observed:
		return unarmedText
	case w.busy != "":
		return w.busy
	case set.Rules.Observe:
		return ""
	case s.reclaiming(w):
		return reclaimingText
	case !w.key.hard && now.Sub(w.killedAt) < softSpacing:
		return "the eviction before has had no time to show"
	}
	more, why := s.comingOf(w, e.sampler.plan.Load(), given)
	if why != "" {
		return why
	}
	coming += more
	coming += w.coming.left(now, w.last.Available)
	if coming > 0 && !w.halfGone() && w.last.Available+coming >= need {
		return "what evicted pods give back is still coming"
	}
	return ""
}

// tellNear tells whoever measures pods on which devices a threshold is met or
// within twice of what is available.
func (e *Engine) tellNear() {
	usage := e.slow.parts.Usage
	if usage == nil {
		return
	}
	var devices []uint64
	e.soft.mu.Lock()
	for k, w := range e.soft.watches {
		if k.slow && w.last.Device != 0 && w.last.Available/2 < k.Amount+k.MinReclaim && !slices.Contains(devices, w.last.Device) {
			devices = append(devices, w.last.Device)
		}
	}
	e.soft.mu.Unlock()
	slices.Sort(devices)
	usage.Near(devices)
}

// halfGone says whether less than half the threshold is left.
func (w *softWatch) halfGone() bool { return Met(w.last.Available, w.key.Amount/2) }

// memoryActs says whether a hard memory threshold is met and somebody is taken for
// it. One for which nobody can be taken keeps no disk waiting.
func (e *Engine) memoryActs() bool {
	for _, h := range e.sampler.hards() {
		if h.latest.met.Load() && e.hardArmed(h.signal) && NoVictim(h.latest.noVictim.Load()) == Chosen {
			return true
		}
	}
	return false
}

// hardSlow is a hard eviction for disk, inodes or PIDs whose pod is not dead yet,
// nil for none. mu is held.
func (s *softHalf) hardSlow() *softEviction {
	for _, ev := range s.running {
		if ev.d.slow != nil && ev.d.soft == nil && !ev.settled {
			return ev
		}
	}
	return nil
}

// hardSlows is how many there are.
func (s *softHalf) hardSlows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, ev := range s.running {
		if ev.d.slow != nil && ev.d.soft == nil {
			n++
		}
	}
	return n
}

// noteSlow notes in the breakers that a pod is ended: in those of every threshold
// of the same device, unit and kind, because what did not help one does not help
// the others. mu is held.
func (s *softHalf) noteSlow(w *softWatch, d *Decision) {
	for _, other := range s.watches {
		if other == w || d.slow != nil && other.key.hard == w.key.hard && other.about(d.slow) {
			other.breaker.note(d.At, d.Candidates[d.Victim].Gain, d.Verdict.Available, d.Outside)
		}
	}
}

// about says whether the threshold is one of the same device and unit.
func (w *softWatch) about(s *slowDecision) bool {
	return w.key.slow && w.key.Signal.Unit() == s.unit && w.last.Device == s.reading.Device
}

// doneSlow tells every threshold of the same device and unit that a pod was ended
// on what they read: none acts on that reading again. mu is held.
func (s *softHalf) doneSlow(d *Decision, now time.Time) {
	if d.slow == nil {
		return
	}
	for _, w := range s.watches {
		if !w.about(d.slow) {
			continue
		}
		w.done(now, w.last.Available)
		w.breaker.over(d.At)
		w.coming.add(now, d.Candidates[d.Victim].Gain, d.Verdict.Available)
		w.coming.until = now.Add(slowComing)
	}
}

// measureSlow measures every pod of the plan for a slow signal.
func (e *Engine) measureSlow(plan *Plan, s Signal, device uint64) ([]Candidate, []diskDetail) {
	cands, details := make([]Candidate, len(plan.Pods)), make([]diskDetail, len(plan.Pods))
	p := &e.slow.parts
	if s == PIDAvailable {
		for i := range plan.Pods {
			cands[i] = plan.Pods[i].Candidate
			cands[i].Known = false
			if p.CgroupPIDs != nil {
				cands[i] = pidCandidate(&plan.Pods[i], p.CgroupPIDs)
			}
			details[i].exact = true
		}
		return cands, details
	}
	on := diskTarget{device: device, unit: s.Unit(), told: e.tells(), removes: p.Remove != nil}
	var usage map[string]*PodUsage
	if p.Usage != nil {
		usage = p.Usage.PodUsage()
	}
	for i := range plan.Pods {
		cands[i], details[i] = diskCandidate(&plan.Pods[i], usage[plan.Pods[i].UID], on)
	}
	return cands, details
}

// chooseSlow measures every pod and takes the first by rank; nil and the reason
// when there is none.
func (e *Engine) chooseSlow(set *Settings, w *softWatch, now time.Time) (*Decision, NoVictim) {
	plan := e.sampler.plan.Load()
	if plan == nil {
		return nil, NoPods
	}
	k := w.key
	_, reading := e.slow.reading(k.Signal)
	cands, details := e.measureSlow(plan, k.Signal, w.last.Device)
	barred := make([]bool, len(plan.Pods))
	for i := range plan.Pods {
		// One that is being deleted gives all it has back by itself.
		barred[i] = plan.Pods[i].Barred != "" || plan.Pods[i].Ending || !k.hard && plan.Pods[i].Evicting != 0
	}
	e.soft.barBegun(plan, barred)
	need := k.Amount + k.MinReclaim
	lacking := need - min(need, w.last.Available)
	overOnly := !k.hard && !set.Rules.AsKubelet.WithinRequest
	victim, why := chooseDisk(cands, deletions(details), barred, k.Signal.Unit(), overOnly, set.Rules.diskRank(lacking))
	if victim < 0 {
		return nil, why
	}
	outside := allGain(cands, barred) < lacking && !set.Rules.AsKubelet.NoBreakers
	if outside && !set.Rules.Observe && e.outsideBefore(w) {
		return nil, OutsidePressure
	}
	d := &Decision{
		Signal: k.Signal, At: now, Plan: plan, Candidates: cands, Victim: victim, Outside: outside,
		Rules: Rules{Amount: k.Amount, MinReclaim: k.MinReclaim, SmallGainLast: set.Rules.SmallGainLast, Observe: set.Rules.Observe, Paused: set.Rules.Paused},
		Sample: MemorySample{
			At: w.last.At, Capacity: reading.Capacity, Kernel: w.last.Available, Kubelet: w.last.Available,
		},
		Verdict: MemoryVerdict{Available: w.last.Available, Met: true, Half: w.halfGone()},
		slow:    &slowDecision{reading: reading, layout: e.slow.currentLayout(), unit: k.Signal.Unit(), details: details},
	}
	e.soft.mu.Lock()
	d.slow.reclaimed = w.disk
	if !k.hard {
		d.soft = &SoftReport{
			Grace: k.Grace, MinReclaim: k.MinReclaim, MetSince: w.firstMet.UTC(), Shortage: lacking, MaxPodGrace: e.maxPodGrace(),
		}
	}
	e.soft.mu.Unlock()
	// A fork bomb leaves nobody the tasks to end in an orderly way.
	if k.hard && (k.Signal != PIDAvailable || !d.Verdict.Half || set.Rules.AsKubelet.GraceBelowHalf) {
		d.Grace = slowGrace
	}
	return d, Chosen
}

func deletions(details []diskDetail) []uint64 {
	out := make([]uint64, len(details))
	for i := range details {
		out[i] = details[i].deletion
	}
	return out
}

// slowStands says whether the threshold that an interrupted eviction was for is
// met, by a reading that was just taken. What is not known is no reason to end a
// pod.
func (e *Engine) slowStands(s Signal, hard bool) bool {
	_, r := e.slow.reading(s)
	for _, t := range e.settings().inForce(e.slow.currentLayout()) {
		if t.Signal != s || t.Hard != hard || r.At.IsZero() {
			continue
		}
		// It was past its grace, so that the minimum reclaim counts.
		return Met(r.Available, t.Value.Resolve(r.Capacity)+t.MinReclaim.Resolve(r.Capacity))
	}
	return false
}

// readSlowFor reads the slow signals once, where a record needs them.
func (e *Engine) readSlowFor(ctx context.Context, records []holds.Record) {
	for _, r := range records {
		if r.State == holds.Intent && !Signal(r.Signal).Memory() {
			e.slow.askPaths(ctx)
			e.slow.readDisks(ctx)
			e.slow.readPIDs()
			return
		}
	}
}
