package eviction

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/holds"
)

const (
	// softSpacing is how long an eviction may take to show before the next soft
	// one for the same signal: kubelet's own pace.
	softSpacing = 10 * time.Second
	// listAge is the oldest list a soft decision is made by (design §6).
	listAge = 10 * time.Second
)

// considerSoft decides about a soft threshold whose grace is over.
func (e *Engine) considerSoft(ctx context.Context, set *Settings, w *softWatch, now time.Time) {
	why := e.softWaits(set, w, now)
	s := &e.soft
	s.mu.Lock()
	w.why = why
	due := why == "" && w.due(w.last)
	stops, budget := Chosen, false
	if due && !set.Rules.Observe {
		stops, budget = w.breaker.stops(now), w.breaker.spent(now, set.KillBudget)
		if set.Rules.AsKubelet.NoBreakers {
			stops = Chosen
		}
	}
	if due && (set.Rules.Observe || budget) {
		w.why = onlyReported(&set.Rules)
		// Nothing is ended then, so nothing will change: a report a minute is enough.
		due = w.saidAt.IsZero() || now.Sub(w.saidAt) >= observedFor
	}
	s.mu.Unlock()
	if !due {
		return
	}
	if w.key.slow && stops == Chosen && !set.Rules.Observe && !budget && e.tryReclaimer(ctx, w) {
		return
	}
	d, none := e.chooseFor(set, w, now)
	if stops != Chosen {
		none = stops
	}
	if d == nil || stops != Chosen {
		e.saySoftNobody(w, none, now)
		return
	}
	if budget {
		d.Rules.Observe = true
		e.saySoftNobody(w, BudgetSpent, now)
	}
	if d.Rules.Observe {
		s.mu.Lock()
		w.saidAt = now
		s.mu.Unlock()
		e.observe(d)
		return
	}
	switch {
	case w.key.slow && w.key.hard:
		e.beginSlow(ctx, w, d)
	case w.key.slow || !e.tryReclaim(ctx, w, d):
		e.beginSoft(ctx, w, d)
	}
}

// chooseFor measures the pods and takes one, nil and the reason when there is
// none.
func (e *Engine) chooseFor(set *Settings, w *softWatch, now time.Time) (*Decision, NoVictim) {
	if w.key.slow {
		return e.chooseSlow(set, w, now)
	}
	return e.chooseSoft(set, w, now)
}

// chooseSoft measures every pod and takes the first by rank; nil and the reason
// when there is none. Only pods over their request can be victims: above the
// hard threshold it is always the early band.
func (e *Engine) chooseSoft(set *Settings, w *softWatch, now time.Time) (*Decision, NoVictim) {
	plan := e.sampler.plan.Load()
	if plan == nil {
		return nil, NoPods
	}
	cands := make([]Candidate, len(plan.Pods))
	barred := make([]bool, len(plan.Pods))
	for i := range plan.Pods {
		plan.Pods[i].measure(&cands[i])
		barred[i] = plan.Pods[i].Barred != "" || plan.Pods[i].Evicting != 0 || plan.Pods[i].Ending
		cands[i].Out = w.key.Signal == AllocatableMemoryAvailable && !plan.Pods[i].inPods
	}
	e.soft.barBegun(plan, barred)
	rules := *set.rulesOf(w.key.Signal)
	rules.Amount, rules.MinReclaim = w.key.Amount, w.key.MinReclaim
	rules.Observe, rules.Paused = set.Rules.Observe, set.Rules.Paused
	need := rules.Amount + rules.MinReclaim
	lacking := need - min(need, w.last.Available)
	victim, why := choose(cands, barred, true, RankOptions{
		Shortage: lacking, SmallGainLast: set.Rules.SmallGainLast, AsKubelet: set.Rules.AsKubelet,
	})
	if victim < 0 {
		return nil, why
	}
	outside := overGain(cands, barred) < lacking && !set.Rules.AsKubelet.NoBreakers
	if outside && !rules.Observe && e.outsideBefore(w) {
		return nil, OutsidePressure
	}
	l := &e.sampler.hardOf(w.key.Signal).latest
	d := &Decision{
		Signal: w.key.Signal, At: now, Plan: plan, Candidates: cands, Victim: victim, Rules: rules, EarlyBand: true,
		Sample: MemorySample{
			At: w.last.At, Capacity: l.capacity.Load(), Kernel: l.kernel.Load(), Kubelet: l.kubelet.Load(),
			MinFree: e.sampler.minFree, SwapFree: l.swapFree.Load(), SwapTotal: l.swapTotal.Load(),
		},
		Outside: outside,
		Verdict: MemoryVerdict{Available: w.last.Available, Met: true, DirectReclaim: l.direct.Load()},
	}
	e.soft.mu.Lock()
	d.soft = &SoftReport{
		Grace: w.key.Grace, MinReclaim: w.key.MinReclaim, MetSince: w.firstMet.UTC(),
		Shortage: lacking, Reclaim: w.reclaim, MaxPodGrace: e.maxPodGrace(),
	}
	if w.reclaim != nil {
		w.reclaim.After = w.last.Available
	}
	e.soft.mu.Unlock()
	return d, Chosen
}

