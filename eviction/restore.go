package eviction

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// restore takes up what a previous process left: frozen cgroups are thawed, an
// intent whose pod lives is finished if the breach stands and dropped if not,
// and kills that were not verified are followed to their end. It returns those
// to follow.
func (e *Engine) restore(ctx context.Context) []*Decision {
	e.restoreLedger()
	e.seedBudget()
	records := e.holds.Records()
	if len(records) == 0 {
		return nil
	}
	memoryBreach, sample := e.breachNow()
	e.readSlowFor(ctx, records)
	var out []*Decision
	for _, r := range records {
		if r.Frozen && e.thaw != nil && r.Cgroup != "" {
			if err := e.thaw(r.Cgroup); err != nil {
				e.log.WithError(err).WithField("cgroup", r.Cgroup).Error("a cgroup that an interrupted kill may have frozen cannot be thawed")
			}
		}
		if !r.Holds() {
			continue
		}
		log := e.log.WithFields(logrus.Fields{"decision": r.ID, "pod": r.Namespace + "/" + r.Name, "uid": r.UID})
		if e.settings().Rules.Observe {
			e.release(r, ReleasedObserve) // nothing is held, let alone killed
			continue
		}
		if e.clock().Sub(r.Decided) >= e.settings().HoldMaximum {
			e.release(r, ReleasedMaximum) // the proxy has let it go already
			continue
		}
		e.removeLeft(ctx, r)
		pod, alive := e.reopen(r)
		softBreach := r.Soft && r.State == holds.Intent && e.softStands(r, &sample)
		hardBreach := e.hardStands(r, memoryBreach)
		breach := hardBreach || softBreach
		if alive && r.State == holds.Intent && !breach && dying(ctx, &pod, e.clock) {
			alive = false // the breach is gone because the kill was sent
			pod.close()
		}
		switch {
		case !alive && r.State == holds.Intent:
			r.State, r.KilledAt, r.Frozen = holds.Killed, e.clock(), false
			if err := e.holds.Update(r); err != nil {
				log.WithError(err).Error("the hold could not be brought up to date")
			}
			e.countRepeat(r.UID, r.KilledAt)
			e.stillComing(r)
			e.tellRecord(r)
			e.keepInterrupted(r, pod, sample)
			log.Warn("a kill was interrupted by our end and had its effect; its hold stands")
		case alive && r.State == holds.Intent && !breach:
			log.Info("a kill was interrupted before it began, and the pressure is over: dropped")
			pod.close()
			e.release(r, ReleasedBreachGone)
		case alive && softBreach && !hardBreach:
			log.Warn("a soft eviction was interrupted: the pod gets the rest of its grace")
			out = append(out, e.resumedSoft(r, pod, sample))
		case alive && (r.State == holds.Intent || len(pod.cgroups) > 0):
			log.Warn("a kill was interrupted: finishing it")
			out = append(out, e.resumed(r, pod, sample))
		default:
			e.stillComing(r)
			e.tellRecord(r)
			e.keepInterrupted(r, pod, sample)
			log.Info("the hold of an evicted pod stands")
		}
	}
	return out
}

// restoreLedger loads the history, the back-off counts and, where the holds
// file was lost within the same boot, the holds themselves.
func (e *Engine) restoreLedger() {
	if e.ledger == nil {
		return
	}
	if raw, err := e.ledger.Decisions(historyLength); err != nil {
		e.ledgerFailed(err)
	} else {
		e.history.load(raw)
	}
	if repeats, err := e.ledger.Repeats(); err != nil {
		e.ledgerFailed(err)
	} else if repeats != nil {
		e.mu.Lock()
		e.repeats = repeats
		e.mu.Unlock()
	}
	saved, bootID, err := e.ledger.Load()
	if err != nil {
		e.ledgerFailed(err)
		return
	}
	if bootID == e.bootID && bootID != "" && len(e.holds.Records()) == 0 {
		for _, r := range saved {
			if err := e.holds.Put(r); err != nil {
				e.log.WithError(err).WithField("decision", r.ID).Error("a hold could not be restored from the ledger")
				continue
			}
			e.log.WithFields(logrus.Fields{"decision": r.ID, "uid": r.UID, "state": r.State.String()}).Warn("hold restored from the ledger: the holds file was lost")
		}
	}
	if bootID != e.bootID {
		if bootID != "" && len(saved) > 0 {
			e.log.WithField("holds", len(saved)).Info("the machine was started anew, which ended the pressure: old holds are not taken over")
		}
		if err := e.ledger.SetBootID(e.bootID); err != nil {
			e.ledgerFailed(err)
		}
	}
}

// breachNow reads memory twice and says whether the hard threshold is met.
func (e *Engine) breachNow() (bool, MemorySample) {
	var c core
	c.rules = e.settings().Rules
	var m MemorySample
	met := 0
	for range 2 {
		m = MemorySample{}
		if !e.sampler.readNode(&m, &c.rules) {
			return false, m
		}
		if c.step(&m, false).verdict.Met {
			met++
		}
	}
	return met == 2, m
}

