package eviction

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// The stages of a kill, in their order. Each is timed from the sample it was
// decided on.
const (
	StageIntent  = "intent"  // the hold is visible
	StageSent    = "sent"    // the kill was sent, or handed to the runtime
	StageEmpty   = "empty"   // no process is left
	StageSettled = "settled" // the memory is back
)

// KillStages returns the stages in their order.
func KillStages() []string { return []string{StageIntent, StageSent, StageEmpty, StageSettled} }

// Why a pod was taken; the reasons not to take one are NoVictim's.
const (
	ReasonEarlyBand  = "earlyBand"  // between floor and threshold: over its request
	ReasonBelowFloor = "belowFloor" // below the floor: anybody
	ReasonThreshold  = "threshold"  // disk, inodes, PIDs: the hard threshold is met
	ReasonResumed    = "resumed"    // a kill that a previous process began
	ReasonGrace      = "grace"      // soft: past the grace of the threshold, and the runtime ended the pod
	ReasonEscalated  = "escalated"  // soft: the runtime did not end the pod in time, and it was killed
	ReasonShortened  = "shortened"  // soft: a hard threshold was met meanwhile
	ReasonReclaimed  = "reclaimed"  // soft: the kernel took enough back, nobody had to go
)

// DecisionCount is how many decisions about a signal ended in one way. The
// decision not to act is counted once per breach and reason.
type DecisionCount struct {
	Signal Signal
	// Kind is that of the threshold, hard or soft.
	Kind string
	// Outcome is that of a Report.
	Outcome string
	// Reason is why a pod was taken, or why none was.
	Reason string
	Count  uint64
}

// KillCount is how many kills came to an end.
type KillCount struct {
	Signal Signal
	Kind   string
	// Direct: through the pod's cgroup; else through the runtime alone.
	Direct bool
	// Dead: verified; else given up.
	Dead  bool
	Count uint64
}

// StageCount is how long kills took to reach a stage; its Count is how many
// reached it.
type StageCount struct {
	Signal    Signal
	Kind      string
	Stage     string
	Durations Durations
}

// ReasonCount is how often something happened for a reason.
type ReasonCount struct {
	Reason string
	Count  uint64
}

// Counts are what happened since the process started; all lists are sorted.
type Counts struct {
	Decisions []DecisionCount
	Breaches  []SignalCount
	Kills     []KillCount
	Stages    []StageCount
	// KillErrors are by the step that failed: hold, kill or runtime.
	KillErrors []ReasonCount
	// Retries are repeated kills, Fallbacks those the watchdog took over.
	Retries, Fallbacks uint64
	// Releases are ends of holds by their reason.
	Releases []ReasonCount
	// InProgress are kills that are not over.
	InProgress int
}

// SignalCount is how often a signal's threshold came to be met.
type SignalCount struct {
	Signal Signal
	Count  uint64
}

// The steps of a kill that can fail.
const (
	stepHold    = "hold"
	stepKill    = "kill"
	stepRuntime = "runtime"
)

type killKey struct {
	signal       Signal
	kind         string
	direct, dead bool
}

type decisionKey struct {
	signal                Signal
	kind, outcome, reason string
}

type stageKey struct {
	signal      Signal
	kind, stage string
}

// counters count in the slow half. What the fast half counts is in episodes.
type counters struct {
	mu                 sync.Mutex
	decisions          map[decisionKey]uint64
	kills              map[killKey]uint64
	stages             map[stageKey]*Durations
	killErrors         map[string]uint64
	releases           map[string]uint64
	retries, fallbacks uint64
}

// newCounters returns counters that show 0 for what has not happened to these
// signals: an alarm on a series that is not there does not ring.
func newCounters(signals ...Signal) *counters {
	c := &counters{
		decisions: map[decisionKey]uint64{}, kills: map[killKey]uint64{}, stages: map[stageKey]*Durations{},
		killErrors: map[string]uint64{stepHold: 0, stepKill: 0, stepRuntime: 0}, releases: map[string]uint64{},
	}
	for _, s := range signals {
		for _, outcome := range []string{OutcomeEvicted, OutcomeFailed, OutcomeWouldEvict} {
			for _, reason := range hardReasons(s) {
				c.decisions[decisionKey{s, KindHard, outcome, reason}] = 0
			}
		}
		for _, k := range []killKey{{s, KindHard, true, true}, {s, KindHard, true, false}, {s, KindHard, false, true}, {s, KindHard, false, false}} {
			c.kills[k] = 0
		}
		for _, stage := range KillStages() {
			c.stages[stageKey{s, KindHard, stage}] = &Durations{}
		}
	}
	for _, reason := range ReleaseReasons() {
		c.releases[reason] = 0
	}
	return c
}

// hardReasons are those a hard decision about this signal can have.
func hardReasons(s Signal) []string {
	if s.Memory() {
		return []string{ReasonEarlyBand, ReasonBelowFloor}
	}
	return []string{ReasonThreshold}
}

// watched are the hard signals that these settings act on.
func watched(set *Settings) []Signal {
	out := []Signal{MemoryAvailable}
	if set.Allocatable.Amount > 0 {
		out = append(out, AllocatableMemoryAvailable)
	}
	for _, t := range set.Slow {
		if t.Hard && !t.Value.Off {
			out = append(out, t.Signal)
		}
	}
	return out
}

// decided counts a decision with its outcome.
func (c *counters) decided(s Signal, kind, outcome, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decisions[decisionKey{s, kind, outcome, reason}]++
}

