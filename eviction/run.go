package eviction

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Run restores what a previous process left, starts both halves and returns
// when ctx has ended and everything has stopped. Kills under way keep their
// holds; the next start resumes them.
func (e *Engine) Run(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("eviction: already running")
	}
	var w *waker
	wait, wake := e.wait, func() {}
	if wait == nil {
		var err error
		if w, err = newWaker(); err != nil {
			return err
		}
		defer w.close()
		wait, wake = w.wait, w.wake
	}
	resume := e.restore(ctx)

	var slow, fast sync.WaitGroup
	slow.Go(func() { e.syncer.Run(ctx) })
	slow.Go(func() { e.keepLedger(ctx) })
	slow.Go(func() { e.slow.run(ctx) })
	if e.copier != nil {
		slow.Go(func() { e.copier.Run(ctx) })
	}
	for _, d := range resume {
		e.start(ctx, d, OutcomeResumed)
	}
	e.publishPlan()

	stop := make(chan struct{})
	var samplerDone sync.WaitGroup
	samplerDone.Go(func() { e.sample(wait, stop) })
	fast.Go(func() {
		e.enterRealtime("killer")
		e.killer.run(e.orders)
	})
	fast.Go(func() {
		e.enterRealtime("fallback killer")
		e.killer.takeOver(e.stuck)
	})
	slow.Go(func() { e.loop(ctx) })
	if e.wakeups != nil {
		e.wakeups.waker = w
		slow.Go(func() { e.wakeups.run(ctx, e.clock, e.wakeInput) })
	}

	<-ctx.Done()
	close(stop)
	wake()
	samplerDone.Wait()
	close(e.orders)
	close(e.stuck)
	fast.Wait()
	slow.Wait()
	e.finishing.Wait()
	e.planner.closeAll()
	return nil
}

// sample is the fast half's loop.
func (e *Engine) sample(wait func(time.Duration), stop <-chan struct{}) {
	e.enterRealtime("sampler")
	for {
		select {
		case <-stop:
			return
		default:
		}
		wait(e.sampler.tick())
	}
}

// Ticks is how many rounds the sampler has begun; it rises once a second at least
// while Run goes on.
func (e *Engine) Ticks() uint64 { return e.sampler.ticks.Load() }

// enterRealtime makes the calling goroutine's thread a real-time one.
func (e *Engine) enterRealtime(part string) {
	if e.wait == nil {
		e.degraded(part, enterRealtime())
	}
}

// degraded notes, once, that a part runs with less than it asked for.
func (e *Engine) degraded(part string, err error) {
	if err == nil {
		return
	}
	text := fmt.Sprintf("%s: %v", part, err)
	e.mu.Lock()
	e.realtime = append(e.realtime, text)
	e.mu.Unlock()
	e.log.Warn(text)
}

// planSpacing is the least distance of two plans that only changes of the
// inventory call for: with 500 pods a plan costs some milliseconds.
const planSpacing = 100 * time.Millisecond

// loop is the slow half: plans, decisions, releases.
func (e *Engine) loop(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	// Changes come in bursts when pods do; one plan takes in all of 100 ms.
	changed := time.NewTimer(0)
	defer changed.Stop()
	var planned time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-e.decided:
			e.start(ctx, d, OutcomeEvicted)
			e.publishPlan()
		case d := <-e.observed:
			e.observe(d)
			e.publishPlan()
		case <-e.syncer.Changed():
			e.enforce(ctx)
			changed.Reset(max(0, planSpacing-e.clock().Sub(planned)))
		case <-changed.C:
			planned = e.clock()
			e.publishPlan()
		case <-e.replan:
			e.publishPlan()
		case <-e.breached:
			e.softRound(ctx) // new pods are kept out from the first sample on
		case <-tick.C:
			e.everySecond(ctx)
		}
	}
}

// everySecond is the slow half's round. What is new joins in here; nothing in it
// may wait for the runtime, a disk or a lock that somebody holds across one.
func (e *Engine) everySecond(ctx context.Context) {
	e.repairHolds()
	e.endPause()
	e.saveArmed()
	e.refreshInventory()
	e.enforce(ctx)
	e.softRound(ctx)
	e.releaseDue()
	e.sayWhenNobody()
	e.readCrossCheck()
	e.publishPlan()
}

// start bars the victim from further plans and follows its kill.
func (e *Engine) start(ctx context.Context, d *Decision, outcome string) {
	switch {
	case outcome == OutcomeEvicted && e.harden(d):
		return // what follows the soft eviction of this pod goes on with it
	case d.soft != nil:
		e.startSoft(ctx, &softEviction{d: d, report: d.soft, resumed: true, hardened: make(chan *Decision, 1)})
		return
	}
	uid := d.pod().UID
	e.killedHard(e.clock())
	e.mu.Lock()
	e.pending[uid] = "its kill is in progress"
	e.mu.Unlock()
	e.startKill(d, outcome)
	e.finishing.Go(func() {
		e.finish(ctx, d, outcome)
		e.killedHard(e.clock())
		if outcome == OutcomeResumed {
			d.pod().close()
		}
		e.mu.Lock()
		delete(e.pending, uid)
		e.mu.Unlock()
		e.wantPlan()
	})
}

// observe reports what would have been done.
func (e *Engine) observe(d *Decision) {
	d.ID = e.holds.NextID()
	report := e.report(d, OutcomeWouldEvict)
	e.log.WithFields(logrus.Fields{"decision": d.ID, "pod": d.pod().String(), "uid": d.pod().UID}).
		Warn("would evict (mode " + report.Mode + "): " + report.Summary)
	e.keep(report)
}

func (e *Engine) wantPlan() {
	select {
	case e.replan <- struct{}{}:
	default:
	}
}

// observedFor is how long a breach is not reported again in mode observe.
const observedFor = time.Minute
