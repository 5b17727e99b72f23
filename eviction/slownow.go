package eviction

import (
	"slices"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// slowNow lists the signals of disk, inodes and PIDs that are watched.
func (e *Engine) slowNow(set *Settings, soft []SoftNow) []SignalNow {
	layout := e.slow.currentLayout()
	inForce := set.inForce(layout)
	now := e.clock()
	var out []SignalNow
	for _, s := range Signals() {
		if s.Memory() || !slices.ContainsFunc(inForce, func(t SlowThreshold) bool { return t.Signal == s }) {
			continue
		}
		last, good := e.slow.reading(s)
		o := observation{At: good.At}
		n := SignalNow{
			Signal: s, Unit: s.Unit(), Known: o.fresh(now), Absent: last.Absent, Problem: last.Problem, Path: last.Path,
			Device: deviceText(last.Device), SameAs: last.SameAs, Capacity: good.Capacity, Available: good.Available,
			AvailableKernel: good.Available, AvailableKubelet: good.Available,
		}
		e.slowHardNow(&n)
		for _, t := range soft {
			if t.Signal == s {
				n.Thresholds = append(n.Thresholds, softThresholdNow(&t))
			}
		}
		out = append(out, n)
	}
	return out
}

// softThresholdNow is a soft threshold as one of its signal's.
func softThresholdNow(t *SoftNow) ThresholdNow {
	return ThresholdNow{
		Kind: KindSoft, Amount: t.Threshold, MinReclaim: t.MinReclaim, Grace: t.Grace,
		Met: !t.MetSince.IsZero(), MetSince: t.MetSince, PastGrace: t.PastGrace, Unarmed: t.Unarmed, NotActing: t.Waiting,
	}
}

// slowHardNow fills in the hard threshold of a slow signal.
func (e *Engine) slowHardNow(n *SignalNow) {
	now := e.clock()
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	for k, w := range e.soft.watches {
		if !k.slow || !k.hard || k.Signal != n.Signal {
			continue
		}
		t := ThresholdNow{Kind: KindHard, Amount: k.Amount, MinReclaim: k.MinReclaim, Met: !w.firstMet.IsZero()}
		if t.Met {
			t.MetSince = w.firstMet.UTC()
			n.NotActing = w.why
		}
		n.Unarmed = !w.armed && !w.observed && !w.last.absent
		if n.Unarmed && t.Met {
			n.NotActing = unarmedText
		}
		if until, why := w.breaker.state(now); why != Chosen {
			n.Breaker, n.BreakerUntil = why.Reason(), until.UTC()
		} else if w.why == BudgetSpent.String() {
			n.Breaker = BudgetSpent.Reason()
		}
		n.Thresholds = append(n.Thresholds, t)
	}
}

// slowSources tells how old the readings are.
func (e *Engine) slowSources(add func(name string, at time.Time, ok bool)) {
	values := e.slowValues()
	disks, tasks := false, false
	var at time.Time
	ok := true
	for s := range values {
		if s == PIDAvailable {
			tasks = true
			continue
		}
		last, good := e.slow.reading(s)
		if last.Absent || last.SameAs != "" {
			continue
		}
		disks = true
		ok = ok && last.Problem == ""
		if good.At.After(at) {
			at = good.At
		}
	}
	if disks {
		add(SourceDisks, at, ok)
	}
	if tasks {
		last, good := e.slow.reading(PIDAvailable)
		add(SourceTasks, good.At, last.Problem == "")
	}
}

// slowUnarmed are the hard slow thresholds that are not acted on because they
// were met when they were loaded.
func (e *Engine) slowUnarmed() []Signal {
	var out []Signal
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	for k, w := range e.soft.watches {
		if k.slow && k.hard && !w.armed && !w.observed && !w.firstMet.IsZero() {
			out = append(out, k.Signal)
		}
	}
	slices.Sort(out)
	return out
}

// slowArmedBefore says whether a slow threshold is acted on from its first round
// on: what was written was in force in the last run, or nothing is remembered.
func (e *Engine) slowArmedBefore(k watchKey) bool {
	return e.armed == nil || e.armedBefore[k.name] == k.fingerprint
}

// stillArmed keeps what is remembered of slow thresholds that could not be judged
// yet, because their signal was not read since the start.
func (e *Engine) stillArmed(amounts map[Signal]uint64) {
	judged := map[Signal]bool{}
	e.soft.mu.Lock()
	for k := range e.soft.watches {
		judged[k.name] = judged[k.name] || k.slow
	}
	e.soft.mu.Unlock()
	for _, t := range e.settings().inForce(e.slow.currentLayout()) {
		name := t.armedName()
		if f := t.Value.fingerprint(); !judged[name] && e.armedBefore[name] == f && f != 0 {
			amounts[name] = f
		}
	}
}

// seedSlow counts the kills of the last hour that the history knows of: neither a
// restart nor a new threshold is a new budget.
func (e *Engine) seedSlow(w *softWatch) {
	now := e.clock()
	reports := e.history.newest(historyLength)
	slices.Reverse(reports)
	for _, r := range reports {
		if r.Signal != w.key.Signal || (r.Soft == nil) != w.key.hard || r.Victim == nil || r.Outcome == OutcomeWouldEvict {
			continue
		}
		if age := now.Sub(r.Time); age >= 0 && age < budgetWindow {
			w.breaker.count(r.Time)
		}
	}
}

// newSlowEpisodes makes the counters of hard slow thresholds.
func newSlowEpisodes() map[Signal]*episodes {
	out := map[Signal]*episodes{}
	for _, s := range Signals() {
		if !s.Memory() {
			out[s] = &episodes{}
		}
	}
	return out
}

// slowEpisode counts a breach of a hard slow threshold. mu is held.
func (e *Engine) slowEpisode(w *softWatch) {
	if !w.fresh {
		return
	}
	ep := e.slowEpisodes[w.key.Signal]
	met := !w.firstMet.IsZero()
	ep.sample(met)
	if met && !w.armed && !w.observed {
		ep.note(Unarmed)
	}
}

// pressureText says who is kept out under these conditions.
func pressureText(c holds.Conditions) string {
	var on []string
	who := "new pods"
	if c.Memory {
		on = append(on, "memory")
		if !c.Disk && !c.PID {
			who = "new BestEffort pods"
		}
	}
	if c.Disk {
		on = append(on, "disk")
	}
	if c.PID {
		on = append(on, "PID")
	}
	return "the node is under " + strings.Join(on, " and ") + " pressure: " + who + " are kept out"
}
