package eviction

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/holds"
)

const (
	// observedEnds is how long the containers of an evicted pod are left for
	// kubelet to see: two of its relists and a little more (design §9).
	observedEnds = 3 * time.Second
	// removePatience bounds the removal of one container.
	removePatience = 30 * time.Second
	// reclaimDiskFor bounds what is done before a pod has to go.
	reclaimDiskFor = 2 * time.Minute
	// reclaimDiskAgain is when that is done once more in a breach for which nobody
	// can be taken.
	reclaimDiskAgain = time.Minute
)

// beginSlow writes the hold of a hard eviction for disk, inodes or PIDs and
// follows it beside the loop. A soft eviction of the same pod is shortened.
func (e *Engine) beginSlow(ctx context.Context, w *softWatch, d *Decision) {
	s, uid := &e.soft, d.pod().UID
	if d.Candidates[d.Victim].Evicting {
		d.ID = d.pod().Evicting
		d.kill.sentAt.Store(d.At.UnixNano())
		d.kill.advance(killSent)
		if e.harden(d) {
			s.mu.Lock()
			w.tried, w.disk, w.said = false, nil, ""
			s.doneSlow(d, d.At)
			s.mu.Unlock()
		}
		return // or it is over by now: the next reading tells
	}
	d.ID = e.holds.NextID()
	ev := &softEviction{d: d, watch: w, hardened: make(chan *Decision, 1)}
	s.mu.Lock()
	s.running[uid] = ev
	s.readAgain(d.At)
	s.noteSlow(w, d)
	w.busy, w.tried, w.disk, w.said = fmt.Sprintf("decision %d: a pod is being evicted for it", d.ID), false, nil, ""
	s.mu.Unlock()
	d.kill.intentErr = e.holds.Put(softRecord(d))
	d.kill.intentAt.Store(e.clock().UnixNano())
	d.kill.advance(killIntent)
	e.finishing.Go(func() {
		e.killNow(d)
		e.startKill(d, OutcomeEvicted)
		e.finish(ctx, d, OutcomeEvicted)
		log := e.log.WithFields(logrus.Fields{"decision": d.ID, "pod": d.pod().String(), "uid": uid, "signal": d.Signal})
		e.removeContainers(ctx, log, ev, d)
		e.softOver(ev)
	})
}

// killNow sends the kill of a decision without a grace; one with a grace is the
// runtime's first. A write that hangs in the kernel is not waited for (bugs.md
// B15): it ends with the kernel.
func (e *Engine) killNow(d *Decision) {
	if d.Grace > 0 {
		d.kill.sentAt.Store(e.clock().UnixNano())
		d.kill.advance(killSent)
		return
	}
	sent := make(chan struct{})
	go func() {
		e.killDirectly(d)
		close(sent)
	}()
	timer := time.NewTimer(killWatchdog)
	defer timer.Stop()
	select {
	case <-sent:
		return
	case <-timer.C:
	}
	d.kill.fallback.Store(true)
	if d.pod().NoDirect == "" {
		for _, c := range d.pod().cgroups {
			n, err := c.KillByPidfd()
			d.kill.signalled.Add(int64(max(n, 0)))
			d.kill.failed(err)
		}
	}
	d.kill.advance(killSent)
}

// removeContainers removes the containers of a pod that was ended for disk or
// inodes: a stop alone gives no writable layer back. Kubelet has seen their end by
// then, and only those go that the eviction ended; the pod is held, so that no
// missing record makes kubelet run one again.
func (e *Engine) removeContainers(ctx context.Context, log *logrus.Entry, ev *softEviction, d *Decision) {
	e.soft.mu.Lock()
	ev.settled = d.slow != nil
	e.soft.readAgain(e.clock())
	e.soft.mu.Unlock()
	if d.slow == nil || e.slow.parts.Remove == nil || d.slow.unit == Tasks || d.kill.at() != killSettled {
		return
	}
	timer := time.NewTimer(observedEnds)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	if r, ok := e.record(d.ID); !ok || r.State != holds.Killed {
		return // let go meanwhile
	}
	e.removeEach(ctx, log, d.pod().containers)
}

// removeEach removes containers that have ended.
func (e *Engine) removeEach(ctx context.Context, log *logrus.Entry, ids []string) {
	removed := 0
	for _, id := range ids {
		oneCtx, cancel := context.WithTimeout(ctx, removePatience)
		err := e.slow.parts.Remove.RemoveContainer(oneCtx, id)
		cancel()
		if err != nil {
			log.WithError(err).Warn("a container of the evicted pod could not be removed: its writable layer stays")
			continue
		}
		removed++
	}
	log.WithField("containers", removed).Info("the evicted pod's containers were removed, which gives their writable layers back")
}

// tryReclaimer frees what nobody needs before a pod is ended, once per decision;
// true while that is under way. It runs beside the loop.
func (e *Engine) tryReclaimer(ctx context.Context, w *softWatch) bool {
	r := e.slow.parts.Reclaim
	s := &e.soft
	s.mu.Lock()
	defer s.mu.Unlock()
	// While nobody can be taken for it, what nobody needs may come to be there.
	again := w.tried && e.clock().Sub(w.reclaimedAt) >= reclaimDiskAgain
	if r == nil || w.tried && !again || w.key.Signal == PIDAvailable {
		return false
	}
	w.tried, w.busy = true, reclaimingText
	k := w.key
	need := k.Amount + k.MinReclaim
	_, reading := e.slow.reading(k.Signal)
	want := ReclaimWant{
		Signal: k.Signal, Hard: k.hard, Device: reading.Device, Path: reading.Path, Need: need - min(need, w.last.Available),
		Measure: func(ctx context.Context) (uint64, error) {
			now, err := e.slow.now(ctx, k.Signal)
			return need - min(need, now.Available), err
		},
	}
	over := make(chan struct{})
	end := func(done *ReclaimedDisk) {
		s.mu.Lock()
		defer s.mu.Unlock()
		select {
		case <-over:
			return // it was given up before
		default:
		}
		close(over)
		w.busy, w.disk, w.reclaimedAt = "", done, e.clock()
		for _, other := range s.watches { // what they read is from before
			if other.key.slow && other.last.Device == want.Device {
				other.after = w.reclaimedAt
			}
		}
	}
	reclaimCtx, cancel := context.WithTimeout(ctx, reclaimDiskFor)
	// Not waited for at the end: a call of it may hang longer than we live.
	go func() {
		done, err := r.Reclaim(reclaimCtx, want)
		if err != nil && ctx.Err() == nil {
			e.log.WithError(err).WithField("signal", k.Signal).Warn("not everything could be done to free space before a pod has to go")
		}
		end(&done)
	}()
	e.finishing.Go(func() {
		defer cancel()
		timer := time.NewTimer(reclaimDiskFor + time.Second)
		defer timer.Stop()
		select {
		case <-over:
		case <-ctx.Done():
		case <-timer.C:
			end(&ReclaimedDisk{Text: "it did not come back in time"})
		}
	})
	return true
}
