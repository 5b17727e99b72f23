package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/holds"
)

// releaseDue ends the holds whose time has come, and forgets records nobody
// needs any more.
func (e *Engine) releaseDue() {
	now := e.clock()
	records := e.holds.Records()
	absent := e.trackAbsence(now, records)
	in := ReleaseInput{
		Now: now, Records: records, AbsentSince: absent, Ended: e.ended(records),
		Rooms: e.room(now), Unknown: e.slowUnknown(now),
		Transition: e.settings().Transition, HoldMaximum: e.settings().HoldMaximum,
	}
	for of := range in.ClearSince {
		kind := conditionKind(of)
		if since, clear := e.clearSince(now, kind); clear && (kind != memoryPressure || e.fresh(now)) {
			in.ClearSince[kind] = since
		}
	}
	e.mu.Lock()
	in.LastRelease = e.lastRelease
	e.mu.Unlock()
	for _, r := range Releases(in) {
		if r.Reason == ReleasedPressureOver {
			e.mu.Lock()
			e.lastRelease = now
			e.mu.Unlock()
		}
		e.release(r.Record, r.Reason)
	}
	for _, r := range records {
		since, gone := absent[r.UID]
		if r.State == holds.Released && gone && now.Sub(since) >= goneAfter {
			if err := e.holds.Remove(r.ID); err != nil {
				e.log.WithError(err).WithField("decision", r.ID).Warn("an old record could not be removed from the holds file")
			}
			e.forget(r.UID)
		}
	}
}

// ended finds the pods of records that Kubernetes has ended or is ending.
func (e *Engine) ended(records []holds.Record) map[string]string {
	out := map[string]string{}
	for _, r := range records {
		switch {
		case e.gone != nil && e.gone(r.UID):
			out[r.UID] = ReleasedPodGone
		case e.terminating != nil && e.terminating(r.UID):
			out[r.UID] = ReleasedPodDeleted
		}
	}
	return out
}

// fresh says whether the last sample is recent enough to conclude anything.
func (e *Engine) fresh(now time.Time) bool {
	at := e.sampler.latest.at.Load()
	return at != 0 && now.Sub(e.sampler.latest.time(int64(at))) < 5*time.Second
}

// trackAbsence notes since when the pods of records have had no sandbox and
// have not asked for one. While the lists cannot be read nothing is concluded.
func (e *Engine) trackAbsence(now time.Time, records []holds.Record) map[string]time.Time {
	snap, state := e.store.Snapshot(), e.syncer.State()
	current := state.Listed && state.ListError == ""
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]time.Time{}
	for _, r := range records {
		_, here := snap.Pod(r.UID)
		if here || !current {
			continue
		}
		since, ok := e.absent[r.UID]
		if !ok {
			since = now
		}
		if wanted := e.store.Wanted(r.UID); wanted.After(since) {
			since = wanted
		}
		out[r.UID] = since
	}
	e.absent = out
	return out
}

// forget drops what is remembered of a pod that is gone.
func (e *Engine) forget(uid string) {
	e.store.ForgetWanted(uid)
	e.mu.Lock()
	delete(e.repeats, uid)
	e.mu.Unlock()
	if e.ledger != nil {
		if err := e.ledger.DeleteRepeat(uid); err != nil {
			e.ledgerFailed(err)
		}
	}
}

// release ends one hold.
func (e *Engine) release(r holds.Record, reason string) {
	r.State, r.ReleasedAt, r.ReleaseReason, r.Frozen = holds.Released, e.clock(), reason, false
	log := e.log.WithFields(logrus.Fields{"decision": r.ID, "pod": r.Namespace + "/" + r.Name, "uid": r.UID, "reason": reason})
	if err := e.holds.Update(r); err != nil {
		log.WithError(err).Error("the hold could not be released")
		return
	}
	e.withdraw(r.ID, reason)
	e.counters.released(reason)
	log.WithField("heldFor", r.ReleasedAt.Sub(r.Decided).Round(time.Millisecond)).Info("hold released: the pod may start again")
	e.wantPlan()
}

// ReleaseByHand ends the holds of a pod, named by UID or namespace/name, or all
// of them for an empty name. It returns the records that were released.
func (e *Engine) ReleaseByHand(name string) []holds.Record {
	var out []holds.Record
	for _, r := range e.holds.Records() {
		if r.State != holds.Killed || name != "" && name != r.UID && name != r.Namespace+"/"+r.Name {
			continue
		}
		e.release(r, ReleasedByHand)
		out = append(out, r)
	}
	return out
}

// enforce stops again what came up although its pod is held: a sandbox whose
// RunPodSandbox was under way when the hold was written, or one started around
// the proxy.
func (e *Engine) enforce(ctx context.Context) {
	snap, records, now := e.store.Snapshot(), e.holds.Records(), e.clock()
	e.spacing.keep(records)
	for _, r := range records {
		if r.State != holds.Killed {
			continue
		}
		p, ok := snap.Pod(r.UID)
		if !ok {
			continue
		}
		if _, ready := p.Ready(); !ready && len(p.RunningContainers()) == 0 {
			continue
		}
		e.soft.mu.Lock()
		stopping := e.soft.running[r.UID] != nil
		e.soft.mu.Unlock()
		e.mu.Lock()
		_, busy := e.pending[r.UID]
		busy = busy || stopping || !e.spacing.due(r.ID, now)
		if !busy {
			e.pending[r.UID] = "it is held and is being stopped"
		}
		e.mu.Unlock()
		if busy {
			continue
		}
		e.finishing.Go(func() {
			log := e.log.WithFields(logrus.Fields{"decision": r.ID, "pod": p.String(), "uid": r.UID})
			log.Warn("a held pod is not stopped in the runtime: stopping it")
			var stopped atomic.Bool
			if err := e.stopUntilDone(ctx, r.ID, r.UID, nil, nil, 0, &stopped, log); err != nil && ctx.Err() == nil {
				log.WithError(err).Warn("a held pod could not be stopped")
			}
			e.mu.Lock()
			delete(e.pending, r.UID)
			e.mu.Unlock()
			e.wantPlan()
		})
	}
}

// keepLedger writes decisions and back-off counts to the ledger.
func (e *Engine) keepLedger(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			e.drainLedger()
			return
		case r := <-e.persist:
			e.persistOne(r)
		}
	}
}

func (e *Engine) drainLedger() {
	for {
		select {
		case r := <-e.persist:
			e.persistOne(r)
		default:
			return
		}
	}
}

func (e *Engine) persistOne(r Report) {
	if e.ledger == nil {
		return
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = e.ledger.AppendDecision(r.ID, b)
	}
	if err == nil && r.Victim != nil {
		e.mu.Lock()
		count := e.repeats[r.Victim.UID]
		e.mu.Unlock()
		if count.Count > 0 {
			err = e.ledger.SetRepeat(r.Victim.UID, count.Count, count.Last)
		}
	}
	if err != nil {
		e.ledgerFailed(fmt.Errorf("decision %d: %w", r.ID, err))
		return
	}
	e.mu.Lock()
	e.ledgerError = ""
	e.mu.Unlock()
}
