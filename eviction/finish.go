package eviction

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// finish carries a sent kill through to its end: the runtime is told, the
// cgroup is watched until it is empty, the hold becomes "killed" or is lifted,
// and all is recorded.
func (e *Engine) finish(ctx context.Context, d *Decision, outcome string) {
	pod := d.pod()
	log := e.log.WithFields(logrus.Fields{
		"decision": d.ID, "pod": pod.String(), "uid": pod.UID, "signal": d.Signal,
	})
	report := e.report(d, outcome)
	if outcome == OutcomeResumed {
		e.keepInputs(report)
	}
	e.announce(log, d)
	e.settle(ctx, log, d, report)
}

// settle follows a kill that was sent until the pod is dead or given up, and
// records it.
func (e *Engine) settle(ctx context.Context, log *logrus.Entry, d *Decision, report *Report) {
	pod := d.pod()
	stopCtx, cancelStop := context.WithCancel(ctx)
	defer cancelStop()
	var stopped atomic.Bool
	stopDone := make(chan error, 1)
	go func() {
		stopDone <- e.stopUntilDone(stopCtx, d.ID, pod.UID, pod.containers, pod.sandboxes, d.Grace, &stopped, log)
	}()

	e.tellUnheld(d)
	ok, tries := verify(ctx, d, e.clock, stopped.Load, func() { e.tellDead(ctx, d) })
	settled := e.clock()
	report.Kill = killReport(d, settled, tries)
	if ctx.Err() != nil && !ok {
		if err := <-stopDone; err != nil {
			log.WithError(err).Debug("interrupted before the runtime had stopped the victim")
		}
		return // the hold stands; the next start resumes
	}
	if !ok {
		e.giveUp(log, d, report, tries)
		d.kill.advance(killAbandoned)
		cancelStop()
		if err := <-stopDone; err != nil {
			log.WithError(err).Warn("the runtime could not stop it either")
		}
		return
	}
	e.noteKilled(d, settled)
	d.kill.advance(killSettled)
	log.WithFields(logrus.Fields{
		"sent": report.Kill.Sent, "settled": report.Kill.Settled, "tries": tries,
	}).Info("victim is dead: its cgroup is empty and its memory is back")
	// The record is complete without CRI's word: a dead runtime must not keep
	// the next decision waiting.
	e.keep(report)
	if err := <-stopDone; err != nil && ctx.Err() == nil {
		log.WithError(err).Warn("the runtime could not be told to stop the victim; it is dead all the same")
		report.Kill.CRIError = err.Error()
		e.counters.runtimeFailed()
		e.keep(report)
	}
}

// announce says what was decided, with every number it was decided on.
func (e *Engine) announce(log *logrus.Entry, d *Decision) {
	pod, c := d.pod(), &d.Candidates[d.Victim]
	log = log.WithFields(logrus.Fields{
		"available": d.Verdict.Available, "availableKernel": d.Sample.Kernel, "availableKubelet": d.Sample.Kubelet,
		"threshold": d.Rules.Amount, "floor": d.Rules.Floor, "earlyBand": d.EarlyBand,
		"usage": c.Usage, "request": pod.Request.Value, "requestSource": pod.Request.Source, "priority": c.Priority,
		"cgroup": pod.CgroupPath, "direct": pod.NoDirect == "", "candidates": len(d.Candidates),
	})
	if pod.NoDirect != "" {
		log = log.WithField("noDirect", pod.NoDirect)
	}
	log.Warn("evicting: " + e.summary(d))
	e.thresholdMet(d.Signal)
	if d.Outside && d.slow != nil {
		log.Error(outsideSlow + "; nobody else is evicted for a minute")
	} else if d.Outside {
		log.Error(outsideText(e.consumers()) + "; nobody else is evicted for a minute")
	}
	if err := d.kill.intentErr; err != nil {
		log.WithError(err).Error("the hold could not be written: kubelet may start this pod again at once")
	}
	if err := d.kill.err(); err != nil {
		log.WithError(err).Error("the direct kill failed; it is repeated, and the runtime is asked as well")
	}
	if d.kill.fallback.Load() {
		log.Error("the kill was not sent within 100 ms; the pidfd fallback was used")
	}
}

// summary is one sentence with the reason.
func (e *Engine) summary(d *Decision) string {
	if d.slow != nil {
		return d.slow.summary(d)
	}
	pod, c := d.pod(), &d.Candidates[d.Victim]
	name := "available"
	if d.Signal != MemoryAvailable {
		name = string(d.Signal)
	}
	text := fmt.Sprintf("%s %s is below %s; %s uses %s, its request is %s",
		name, quantity(d.Verdict.Available), quantity(d.limit()), pod.String(), quantity(c.Usage), requestText(pod.Request))
	if d.soft != nil {
		text = fmt.Sprintf("soft threshold %s, met for longer than %s: %s", quantity(d.Rules.Amount), d.soft.Grace, text)
	}
	return text
}

// limit is what available had to be below: a threshold that was acted on is met
// until its minimum reclaim is there as well.
func (d *Decision) limit() uint64 {
	if d.Verdict.Available >= d.Rules.Amount {
		return d.Rules.Amount + d.Rules.MinReclaim
	}
	return d.Rules.Amount
}

func requestText(v inventory.Value[int64]) string {
	if v.Source == inventory.FromDefault {
		return "unknown"
	}
	text := quantity(uint64(max(v.Value, 0)))
	if !v.Exact && v.Slack > 0 {
		text = "at most " + text
	}
	return text
}