// reached counts a kill that came to a stage, after d.
func (c *counters) reached(s Signal, kind, stage string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := stageKey{s, kind, stage}
	if c.stages[k] == nil {
		c.stages[k] = &Durations{}
	}
	c.stages[k].add(d)
}

// released counts the end of a hold.
func (c *counters) released(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releases[reason]++
}

// ended counts a kill that is over.
func (c *counters) ended(s Signal, kind string, k *KillReport, dead bool) {
	if dead {
		c.reached(s, kind, StageEmpty, k.Empty)
		c.reached(s, kind, StageSettled, k.Settled)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills[killKey{s, kind, k.Direct, dead}]++
	c.retries += uint64(max(k.Tries-1, 0))
	if k.Fallback {
		c.fallbacks++
	}
	for step, text := range map[string]string{stepHold: k.HoldError, stepKill: k.KillError} {
		if text != "" {
			c.killErrors[step]++
		}
	}
}

// runtimeFailed counts a victim that the runtime could not be made to stop.
func (c *counters) runtimeFailed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killErrors[stepRuntime]++
}

// startKill counts a kill that the slow half has taken over.
func (e *Engine) startKill(d *Decision, outcome string) {
	if outcome == OutcomeResumed {
		return // its first stages were another process's
	}
	k := killReport(d, d.At, 0)
	e.counters.reached(d.Signal, KindHard, StageIntent, k.Intent)
	e.counters.reached(d.Signal, KindHard, StageSent, k.Sent)
}

// count counts a report, once however often it is kept. Reports of the decision
// not to act are counted where it is made, which misses none.
func (e *Engine) count(r *Report) {
	if r.counted || r.Outcome == OutcomeNoVictim || r.Outcome == OutcomeEvicting {
		return
	}
	r.counted = true
	kind := r.kind()
	e.counters.decided(r.Signal, kind, r.Outcome, r.reason())
	if r.Kill == nil {
		return
	}
	if kind == KindSoft && r.Outcome != OutcomeResumed {
		// A hard kill was counted when it was sent.
		e.counters.reached(r.Signal, kind, StageIntent, r.Kill.Intent)
		e.counters.reached(r.Signal, kind, StageSent, r.Kill.Sent)
	}
	e.counters.ended(r.Signal, kind, r.Kill, r.Outcome != OutcomeFailed)
}

// kind is that of the threshold a report is about.
func (r *Report) kind() string {
	if r.Soft != nil {
		return KindSoft
	}
	return KindHard
}

// reason is why the victim of a report was taken, or how it went with a soft
// threshold.
func (r *Report) reason() string {
	switch {
	case r.Outcome == OutcomeResumed:
		return ReasonResumed
	case r.Outcome == OutcomeReclaimed:
		return ReasonReclaimed
	case r.Soft != nil && r.Soft.Shortened != nil:
		return ReasonShortened
	case r.Soft != nil && r.Soft.Escalated != "":
		return ReasonEscalated
	case r.Soft != nil:
		return ReasonGrace
	case r.Resource != nil:
		return ReasonThreshold
	case r.Memory.Available < r.Memory.Floor:
		return ReasonBelowFloor
	}
	return ReasonEarlyBand
}

// Counts returns what happened since the start.
func (e *Engine) Counts() Counts {
	var out Counts
	e.mu.Lock()
	out.InProgress = len(e.pending)
	e.mu.Unlock()
	out.InProgress += e.soft.hardSlows()
	for s, ep := range e.episodes() {
		out.Breaches = append(out.Breaches, SignalCount{s, ep.breaches.Load()})
		for why := Chosen + 1; why < noVictims; why++ {
			out.Decisions = append(out.Decisions, DecisionCount{s, KindHard, OutcomeNoVictim, why.Reason(), ep.notActing[why].Load()})
		}
	}
	e.counters.addTo(&out)
	slices.SortFunc(out.Decisions, func(a, b DecisionCount) int {
		return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(out.Breaches, func(a, b SignalCount) int { return cmp.Compare(a.Signal, b.Signal) })
	return out
}

// addTo copies what was counted.
func (c *counters) addTo(out *Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.decisions {
		out.Decisions = append(out.Decisions, DecisionCount{k.signal, k.kind, k.outcome, k.reason, n})
	}
	for k, n := range c.kills {
		out.Kills = append(out.Kills, KillCount{k.signal, k.kind, k.direct, k.dead, n})
	}
	for k, d := range c.stages {
		out.Stages = append(out.Stages, StageCount{k.signal, k.kind, k.stage, d.copy()})
	}
	out.KillErrors, out.Releases = reasonCounts(c.killErrors), reasonCounts(c.releases)
	out.Retries, out.Fallbacks = c.retries, c.fallbacks
	slices.SortFunc(out.Kills, func(a, b KillCount) int {
		return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Kind, b.Kind), compareBool(a.Direct, b.Direct), compareBool(a.Dead, b.Dead))
	})
	order := KillStages()
	slices.SortFunc(out.Stages, func(a, b StageCount) int {
		return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Kind, b.Kind), slices.Index(order, a.Stage)-slices.Index(order, b.Stage))
	})
}

func reasonCounts(m map[string]uint64) []ReasonCount {
	var out []ReasonCount
	for reason, n := range m {
		out = append(out, ReasonCount{reason, n})
	}
	slices.SortFunc(out, func(a, b ReasonCount) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}

func compareBool(a, b bool) int {
	if a == b {
		return 0
	}
	return firstIf(a)
}
