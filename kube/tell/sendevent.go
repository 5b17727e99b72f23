package tell

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// eventDue says whether the pod's event is to be sent: after the first request
// for the status, which is more urgent, or when there will be none.
func (t *Teller) eventDue(e *entry) bool {
	return !e.Event && (e.Outcome != "" || e.Tries > 0 || e.refusals > 0 || t.way == None)
}

// eventDelay is how long events on pods have to wait.
func (t *Teller) eventDelay(now time.Time) time.Duration {
	r := t.limit.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// nextEvent returns the entry whose event may be sent now.
func (t *Teller) nextEvent(now time.Time) (entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.oldest(t.eventDue)
	return e, ok && t.eventDelay(now) == 0
}

func (t *Teller) sendEvent(ctx context.Context, e entry) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if e.Message == "" {
		e.Message, e.Annotations = Message(&e.Notice, nil)
	}
	t.limit.AllowN(t.opt.Clock(), 1)
	err := t.api.CreateEvent(ctx, evictedEvent(&e.Notice, t.opt.Node, e.Message, e.Annotations))
	if !t.eventAnswered(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if real, ok := t.entries[e.Notice.ID]; ok {
		real.Event = true
		t.keeper.put(real.Notice.ID, real)
	}
}

// eventAnswered says whether the answer is the last word about an event. One that
// is refused is lost: nothing depends on it.
func (t *Teller) eventAnswered(err error) bool {
	switch sortOut(err) {
	case away, unknownUser, later:
		t.away(err)
		return false
	case accepted:
		t.mu.Lock()
		t.events++
		t.mu.Unlock()
	case conflict: // it is there already
	default:
		t.opt.Log.WithError(err).Warn("an event is refused by the API server")
	}
	t.back()
	return true
}

// nextNodeEvent returns a copy of an event on the node that may be sent now.
func (t *Teller) nextNodeEvent(now time.Time) (v1.ResourceName, nodeEvent, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r, e := range t.node {
		if at := e.ready(); !at.IsZero() && !at.After(now) {
			return r, *e, true
		}
	}
	return "", nodeEvent{}, false
}

func (t *Teller) sendNodeEvent(ctx context.Context, r v1.ResourceName, e nodeEvent) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	sent := e
	var err error
	if !e.anew() {
		sent.count++
		var body []byte
		if body, err = countedPatch(sent.count, e.at); err == nil {
			err = t.api.PatchEvent(ctx, v1.NamespaceDefault, e.name, body)
		}
	}
	if e.anew() || sortOut(err) == notFound {
		made := thresholdEvent(r, t.opt.Node, e.at)
		sent.name, sent.first, sent.count = made.Name, e.at, 1
		err = t.api.CreateEvent(ctx, made)
	}
	if !t.eventAnswered(err) {
		return
	}
	now := t.opt.Clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	real := t.node[r]
	// What happened while it was sent is sent next time.
	real.due = real.at.After(e.at)
	real.name, real.first, real.count, real.sent = sent.name, sent.first, sent.count, now
}

// State implements eviction.Teller.
func (t *Teller) State() eviction.TellingNow {
	now := t.opt.Clock()
	t.mu.Lock()
	s := eviction.TellingNow{
		Mode: t.opt.Mode, Way: t.way, Fallback: t.fallback, Server: t.server, Node: t.opt.Node,
		Reachable: t.reach, Since: t.since, Problem: t.problem, Patches: t.patches, Events: t.events, Told: []eviction.ToldCount{},
	}
	for _, e := range t.entries {
		switch {
		case e.Outcome != "":
		case e.Tries > 0:
			s.Verifying++
		default:
			s.Queued++
			s.OldestAge = max(s.OldestAge, now.Sub(e.Notice.Time))
		}
	}
	for _, way := range append(waysFrom(ByStatus), None) {
		for _, outcome := range Outcomes() {
			if n, ok := t.counts[[2]string{way, outcome}]; ok {
				s.Told = append(s.Told, eviction.ToldCount{Way: way, Outcome: outcome, Count: n})
			}
		}
	}
	t.mu.Unlock()
	s.QueueProblem = t.keeper.state()
	return s
}
