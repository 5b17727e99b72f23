package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// softEviction is one soft eviction under way.
type softEviction struct {
	d      *Decision
	report *SoftReport // its goroutine's own once that runs
	// watch is the threshold's; nil for one that a previous process began.
	watch *softWatch
	// resumed: a previous process began it. Its hooks may have run and are not
	// run again.
	resumed bool
	// hardened takes the hard decision that shortens it.
	hardened chan *Decision
	hard     bool // one came; guarded by softHalf.mu
	// settled: its pod is dead, and only what is left of it is being removed.
	// Guarded by softHalf.mu, and set for slow decisions only.
	settled bool
}

// SoftReport is what a soft decision was made of and how the pod was asked to
// end. Amounts are bytes, durations nanoseconds.
type SoftReport struct {
	Grace      time.Duration `json:"grace"` // of the threshold
	MinReclaim uint64        `json:"minReclaim"`
	MetSince   time.Time     `json:"metSince,omitzero"`
	// Shortage is threshold + minimum reclaim − available.
	Shortage uint64         `json:"shortage"`
	Reclaim  *ReclaimReport `json:"reclaim,omitempty"`

	MaxPodGrace time.Duration `json:"maxPodGrace"`
	// PodGrace is the longest grace that one of its containers was given.
	PodGrace time.Duration `json:"podGrace,omitempty"`
	// PodAsked is the pod's own terminationGracePeriodSeconds; absent when it is
	// not known.
	PodAsked *time.Duration `json:"podAsked,omitempty"`
	Hooks    []HookReport   `json:"preStop,omitempty"`
	Asked    time.Time      `json:"asked,omitzero"` // the first SIGTERM, or when kubelet was told
	// ByKubelet: kubelet ended the pod, in its own order and with its own hooks.
	ByKubelet bool `json:"byKubelet,omitempty"`
	// NotByKubelet says why it was not kubelet, which had been told to.
	NotByKubelet string `json:"notByKubelet,omitempty"`
	// Escalated says why the grace ended in a kill.
	Escalated string `json:"escalated,omitempty"`
	// Shortened is the hard decision that ended the grace.
	Shortened *Shortened `json:"shortened,omitempty"`
}

// clone copies the report, so that what is added to one later does not show in
// the other while it is being read.
func (s *SoftReport) clone() *SoftReport {
	if s == nil {
		return nil
	}
	c := *s
	c.Hooks = slices.Clone(s.Hooks)
	if s.Reclaim != nil {
		r := *s.Reclaim
		c.Reclaim = &r
	}
	return &c
}

// Shortened is a hard decision that took over a soft eviction in progress.
type Shortened struct {
	Time       time.Time         `json:"time"`
	Signal     Signal            `json:"signal"`
	Memory     MemoryReport      `json:"memory"`
	Candidates []CandidateReport `json:"candidates,omitempty"`
}

// follow carries a soft eviction through: the pod is asked to end, and what is
// left of it when its grace is over, or when a hard decision takes over, is
// killed. The hold is visible already.
func (e *Engine) follow(ctx context.Context, ev *softEviction) {
	d, uid := ev.d, ev.d.pod().UID
	log := e.log.WithFields(logrus.Fields{
		"decision": d.ID, "pod": d.pod().String(), "uid": uid, "signal": d.Signal, "soft": true,
	})
	report := e.report(d, OutcomeEvicting)
	if ev.resumed {
		e.keepInputs(report)
	}
	report.Soft = ev.report
	e.announce(log, d)
	e.keep(report) // what is under way can be explained already

	hard, err := e.askToEnd(ctx, ev, log)
	if hard == nil && ctx.Err() != nil {
		return // the hold stands; the next start resumes
	}
	e.mu.Lock()
	e.pending[uid] = "its kill is in progress"
	e.mu.Unlock()
	if hard != nil || err != nil {
		e.hardened(d.ID)
	}
	switch {
	case hard != nil:
		d = e.shorten(ev, hard, log)
	case err != nil:
		ev.report.Escalated = err.Error()
		log.WithError(err).Warn("the pod did not end within its grace: killing it")
		e.killDirectly(d)
	}
	report.Outcome = OutcomeEvicted
	if ev.resumed {
		report.Outcome = OutcomeResumed
	}
	// What is still charged to it now is what comes back when it is dead; the rest
	// of what it had is in the readings already.
	var left Candidate
	d.pod().measure(&left)
	bases := e.sampler.bases()
	e.settle(ctx, log, d, report)
	e.removeContainers(ctx, log, ev, d)
	if left.Known && hard == nil && d.kill.at() == killSettled {
		e.sampler.expect(left.Gain, bases)
	}
	e.mu.Lock()
	delete(e.pending, uid)
	e.mu.Unlock()
}

