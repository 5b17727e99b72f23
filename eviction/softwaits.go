package eviction

import (
	"fmt"
	"time"
)

// softWaits says why nothing is begun for a soft threshold although its grace is
// over; empty when nothing stands against it.
func (e *Engine) softWaits(set *Settings, w *softWatch, now time.Time) string {
	if w.key.slow {
		return e.slowWaits(set, w, now)
	}
	if e.hardActs() {
		return "a hard threshold is met and is acted on"
	}
	if now.Sub(e.store.Snapshot().ListedAt) > listAge {
		e.syncer.MarkDirty()
		return "the runtime's lists are too old and are being read anew"
	}
	s, ending := &e.soft, e.ending()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ev := s.hardSlow(); ev != nil {
		return fmt.Sprintf("decision %d: a pod is being evicted for %s", ev.d.ID, ev.d.Signal)
	}
	switch {
	case !w.armed && !w.observed:
		return unarmedText
	case w.busy != "":
		return w.busy
	case !set.Rules.Observe && now.Sub(w.killedAt) < softSpacing:
		return "the eviction before has had no time to show"
	}
	var coming uint64
	for _, ev := range s.running {
		if ev.d.slow != nil {
			continue // that is no memory
		}
		coming += ev.d.Candidates[ev.d.Victim].Gain
	}
	for uid, gain := range ending {
		if s.running[uid] == nil {
			coming += gain
		}
	}
	if coming > 0 && w.last.Available+coming >= w.key.Amount+w.key.MinReclaim {
		return "what the pods being evicted or deleted will give back is enough"
	}
	return ""
}

const unarmedText = "it was met already when it was loaded; it is acted on once it was clear, or after `cri-evictd arm`"

// ending measures what the pods that are being deleted will give back, by UID.
func (e *Engine) ending() map[string]uint64 {
	plan := e.sampler.plan.Load()
	if plan == nil {
		return nil
	}
	out := map[string]uint64{}
	for i := range plan.Pods {
		if p := &plan.Pods[i]; p.Ending {
			var c Candidate
			p.measure(&c)
			out[p.UID] = c.Gain
		}
	}
	return out
}
