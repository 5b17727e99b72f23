package eviction

import (
	"slices"
	"time"
)

// The kinds of a threshold.
const (
	KindHard = "hard"
	KindSoft = "soft"
)

// SignalNow is a watched signal as it stands. Amounts are in the signal's unit.
type SignalNow struct {
	Signal Signal `json:"signal"`
	// Unit is what its numbers count.
	Unit Unit `json:"unit"`
	// Problem says why it is not known now, for disk, inodes and PIDs.
	Problem string `json:"problem,omitempty"`
	// Path is on the file system it is about, Device names that (major:minor).
	Path   string `json:"path,omitempty"`
	Device string `json:"device,omitempty"`
	// SameAs is the signal it is identical to here; that one decides.
	SameAs Signal `json:"sameAs,omitempty"`
	// Known is false until it was read once.
	Known bool `json:"known"`
	// Absent: this machine has no such number, which is no failure.
	Absent    bool   `json:"absent,omitempty"`
	Capacity  uint64 `json:"capacity"`
	Available uint64 `json:"available"` // the number compared
	// AvailableKernel and AvailableKubelet are the two readings of it.
	AvailableKernel  uint64         `json:"availableKernel"`
	AvailableKubelet uint64         `json:"availableKubelet"`
	From             string         `json:"memoryAvailableFrom"`
	Floor            uint64         `json:"floor"`
	Thresholds       []ThresholdNow `json:"thresholds"`
	// TimeToThreshold is how long the hard threshold is away at the present
	// rate, in ns; absent while available is not shrinking.
	TimeToThreshold *time.Duration `json:"timeToThreshold,omitempty"`
	// Unarmed: the threshold was met when it was loaded and has not been clear
	// since; nothing is evicted for it.
	Unarmed bool `json:"unarmed,omitempty"`
	// Breaker is the one that keeps pods from being taken: cascade,
	// outsidePressure or budgetSpent; until then, where that is known.
	Breaker      string    `json:"breaker,omitempty"`
	BreakerUntil time.Time `json:"breakerUntil,omitzero"`
	// NotActing says why no pod is taken although the threshold is met.
	NotActing string `json:"notActing,omitempty"`
}

// ThresholdNow is one threshold of a signal.
type ThresholdNow struct {
	Kind       string        `json:"kind"` // hard or soft
	Amount     uint64        `json:"amount"`
	MinReclaim uint64        `json:"minReclaim"`
	Grace      time.Duration `json:"grace,omitempty"` // ns
	Met        bool          `json:"met"`
	MetSince   time.Time     `json:"metSince,omitzero"`
	// Of a soft one:
	PastGrace bool `json:"pastGrace,omitempty"`
	Unarmed   bool `json:"unarmed,omitempty"`
	// NotActing says why nothing is done although it is met.
	NotActing string `json:"notActing,omitempty"`
}

// The sources whose age is told.
const (
	SourceMemory    = "memory"        // samples of the fast half
	SourceInventory = "inventory"     // lists of the runtime
	SourceTree      = "cgroupTree"    // walks of the pods' cgroups
	SourcePlan      = "plan"          // what the fast half decides on
	SourceLedger    = "ledger"        // copies of the holds
	SourceKubelet   = "kubeletConfig" // kubelet's own threshold
	SourcePodsAPI   = "podsAPI"       // kubelet's Pods API
	SourceAPI       = "api"           // a watch of the API server
	SourceAllocated = "allocation"    // kubelet's file of allocated resources
	SourceDisks     = "filesystems"   // statfs
	SourceTasks     = "tasks"         // /proc/loadavg
)

// SourceNow is something the engine relies on, with its age.
type SourceNow struct {
	Name string `json:"name"`
	// OK is false when the last try failed, or none has been made.
	OK bool `json:"ok"`
	// At is when it last succeeded; zero for never.
	At  time.Time     `json:"at,omitzero"`
	Age time.Duration `json:"age"` // ns since At
	// Absent: this node does not have it, and others take its place.
	Absent bool `json:"absent,omitempty"`
	// Error is why it is not OK, where that is known.
	Error string `json:"error,omitempty"`
}