// shorten ends the graceful part because hard took the same pod; the kill was
// sent by the fast half. It returns the decision to follow.
func (e *Engine) shorten(ev *softEviction, hard *Decision, log logrus.FieldLogger) *Decision {
	r := e.report(hard, OutcomeEvicted)
	ev.report.Shortened = &Shortened{Time: r.Time, Signal: r.Signal, Memory: r.Memory, Candidates: r.Candidates}
	log.WithFields(logrus.Fields{"available": hard.Verdict.Available, "threshold": hard.Rules.Amount}).
		Warn("the hard threshold is met: the grace is over")
	if hard.ID == ev.d.ID {
		return hard
	}
	// It was chosen by a plan from before the soft eviction, and has a hold of
	// its own: one is enough.
	ev.report.Escalated = fmt.Sprintf("decision %d killed it", hard.ID)
	if err := e.holds.Remove(ev.d.ID); err != nil {
		log.WithError(err).Warn("the hold of the soft eviction could not be taken back; the hard one's stands")
	}
	return hard
}

// killDirectly sends SIGKILL to whatever is left in the pod's cgroup, where that
// is the pod's alone; the rest is CRI's to do.
func (e *Engine) killDirectly(d *Decision) {
	d.kill.sentAt.Store(e.clock().UnixNano())
	pod := d.pod()
	if pod.NoDirect == "" {
		for _, c := range pod.cgroups {
			n, err := c.Kill()
			d.kill.signalled.Add(int64(max(n, 0)))
			d.kill.failed(err)
		}
	}
	d.kill.advance(killSent)
}

// askToEnd runs the preStop hooks and sends SIGTERM through the runtime. It
// returns nil once every container has ended, an error when one has not within
// its grace, or the hard decision that took over.
func (e *Engine) askToEnd(ctx context.Context, ev *softEviction, log logrus.FieldLogger) (*Decision, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	ended := make(chan struct{})
	go func() {
		err = e.stopGracefully(ctx, ev, log)
		close(ended)
	}()
	select {
	case hard := <-ev.hardened:
		cancel()
		<-ended // its calls end with ctx, and the report is its own until then
		return hard, nil
	case <-ended:
		select {
		case hard := <-ev.hardened:
			return hard, nil
		default:
		}
		return nil, err
	}
}

