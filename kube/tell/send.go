package tell

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cri-evictd/cri-evictd/eviction"
)

const (
	// laterAfter is when a request is repeated that was put off, as by a budget.
	laterAfter = 10 * time.Second
	// refusedAfter, times their number, is when one is that was refused for this
	// pod alone; after refusalsMost in a row it is given up.
	refusedAfter = 10 * time.Second
	refusalsMost = 10
)

// next returns a copy of the oldest entry that is due.
func (t *Teller) next(now time.Time) (entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.way == None || t.way == "" {
		return entry{}, false
	}
	return t.oldest(func(e *entry) bool { return e.Outcome == "" && !e.due.After(now) })
}

// oldest returns a copy of the oldest entry that is so; mu is held.
func (t *Teller) oldest(so func(*entry) bool) (entry, bool) {
	var found *entry
	for _, e := range t.entries {
		if so(e) && (found == nil || e.Notice.ID < found.Notice.ID) {
			found = e
		}
	}
	if found == nil {
		return entry{}, false
	}
	return *found, true
}

// change applies f to the entry that e is a copy of, unless it was ended
// meanwhile.
func (t *Teller) change(e *entry, f func(e *entry, now time.Time)) {
	now := t.opt.Clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	real, ok := t.entries[e.Notice.ID]
	if !ok || real.Outcome != "" {
		return
	}
	f(real, now)
	t.keeper.put(real.Notice.ID, real)
}

// handle looks at the pod and does what is to be done.
func (t *Teller) handle(ctx context.Context, e entry) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod, err := t.api.Pod(ctx, e.Notice.Pod.Namespace, e.Notice.Pod.Name)
	blind := false
	switch sortOut(err) {
	case accepted:
	case notFound:
		pod = nil
	case away, unknownUser, later:
		t.away(err)
		return
	default:
		// A node may only read pods that are bound to it, and is refused one that
		// is not there.
		pod, blind = nil, true
	}
	t.back()
	now := t.opt.Clock()
	way := t.currentWay()
	if pod != nil && !e.Taken && e.Tries > 0 && pod.UID == types.UID(e.Notice.Pod.UID) && takenUp(pod) {
		e.Taken = true
		t.change(&e, func(e *entry, _ time.Time) { e.Taken = true })
	}
	do, outcome := judge(&e, pod, way, now)
	if blind {
		do, outcome = judgeBlind(&e, now)
	}
	switch do {
	case ended:
		t.change(&e, func(e *entry, now time.Time) { t.settle(e, outcome, now) })
	case look:
		t.change(&e, func(e *entry, now time.Time) {
			e.looks++
			e.due = now.Add(e.lookAfter())
		})
	case ask:
		t.ask(ctx, e, pod, way)
	}
}

// judgeBlind decides about a pod that cannot be read: a request that was taken
// and stood long enough is believed.
func judgeBlind(e *entry, now time.Time) (action, string) {
	switch {
	case e.Tries == 0:
		return ask, ""
	case now.Sub(e.Asked) >= sticksFor:
		return ended, Told
	}
	return look, ""
}

func (t *Teller) currentWay() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.way
}

// ask sends the request.
func (t *Teller) ask(ctx context.Context, e entry, pod *v1.Pod, way string) {
	if e.Message == "" {
		e.Message, e.Annotations = Message(&e.Notice, pod)
	}
	err := t.send(ctx, &e, pod, way)
	why := sortOut(err)
	if why == away || why == unknownUser {
		t.away(err)
		return
	}
	t.change(&e, func(real *entry, now time.Time) {
		real.Message, real.Annotations, real.Way = e.Message, e.Annotations, way
		switch why {
		case accepted:
			t.patches++
			real.Tries, real.Asked, real.looks, real.refusals = real.Tries+1, now.UTC(), 0, 0
			real.due = now.Add(real.lookAfter())
		case notFound:
			t.settle(real, Gone, now)
		case conflict:
			// Another pod has the name, which the next look shows; where that cannot
			// be seen the API server's word has to do.
			if pod == nil {
				t.settle(real, Gone, now)
				return
			}
			real.due = now.Add(time.Second)
		case later:
			real.due = now.Add(laterAfter)
		default:
			real.refusals++
			real.due = now.Add(time.Duration(real.refusals) * refusedAfter)
			t.problem = err.Error()
			if why == forbidden {
				t.suspect = true // the right may have been taken away
			}
			if real.refusals >= refusalsMost {
				t.settle(real, Refused, now)
			}
		}
	})
	if why == forbidden || why == notAcceptable {
		t.opt.Log.WithError(err).WithField("decision", e.Notice.ID).WithField("pod", e.Notice.Pod.String()).Warn("the API server refuses to be told of an eviction")
	}
}

func (t *Teller) send(ctx context.Context, e *entry, pod *v1.Pod, way string) error {
	n, uid, now := &e.Notice, types.UID(e.Notice.Pod.UID), t.opt.Clock()
	switch way {
	case ByEvict:
		return t.api.Evict(ctx, n.Pod.Namespace, n.Pod.Name, uid, graceOf(n), false)
	case ByDelete:
		if body, err := disruptedPatch(uid, e.Message, pod, now); err == nil && e.Tries == 0 {
			// For a Job's policies. The pod goes without it as well.
			if err := t.api.PatchStatus(ctx, n.Pod.Namespace, n.Pod.Name, body, false); err != nil {
				t.opt.Log.WithError(err).WithField("pod", n.Pod.String()).Debug("no DisruptionTarget before the deletion")
			}
		}
		return t.api.Delete(ctx, n.Pod.Namespace, n.Pod.Name, uid, graceOf(n), false)
	}
	body, err := evictedPatch(uid, n.ID, e.Tries+1, e.Message, pod, now)
	if err != nil {
		return err
	}
	return t.api.PatchStatus(ctx, n.Pod.Namespace, n.Pod.Name, body, false)
}

// graceOf is the grace of a deletion in seconds. Where the containers are dead it is
// 1: 0 would remove the object at once and leave kubelet with an orphan.
func graceOf(n *eviction.Notice) int64 {
	return max(1, int64((n.Grace+time.Second-1)/time.Second))
}

// expire ends what nobody wants to know any more.
func (t *Teller) expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, e := range t.entries {
		if e.finished() || now.Sub(e.Notice.Time) < expiresAfter {
			continue
		}
		if e.Outcome == "" {
			t.settle(e, Expired, now)
		}
		e.Event = true
		t.keeper.put(id, e)
	}
}

// nothingDue says how long nothing will be due.
func (t *Teller) nothingDue(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := idle
	until := func(at time.Time) { wait = min(wait, max(at.Sub(now), time.Millisecond)) }
	if t.suspect {
		until(t.probed.Add(probeSpacing))
	}
	for _, e := range t.entries {
		if e.Outcome == "" && t.way != None && t.way != "" {
			until(e.due)
		}
		if t.eventDue(e) {
			until(now.Add(t.eventDelay(now)))
		}
	}
	for _, e := range t.node {
		if at := e.ready(); !at.IsZero() {
			until(at)
		}
	}
	return wait
}