// reopen finds the recorded cgroup; alive only when it is the very same one and
// still has processes.
func (e *Engine) reopen(r holds.Record) (PlanPod, bool) {
	pod := PlanPod{
		Ref:        inventory.Ref{Namespace: r.Namespace, Name: r.Name, UID: r.UID},
		CgroupPath: r.Cgroup, CgroupInode: r.CgroupInode, repeat: r.Repeat, freezes: e.cgroups.Freezes(),
		Request:   inventory.Value[int64]{Value: r.Request, Source: inventory.FromCRI},
		Priority:  inventory.Value[int32]{Value: r.Priority, Source: inventory.FromCRI},
		Candidate: Candidate{UID: r.UID, Priority: r.Priority, Request: uint64(max(r.Request, 0)), RequestKnown: true},
	}
	if r.SandboxID != "" {
		pod.sandboxes = []string{r.SandboxID}
	}
	if r.Cgroup == "" || r.CgroupInode == 0 {
		// Killed through CRI: whether it lives is for the runtime to say; the
		// stop is repeated, which is harmless.
		pod.NoDirect = "its cgroup was not its own"
		return pod, true
	}
	c, err := e.cgroups.Open(r.Cgroup)
	if err != nil {
		return pod, false
	}
	populated, err := c.Populated()
	if c.Inode() != r.CgroupInode || err != nil || !populated {
		_ = c.Close() // read only; nothing can be lost
		return pod, false
	}
	if foreign, err := e.cgroups.Foreign(c); err != nil || len(foreign) > 0 {
		pod.NoDirect = "its cgroup holds other processes than the pod's"
	}
	if p, ok := cgroupfs.ParsePodPath(r.Cgroup); !ok || p.UID != r.UID {
		pod.NoDirect = "its cgroup is not its own"
	}
	pod.cgroups = []Cgroup{c}
	return pod, true
}

// close gives up descriptors that reopen made; those of plans are the
// planner's.
func (p *PlanPod) close() {
	for _, c := range p.cgroups {
		if o, ok := c.(OpenCgroup); ok {
			_ = o.Close() // read only; nothing can be lost
		}
	}
}

// resumed makes a decision of a record, as if it had just been ordered, and
// sends its kill again.
func (e *Engine) resumed(r holds.Record, pod PlanPod, m MemorySample) *Decision {
	d := e.remade(r, pod, m)
	e.hardened(r.ID)
	e.killDirectly(d)
	if d.slow == nil {
		// The sampler waits for it as for one of its own.
		e.sampler.inflight = d
	}
	return d
}

// remade makes a decision of a record.
func (e *Engine) remade(r holds.Record, pod PlanPod, m MemorySample) *Decision {
	plan := newPlan(0, e.clock(), []PlanPod{pod})
	d := plan.decision
	plan.decision = nil
	d.Signal = Signal(r.Signal)
	d.ID, d.At, d.Victim, d.Sample, d.Rules = r.ID, r.Decided, 0, m, e.settings().Rules
	d.Signal = Signal(r.Signal)
	d.Sample.Kernel, d.Sample.Kubelet = uint64(max(r.Available, 0)), uint64(max(r.AvailableKubelet, 0))
	d.Verdict.Available, d.Verdict.Met = d.Sample.Kernel, true
	d.Rules.Amount = uint64(max(r.Threshold, 0))
	if !d.Signal.Memory() {
		_, last := e.slow.reading(d.Signal)
		d.slow = &slowDecision{reading: last, unit: d.Signal.Unit(), details: make([]diskDetail, 1)}
	}
	d.Candidates[0] = pod.Candidate
	d.Candidates[0].Usage, d.Candidates[0].Known = uint64(max(r.Usage, 0)), true
	d.kill.intentAt.Store(e.clock().UnixNano())
	return d
}

func (e *Engine) ledgerFailed(err error) {
	e.mu.Lock()
	e.ledgerError = err.Error()
	e.mu.Unlock()
	e.log.WithError(err).Error("the ledger cannot be used; kills and holds go on, history and back-offs are not kept over a restart")
}

// countRepeat notes one more eviction of this pod.
func (e *Engine) countRepeat(uid string, at time.Time) {
	e.mu.Lock()
	r := e.repeats[uid]
	if at.Sub(r.Last) >= repeatForgotten {
		r.Count = 0
	}
	r.Count++
	r.Last = at
	e.repeats[uid] = r
	e.mu.Unlock()
}

const (
	dyingLook = 20 * time.Millisecond
	// dyingStill is how long usage must stand still for a pod not to be dying.
	dyingStill = time.Second
	// dyingAtMost bounds the wait for a pod whose usage falls for other reasons.
	dyingAtMost = 10 * time.Second
)

// dying waits for a pod that still has processes and says whether it is gone
// now: killed processes of a large pod take a while to give their memory back.
func dying(ctx context.Context, pod *PlanPod, clock func() time.Time) bool {
	if len(pod.cgroups) == 0 {
		return false
	}
	lowest, _ := pod.usage()
	begun := clock()
	lastFall := begun
	timer := time.NewTicker(dyingLook)
	defer timer.Stop()
	for clock().Sub(lastFall) < dyingStill && clock().Sub(begun) < dyingAtMost {
		if populated, err := pod.populated(); err == nil && !populated {
			return true
		}
		if u, known := pod.usage(); known && u+fallStep <= lowest {
			lowest, lastFall = u, clock()
		}
		select {
		case <-ctx.Done():
			return true // undecided: the hold stands for the next start
		case <-timer.C:
		}
	}
	return false
}
