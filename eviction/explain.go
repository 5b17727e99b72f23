package eviction

import (
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// State is the engine's present state, for status.
type State struct {
	Mode         string              `json:"mode"`
	Started      time.Time           `json:"started"`
	Memory       MemoryNow           `json:"memory"`
	Pods         int                 `json:"pods"`
	Held         int                 `json:"held"`
	Inventory    inventory.SyncState `json:"inventory"`
	Decisions    int                 `json:"decisions"`
	LastDecision *Report             `json:"lastDecision,omitempty"`
	Degraded     []string            `json:"degraded,omitempty"`
	LedgerError  string              `json:"ledgerError,omitempty"`
	HoldsError   string              `json:"holdsError,omitempty"`
	// Wakeups are the kernel's events that can shorten the sampler's wait.
	Wakeups []WakeupState `json:"wakeups,omitempty"`
	// Unarmed: the threshold was met when it was loaded and has not been clear
	// since; nothing is evicted.
	Unarmed bool `json:"unarmed,omitempty"`
	// ControlPlane are static pods because of which protectStatic is not followed.
	ControlPlane []string `json:"controlPlane,omitempty"`
	// PausedUntil is when a pause by hand ends; until then nothing is evicted.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	// NotAdmitted are new pods that wait for the pressure to be over.
	NotAdmitted []NotAdmitted `json:"notAdmitted,omitempty"`
	// Waiting says why no pod is taken although the threshold is met.
	Waiting string `json:"waiting,omitempty"`
	// Soft are the soft thresholds, Conditions what the proxy admits pods by.
	Soft       []SoftNow     `json:"soft,omitempty"`
	Conditions ConditionsNow `json:"conditions"`
	// Signals are those that are watched, Sources what all of it relies on.
	Signals []SignalNow `json:"signals"`
	Sources []SourceNow `json:"sources"`
	// HoldStates are how many records of the holds file are in which state.
	HoldStates map[string]int `json:"holdStates"`
	// Telling is how Kubernetes is told of evictions; absent when it is not.
	Telling *TellingNow `json:"telling,omitempty"`
}

// MemoryNow is the last sample.
type MemoryNow struct {
	MemoryReport
	Time     time.Time     `json:"time"`
	Age      time.Duration `json:"age"` // ns
	Period   time.Duration `json:"period"`
	Samples  uint64        `json:"samples"`
	Failures uint64        `json:"failures"`
	Failing  bool          `json:"failing"`
	MetSince time.Time     `json:"metSince,omitzero"`
	// KubeletSources is kubelet's reading from kubelet's own sources, taken at
	// KubeletSourcesTime in calm times to compare availableKubelet with.
	KubeletSources     uint64    `json:"availableKubeletSources,omitempty"`
	KubeletSourcesTime time.Time `json:"availableKubeletSourcesTime,omitzero"`
}

// State returns the present state.
func (e *Engine) State() State {
	s := State{
		Mode: mode(e.settings().Rules), Started: e.started, Memory: e.memoryNow(),
		Pods: len(e.store.Snapshot().Pods), Inventory: e.syncer.State(), HoldStates: map[string]int{},
	}
	for _, r := range e.holds.Records() {
		s.HoldStates[r.State.String()]++
		if r.Holds() {
			s.Held++
		}
	}
	s.Decisions = e.history.length()
	if last := e.History(1); len(last) > 0 {
		s.LastDecision = &last[0]
	}
	e.mu.Lock()
	s.Degraded = append(s.Degraded, e.realtime...)
	s.LedgerError, s.HoldsError = e.ledgerError, e.holdsError
	if e.copier != nil && s.LedgerError == "" {
		if err := e.copier.Problem(); err != nil {
			s.LedgerError = err.Error()
		}
	}
	e.mu.Unlock()
	s.Wakeups = e.wakeups.states()
	s.Unarmed = len(e.unarmed()) > 0
	if plan := e.sampler.plan.Load(); plan != nil {
		s.ControlPlane = plan.controlPlane
	}
	if until := e.PausedUntil(); !until.IsZero() {
		s.PausedUntil = until.UTC()
	}
	s.NotAdmitted = e.waitingNow()
	s.Waiting = e.waitingFor(&e.sampler.hard, &e.settings().Rules)
	s.Soft, s.Conditions = e.softNow(), e.conditionsNow()
	s.Signals, s.Sources = e.signals(), e.sources(&s)
	s.Soft, s.Conditions = e.softNow(), e.conditionsNow()
	s.Telling = e.telling()
	return s
}

func mode(r Rules) string {
	switch {
	case r.Paused:
		return "paused"
	case r.Observe:
		return "observe"
	}
	return "enforce"
}

// waitingFor says in words why nothing is done while the threshold is met.
func (e *Engine) waitingFor(h *hard, rules *Rules) string {
	l := &h.latest
	if !l.met.Load() {
		return ""
	}
	if why := NoVictim(l.noVictim.Load()); why != Chosen {
		return why.String()
	}
	if !h.armed.armed(rules) {
		return Unarmed.String()
	}
	if until := e.PausedUntil(); !until.IsZero() {
		return "paused by hand until " + until.UTC().Format(time.RFC3339)
	}
	if rules.Observe {
		return "mode is observe"
	}
	if action(l.action.Load()) == waiting {
		return "a kill is in flight, or its memory is still coming back"
	}
	return ""
}

func (e *Engine) memoryNow() MemoryNow {
	return e.signalNow(&e.sampler.hard, &e.settings().Rules, e.sampler.minFree)
}

// signalNow is the last sample of one memory signal.
func (e *Engine) signalNow(h *hard, r *Rules, minFree uint64) MemoryNow {
	l := &h.latest
	n := MemoryNow{
		MemoryReport: MemoryReport{
			Capacity: l.capacity.Load(), Available: l.available.Load(), AvailableKernel: l.kernel.Load(),
			AvailableKubelet: l.kubelet.Load(), MinFree: minFree, From: r.From.String(),
			Threshold: r.Amount, Floor: r.Floor, Met: l.met.Load(), DirectReclaim: l.direct.Load(),
			SwapTotal: l.swapTotal.Load(), SwapFree: l.swapFree.Load(),
		},
		Period: time.Duration(l.period.Load()), Samples: l.samples.Load(), Failures: l.failures.Load(), Failing: l.failing.Load(),
	}
	n.EarlyBand = n.Met && n.Available >= r.Floor
	if at := l.at.Load(); at != 0 {
		n.Time = l.time(int64(at))
		n.Age = max(0, e.clock().Sub(n.Time))
	}
	if at := l.checkedAt.Load(); at != 0 {
		n.KubeletSources, n.KubeletSourcesTime = l.checked.Load(), l.time(at).UTC()
	}
	if n.Met {
		n.MetSince = l.time(l.metSince.Load())
	}
	return n
}

// Explanation is what would be decided now, and why.
type Explanation struct {
	Mode       string            `json:"mode"`
	Memory     MemoryNow         `json:"memory"`
	Soft       []SoftNow         `json:"soft,omitempty"`
	Signals    []SignalNow       `json:"signals"`
	Candidates []CandidateReport `json:"candidates"`
	// Slow is the same for disk, inodes and PIDs.
	Slow []SlowExplanation `json:"slow,omitempty"`
	// Next is the pod that would be evicted if the threshold were met now.
	Next *inventory.Ref `json:"next,omitempty"`
	// NoNext says why there is none.
	NoNext    string   `json:"noNext,omitempty"`
	Decisions []Report `json:"decisions"` // newest first
	// NotAdmitted are new pods that wait for the pressure to be over.
	NotAdmitted []NotAdmitted  `json:"notAdmitted,omitempty"`
	Holds       []holds.Record `json:"-"`
}

// Explain measures every pod now and ranks them.
func (e *Engine) Explain(decisions int) Explanation {
	x := Explanation{Mode: mode(e.settings().Rules), Memory: e.memoryNow(), Signals: e.signals(), Decisions: e.History(decisions), Holds: e.holds.Records(), NotAdmitted: e.waitingNow()}
	x.Soft, x.Slow = e.softNow(), e.explainSlow()
	plan := e.sampler.plan.Load()
	if plan == nil {
		x.NoNext = NoPods.String()
		return x
	}
	cands := make([]Candidate, len(plan.Pods))
	for i := range plan.Pods {
		plan.Pods[i].measure(&cands[i])
	}
	avail := x.Memory.Available
	o := e.settings().Rules.rankBy(avail)
	x.Candidates = candidateReports(plan.Pods, cands, o)
	// Unless available is already below the floor, the first to go would be a
	// victim of the early band.
	victim, why := choose(cands, plan.barred, avail >= e.settings().Rules.Floor, o)
	if victim >= 0 {
		x.Next = &plan.Pods[victim].Ref
	} else {
		x.NoNext = why.String()
	}
	return x
}

// report describes a decision with all its inputs.
func (e *Engine) report(d *Decision, outcome string) *Report {
	if d.slow != nil {
		return e.slowReport(d, outcome)
	}
	r := &Report{
		ID: d.ID, Time: d.At.UTC(), Signal: d.Signal, Outcome: outcome, Mode: mode(d.Rules), Summary: e.summary(d), Soft: d.soft,
		Memory: memoryReport(&d.Sample, &d.Verdict, &d.Rules),
	}
	victim := d.pod().Ref
	r.Victim = &victim
	cands := make([]Candidate, len(d.Candidates))
	for i := range cands {
		cands[i] = d.Candidates[i]
		if d.Plan.barred[i] && i != d.Victim {
			d.Plan.Pods[i].measure(&cands[i]) // for the reader; it played no part
		}
	}
	r.Candidates = candidateReports(d.Plan.Pods, cands, d.Rules.rankBy(d.Verdict.Available))
	if d.OverBudget {
		r.Summary += "; " + BudgetSpent.String()
	}
	if d.Outside {
		r.Consumers = e.consumers()
		r.Summary += "; " + outsideText(r.Consumers)
	}
	return r
}