func quantity(b uint64) string {
	const whole = 1 << 20
	if b > whole {
		b -= b % whole // MiB are precise enough for a sentence
	}
	return resource.NewQuantity(int64(min(b, 1<<62)), resource.BinarySI).String()
}

// stopUntilDone stops the pod through CRI, with back-off, until it succeeds or
// ctx ends or the hold is released. What came up in the meantime, such as a container whose creation
// was under way, is included in every try.
func (e *Engine) stopUntilDone(ctx context.Context, id uint64, uid string, containers, sandboxes []string, grace time.Duration, stopped *atomic.Bool, log logrus.FieldLogger) error {
	retry := killRetryFirst
	for try := 1; ; try++ {
		c, b := e.alive(uid, containers, sandboxes)
		err := stopPod(ctx, e.runtime, c, b, int64((grace+time.Second-1)/time.Second))
		grace = 0 // it had its time
		if err == nil {
			stopped.Store(true)
			e.noteStopped(c, b)
			return nil
		}
		if try == 1 {
			log.WithError(err).Warn("stopping the victim through the runtime failed; trying again")
		}
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		retry = min(2*retry, killRetryLongest)
		if r, ok := e.record(id); ok && !r.Holds() {
			return err // the pod may run again
		}
	}
}

// alive adds what the inventory has by now to the IDs of the plan.
func (e *Engine) alive(uid string, containers, sandboxes []string) (c, b []string) {
	seen := map[string]bool{}
	add := func(to []string, id string) []string {
		if seen[id] {
			return to
		}
		seen[id] = true
		return append(to, id)
	}
	for _, id := range containers {
		c = add(c, id)
	}
	for _, id := range sandboxes {
		b = add(b, id)
	}
	if p, ok := e.store.Snapshot().Pod(uid); ok {
		for _, x := range p.RunningContainers() {
			c = add(c, x.ID)
		}
		for _, x := range p.Sandboxes {
			if x.Ready {
				b = add(b, x.ID)
			}
		}
	}
	return c, b
}

// noteStopped tells the inventory what no list has shown yet.
func (e *Engine) noteStopped(containers, sandboxes []string) {
	now := e.clock()
	for _, id := range containers {
		e.store.Apply(inventory.Event{Type: inventory.ContainerStopped, Time: now, Container: inventory.Container{ID: id}})
	}
	for _, id := range sandboxes {
		e.store.Apply(inventory.Event{Type: inventory.SandboxStopped, Time: now, Sandbox: inventory.Sandbox{ID: id}})
	}
}

// hardened notes that what was a soft eviction is now a kill: the next start
// finishes it as one.
func (e *Engine) hardened(id uint64) {
	r, ok := e.record(id)
	if !ok || !r.Soft || r.State != holds.Intent {
		return
	}
	r.Soft = false
	if err := e.holds.Update(r); err != nil {
		e.log.WithError(err).WithField("decision", id).Error("the hold could not be brought up to date")
	}
}

// noteKilled turns the intent into a hold that stands.
func (e *Engine) noteKilled(d *Decision, at time.Time) {
	r, ok := e.record(d.ID)
	if !ok || r.State == holds.Intent {
		e.countRepeat(d.pod().UID, at)
	}
	if !ok || r.State == holds.Released {
		return // the intent could not be written, said already; or let go by hand meanwhile
	}
	r.State, r.KilledAt, r.Frozen = holds.Killed, at, false
	if err := e.holds.Update(r); err != nil {
		e.log.WithError(err).WithField("decision", d.ID).Error("the hold could not be brought up to date")
	}
}

// giveUp lifts the hold of a victim that could not be killed.
func (e *Engine) giveUp(log *logrus.Entry, d *Decision, report *Report, tries int) {
	report.Outcome = OutcomeFailed
	report.Summary = fmt.Sprintf("could not be killed in %d tries over %s; its hold is lifted", tries, killGiveUp)
	if r, ok := e.record(d.ID); ok {
		for _, c := range d.pod().cgroups {
			_ = c.Thaw() // absent or gone is fine, and nothing more can be done
		}
		e.release(r, ReleasedKillFailed)
	}
	e.mu.Lock()
	e.unkillable[d.pod().UID] = e.clock()
	e.mu.Unlock()
	log.WithField("tries", tries).Error("the victim could not be killed; its hold is lifted and others are considered")
	e.keep(report)
}

func killReport(d *Decision, settled time.Time, tries int) *KillReport {
	k := &KillReport{
		Direct: d.pod().NoDirect == "", Signalled: d.kill.signalled.Load(), Tries: tries, Fallback: d.kill.fallback.Load(),
		Settled: settled.Sub(d.At),
	}
	if n := d.kill.intentAt.Load(); n != 0 {
		k.Intent = time.Unix(0, n).Sub(d.At)
	}
	if n := d.kill.sentAt.Load(); n != 0 {
		k.Sent = time.Unix(0, n).Sub(d.At)
	}
	if n := d.kill.emptyAt.Load(); n != 0 {
		k.Empty = time.Unix(0, n).Sub(d.At)
	}
	if d.kill.intentErr != nil {
		k.HoldError = d.kill.intentErr.Error()
	}
	if err := d.kill.err(); err != nil {
		k.KillError = err.Error()
	}
	return k
}