// sources lists what there is to rely on here.
func (e *Engine) sources(s *State) []SourceNow {
	now := e.clock()
	var out []SourceNow
	add := func(name string, at time.Time, ok bool) {
		n := SourceNow{Name: name, OK: ok && !at.IsZero(), At: at}
		if !at.IsZero() {
			n.Age = max(0, now.Sub(at))
		}
		out = append(out, n)
	}
	if e.settings().Rules.Amount > 0 {
		add(SourceMemory, s.Memory.Time, !s.Memory.Failing)
	}
	e.slowSources(add)
	add(SourceInventory, s.Inventory.ListedAt, s.Inventory.ListError == "")
	add(SourceTree, s.Inventory.TreeAt, s.Inventory.TreeError == "")
	if plan := e.sampler.plan.Load(); plan != nil {
		add(SourcePlan, plan.BuiltAt, true)
	} else {
		add(SourcePlan, time.Time{}, false)
	}
	if e.copier != nil {
		add(SourceLedger, e.copier.Saved(), s.LedgerError == "")
	}
	if set := e.settings(); set.KubeletConfigured {
		add(SourceKubelet, set.KubeletReadAt, true)
	}
	if e.factSources != nil {
		for _, x := range e.factSources() {
			if !x.At.IsZero() {
				x.Age = max(0, now.Sub(x.At))
			}
			out = append(out, x)
		}
	}
	return out
}

// factsExpected says whether somebody tells the pods' priorities, or is about
// to.
func (e *Engine) factsExpected() bool {
	return e.factSources != nil && slices.ContainsFunc(e.factSources(), func(x SourceNow) bool { return !x.Absent })
}

// signals lists the signals that are watched.
func (e *Engine) signals() []SignalNow {
	set, all := e.settings(), e.softNow()
	var out []SignalNow
	for _, h := range e.sampler.hards() {
		rules, minFree := &set.Rules, e.sampler.minFree
		if h == &e.sampler.allocatable {
			rules, minFree = &set.Allocatable, 0
		}
		soft := slices.DeleteFunc(slices.Clone(all), func(t SoftNow) bool { return t.Signal != h.signal })
		if rules.Amount == 0 && len(soft) == 0 && h.signal != MemoryAvailable {
			continue
		}
		out = append(out, e.hardNow(h, rules, minFree, soft))
	}
	return append(out, e.slowNow(set, all)...)
}

// hardNow is one hard signal with the soft thresholds of the same.
func (e *Engine) hardNow(h *hard, rules *Rules, minFree uint64, soft []SoftNow) SignalNow {
	l, m := &h.latest, e.signalNow(h, rules, minFree)
	s := SignalNow{
		Signal: h.signal, Unit: Bytes, Known: l.at.Load() != 0, Absent: l.absent.Load(), Capacity: m.Capacity, Available: m.Available,
		AvailableKernel: m.AvailableKernel, AvailableKubelet: m.AvailableKubelet, From: m.From, Floor: m.Floor,
		Thresholds: []ThresholdNow{{
			Kind: KindHard, Amount: rules.Amount, MinReclaim: rules.MinReclaim, Met: m.Met, MetSince: m.MetSince,
		}},
		Unarmed: slices.Contains(e.unarmed(), h.signal), NotActing: e.waitingFor(h, rules),
	}
	if d := time.Duration(l.timeTo.Load()); s.Known && !m.Met && d >= 0 {
		s.TimeToThreshold = &d
	}
	if why := NoVictim(l.breaker.Load()); why != Chosen {
		s.Breaker, s.BreakerUntil = why.Reason(), l.time(l.breakerUntil.Load()).UTC()
	} else if NoVictim(l.noVictim.Load()) == BudgetSpent {
		s.Breaker = BudgetSpent.Reason()
	}
	for _, t := range soft {
		s.Thresholds = append(s.Thresholds, softThresholdNow(&t))
	}
	return s
}