// outsideBefore says whether a pod was ended in this breach although all of them
// together could not make up for the shortage.
func (e *Engine) outsideBefore(w *softWatch) bool {
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	return w.breaker.outside
}

// tryReclaim asks the kernel to take memory back before a pod is ended for it,
// once per decision; true when that is under way. It runs beside the loop: the
// kernel may take its time.
func (e *Engine) tryReclaim(ctx context.Context, w *softWatch, d *Decision) bool {
	s := &e.soft
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.tried || s.noReclaim {
		return false
	}
	w.tried = true
	targets := reclaimTargets(d.Plan.Pods, d.Candidates)
	if len(targets) == 0 {
		return false
	}
	w.busy = "memory.reclaim is being asked for"
	need, before := d.soft.Shortage, w.last.Available
	over := make(chan struct{})
	end := func(r *ReclaimReport, absent bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		select {
		case <-over:
			return // it was given up before
		default:
		}
		close(over)
		w.busy, w.reclaim = "", r
		s.noReclaim = s.noReclaim || absent
		w.after = e.clock()
	}
	// Not waited for at the end: a write that hangs in the kernel would keep the
	// process from ending.
	go func() {
		r, absent := reclaim(targets, need, e.clock)
		r.Available = before
		if absent {
			end(nil, true)
			return
		}
		end(&r, false)
	}()
	e.finishing.Go(func() {
		timer := time.NewTimer(reclaimStuck)
		defer timer.Stop()
		select {
		case <-over:
		case <-ctx.Done():
		case <-timer.C:
			end(&ReclaimReport{Available: before, Took: reclaimStuck, Error: "the kernel did not come back in time"}, false)
		}
	})
	return true
}

// beginSoft writes the hold and follows the eviction beside the loop.
func (e *Engine) beginSoft(ctx context.Context, w *softWatch, d *Decision) {
	d.ID = e.holds.NextID()
	ev := &softEviction{d: d, report: d.soft, watch: w, hardened: make(chan *Decision, 1)}
	s := &e.soft
	s.mu.Lock()
	s.running[d.pod().UID] = ev
	s.readAgain(d.At)
	s.noteSlow(w, d)
	w.busy, w.tried, w.reclaim, w.disk, w.said = fmt.Sprintf("decision %d: a pod is being evicted for it", d.ID), false, nil, nil, ""
	s.mu.Unlock()
	d.kill.intentErr = e.holds.Put(softRecord(d))
	d.kill.intentAt.Store(e.clock().UnixNano())
	d.kill.advance(killIntent)
	e.startSoft(ctx, ev)
}

// softRecord is the hold of a soft eviction.
func softRecord(d *Decision) holds.Record {
	pod, c := d.pod(), &d.Candidates[d.Victim]
	r := pod.record(d.Signal)
	r.ID, r.Soft, r.Decided = d.ID, d.soft != nil, d.At
	if d.slow != nil {
		r.Request = int64(min(c.Request, 1<<62))
	}
	r.Frozen = pod.NoDirect == "" && pod.freezes
	r.Threshold, r.Usage = int64(d.Rules.Amount), int64(c.Usage)
	r.Available, r.AvailableKubelet = int64(d.Sample.Kernel), int64(d.Sample.Kubelet)
	return r
}

// startSoft follows a soft eviction whose hold is visible.
func (e *Engine) startSoft(ctx context.Context, ev *softEviction) {
	uid := ev.d.pod().UID
	s := &e.soft
	s.mu.Lock()
	s.running[uid] = ev
	s.mu.Unlock()
	e.finishing.Go(func() {
		e.follow(ctx, ev)
		if ev.resumed {
			ev.d.pod().close()
		}
		e.softOver(ev)
	})
}

