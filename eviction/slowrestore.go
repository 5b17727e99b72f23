package eviction

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/holds"
)

const (
	// leftEvery is how often it is looked whether a pod of a previous process is
	// dead and listed, leftFor how long.
	leftEvery = time.Second
	leftFor   = time.Minute
)

// removeLeft removes what a previous process was about to when it ended: the
// containers that its eviction for disk or inodes had stopped. Those are the ones
// that ended after the decision. It runs beside the loop.
func (e *Engine) removeLeft(ctx context.Context, r holds.Record) {
	p := &e.slow.parts
	if s := Signal(r.Signal); p.Remove == nil || p.EndedAt == nil || s.Memory() || s.Unit() == Tasks {
		return
	}
	log := e.log.WithFields(logrus.Fields{"decision": r.ID, "pod": r.Namespace + "/" + r.Name, "uid": r.UID, "signal": r.Signal})
	e.finishing.Go(func() {
		timer := time.NewTimer(observedEnds)
		defer timer.Stop()
		var dead time.Time // when that was seen
		for began := e.clock(); e.clock().Sub(began) < leftFor; timer.Reset(leftEvery) {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			now, ok := e.record(r.ID)
			switch {
			case !ok || now.State == holds.Released:
				return
			case now.State != holds.Killed:
			case dead.IsZero():
				dead = e.clock()
				e.syncer.MarkDirty()
			case e.store.Snapshot().ListedAt.After(dead):
				if ids := e.endedAfter(ctx, log, r); len(ids) > 0 {
					e.removeEach(ctx, log, ids)
				}
				return
			}
		}
	})
}

// endedAfter are the pod's containers that ended after the decision of a record.
func (e *Engine) endedAfter(ctx context.Context, log *logrus.Entry, r holds.Record) []string {
	pod, ok := e.store.Snapshot().Pod(r.UID)
	if !ok {
		return nil
	}
	var out []string
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.Running || c.SandboxID != r.SandboxID {
			continue
		}
		oneCtx, cancel := context.WithTimeout(ctx, stopTimeout)
		at, err := e.slow.parts.EndedAt(oneCtx, c.ID)
		cancel()
		switch {
		case err != nil:
			log.WithError(err).Warn("it is not known when a container of the evicted pod ended: its writable layer stays")
		case !at.IsZero() && !at.Before(r.Decided):
			out = append(out, c.ID)
		}
	}
	return out
}