// stopGracefully stops every container with its grace, in parallel: which is a
// sidecar is not told through CRI.
func (e *Engine) stopGracefully(ctx context.Context, ev *softEviction, log logrus.FieldLogger) error {
	pod := ev.d.pod()
	if ev.resumed {
		e.waitForList(ctx)
	}
	containers, sandboxes := e.alive(pod.UID, pod.containers, pod.sandboxes)
	sandbox := ""
	if len(sandboxes) > 0 {
		sandbox = sandboxes[0]
	}
	ev.report.MaxPodGrace = e.maxPodGrace()
	begun := e.clock()
	if took, err := e.handOver(ctx, ev, containers, log); took {
		return err
	}
	var mu sync.Mutex // over ev.report
	errs := make([]error, len(containers))
	var wg sync.WaitGroup
	for i, id := range containers {
		wg.Go(func() {
			s := &gracefulStop{e: e, ev: ev, mu: &mu, begun: begun, id: id, sandbox: sandbox, log: log.WithField("container", id)}
			errs[i] = s.run(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// maxPodGrace is the longest grace: a hold that ends before its pod has would let
// it start again.
func (e *Engine) maxPodGrace() time.Duration {
	return min(e.settings().MaxPodGrace, e.settings().HoldMaximum)
}

// listedWithin is how long a resumed soft eviction waits for the first list: a
// pod's containers are not in its record.
const listedWithin = 10 * time.Second

func (e *Engine) waitForList(ctx context.Context) {
	deadline := e.clock().Add(listedWithin)
	timer := time.NewTicker(100 * time.Millisecond)
	defer timer.Stop()
	for !e.syncer.State().Listed && e.clock().Before(deadline) {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// gracefulStop stops one container.
type gracefulStop struct {
	e           *Engine
	ev          *softEviction
	mu          *sync.Mutex
	begun       time.Time // the grace runs from here on
	id, sandbox string
	log         logrus.FieldLogger
}

// annotations are what kubelet wrote on a container; nil when that is not known.
func (e *Engine) annotations(ctx context.Context, id string, log logrus.FieldLogger) map[string]string {
	if e.hooks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	annotations, err := e.hooks.ContainerAnnotations(ctx, id)
	if err != nil {
		log.WithError(err).Warn("the pod's own grace and its preStop hook are not known")
	}
	return annotations
}

func (s *gracefulStop) run(ctx context.Context) error {
	begun := s.begun
	annotations := s.e.annotations(ctx, s.id, s.log)
	grace := graceFor(annotations, s.e.maxPodGrace())
	s.mu.Lock()
	r := s.ev.report
	r.PodGrace = max(r.PodGrace, grace)
	if own, known := podGrace(annotations); known {
		r.PodAsked = &own
	}
	s.mu.Unlock()
	if s.ev.resumed {
		begun = s.ev.d.At // the grace goes on where it was
	} else {
		s.preStop(ctx, annotations, grace)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.stop(ctx, max(grace-s.e.clock().Sub(begun), leastGrace))
}

// preStop runs the container's hook, unless kubelet is known to end the pod and
// so to run it. What goes wrong with a hook stops nothing, as with kubelet.
func (s *gracefulStop) preStop(ctx context.Context, annotations map[string]string, grace time.Duration) {
	h, err := parseHook(annotations)
	if h == nil && err == nil || s.e.endedByKubelet(s.ev.d) {
		return
	}
	report := HookReport{Container: s.id}
	begun := s.e.clock()
	if err == nil {
		report.Kind = h.kind()
		hookCtx, cancel := context.WithTimeout(ctx, grace)
		err = runHook(hookCtx, s.e.hooks, h, s.id, s.sandbox, grace)
		cancel()
	}
	report.Took = s.e.clock().Sub(begun)
	if err != nil {
		report.Error = err.Error()
		s.log.WithError(err).Warn("the preStop hook failed")
	}
	s.mu.Lock()
	s.ev.report.Hooks = append(s.ev.report.Hooks, report)
	s.mu.Unlock()
}

// stop sends SIGTERM and waits for the end, for rest at most. A runtime that
// answers with an error is asked again while there is time.
func (s *gracefulStop) stop(ctx context.Context, rest time.Duration) error {
	begun := s.e.clock()
	s.mu.Lock()
	if s.ev.report.Asked.IsZero() {
		s.ev.report.Asked = begun.UTC()
		s.ev.d.kill.sentAt.Store(begun.UnixNano())
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	retry := killRetryFirst
	for {
		err := s.e.runtime.StopContainer(ctx, s.id, seconds(rest-s.e.clock().Sub(begun)))
		if err == nil {
			return nil
		}
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("container %s had %s: %w", s.id, rest.Round(time.Millisecond), err)
		case <-timer.C:
		}
		retry = min(2*retry, killRetryLongest)
	}
}