// softOver notes that an eviction that the slow half began has ended.
func (e *Engine) softOver(ev *softEviction) {
	s := &e.soft
	s.mu.Lock()
	delete(s.running, ev.d.pod().UID)
	now := e.clock()
	if w := ev.watch; w != nil {
		w.busy, w.killedAt = "", now
		w.breaker.over(ev.d.At)
		w.done(now, ev.d.Verdict.Available)
		s.doneSlow(ev.d, now)
	}
	s.readAgain(now)
	s.mu.Unlock()
	// A hard decision that came too late to shorten anything: the fast half waits
	// for it.
	select {
	case hard := <-ev.hardened:
		hard.kill.advance(killState(ev.d.kill.state.Load()))
	default:
	}
	e.wantPlan()
}

// harden gives a hard decision about a pod to the soft eviction of it that is
// under way; false when there is none.
func (e *Engine) harden(d *Decision) bool {
	s := &e.soft
	s.mu.Lock()
	defer s.mu.Unlock()
	ev := s.running[d.pod().UID]
	if ev == nil || ev.hard {
		return false
	}
	ev.hard = true
	ev.hardened <- d // there is room: only the first one comes here
	return true
}

// killedHard notes that the fast half ends a pod or has ended one: soft
// thresholds of the same condition wait until that shows.
func (e *Engine) killedHard(at time.Time) {
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	for _, w := range e.soft.watches {
		if w.key.Signal.condition() == memoryPressure && !w.key.hard {
			w.killedAt = at
			w.done(at, w.last.Available)
		}
	}
	e.soft.readAgain(at)
}

// onlyReported says why a soft decision is not carried out.
func onlyReported(r *Rules) string {
	if r.Observe {
		return "mode is " + mode(*r)
	}
	return BudgetSpent.String()
}

// saySoftNobody reports, once per reason and breach, that a soft threshold is
// past its grace and no pod can be taken.
func (e *Engine) saySoftNobody(w *softWatch, none NoVictim, now time.Time) {
	if w.key.slow {
		e.saySlowNobody(w, none, now)
		return
	}
	e.soft.mu.Lock()
	w.why = none.String()
	if !w.noted[none] {
		w.noted[none] = true
		e.counters.decided(w.key.Signal, KindSoft, OutcomeNoVictim, none.Reason())
	}
	said := w.said == w.why
	w.said = w.why
	soft := &SoftReport{
		Grace: w.key.Grace, MinReclaim: w.key.MinReclaim, MetSince: w.firstMet.UTC(), Reclaim: w.reclaim,
		MaxPodGrace: e.maxPodGrace(),
	}
	key, last := w.key, w.last
	e.soft.mu.Unlock()
	if said {
		return
	}
	r := e.softReport(key, last, OutcomeNoVictim, none.String())
	r.Soft = soft
	soft.Shortage = key.Amount + key.MinReclaim - min(key.Amount+key.MinReclaim, last.Available)
	e.log.WithFields(logrus.Fields{"signal": key.Signal, "available": last.Available, "threshold": key.Amount, "grace": key.Grace}).
		Warn("a soft threshold is past its grace and nothing is evicted: " + none.String())
	e.keep(r)
}

// reportReclaimed says that memory.reclaim was enough.
func (e *Engine) reportReclaimed(key watchKey, last observation, done *ReclaimReport) {
	r := e.softReport(key, last, OutcomeReclaimed, fmt.Sprintf(
		"the kernel took back %s before anybody had to go: available rose from %s to %s",
		quantity(done.Returned), quantity(done.Available), quantity(last.Available)))
	r.Soft = &SoftReport{Grace: key.Grace, MinReclaim: key.MinReclaim, Reclaim: done, MaxPodGrace: e.maxPodGrace()}
	e.log.WithFields(logrus.Fields{"signal": key.Signal, "available": last.Available, "threshold": key.Amount}).Info(r.Summary)
	e.keep(r)
}

// softReport is a decision about a soft threshold without a victim.
func (e *Engine) softReport(key watchKey, last observation, outcome, summary string) *Report {
	x := e.Explain(0)
	m := x.Memory.MemoryReport
	m.Available, m.Threshold, m.Met = last.Available, key.Amount, Met(last.Available, key.Amount)
	m.EarlyBand = m.Met
	return &Report{
		ID: e.holds.NextID(), Time: e.clock().UTC(), Signal: key.Signal, Outcome: outcome, Mode: x.Mode,
		Summary: summary, Memory: m, Candidates: x.Candidates,
	}
}
