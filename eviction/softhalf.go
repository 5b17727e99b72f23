package eviction

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// watchKey names a threshold that is watched. Another amount or grace is another
// threshold.
type watchKey struct {
	SoftThreshold
	hard bool
	// slow: it is one of disk, inodes or PIDs, and the slow half acts on it, hard
	// or soft; text is how it was written. The amounts follow the capacity.
	slow bool
	text string
	// name and fingerprint are what Armed remembers of a slow one.
	name        Signal
	fingerprint uint64
}

// fast says whether the fast half acts on it.
func (k *watchKey) fast() bool { return k.hard && !k.slow }

// softWatch is a watch with what the engine does about it.
type softWatch struct {
	watch
	key  watchKey
	last observation
	// busy says what is under way for it; empty for nothing.
	busy string
	// why says why nothing is done about it now, for the reader.
	why string
	// tried: memory.reclaim was asked for the coming decision; reclaim is what
	// it did, nil where it could not be asked.
	tried   bool
	reclaim *ReclaimReport
	// breaker stops it when its evictions do not help.
	breaker breaker
	// killedAt is when the last eviction that it had to wait for was over.
	killedAt time.Time
	// said is the last reason for having no victim that was reported, saidAt when
	// a decision of mode observe was.
	said   string
	saidAt time.Time
	// coming is what the pods that were evicted for a slow threshold will still
	// give back, disk what was reclaimed before one is, until reclaimedAt.
	coming      pendingRelease
	disk        *ReclaimedDisk
	reclaimedAt time.Time
	// noted are the reasons for having no victim that were counted in this breach.
	noted [noVictims]bool
}

// softHalf is what the slow half judges itself: soft thresholds, conditions, and
// since when everything is clear. Its fields are guarded by mu; no lock is taken
// and nothing is waited for while it is held.
type softHalf struct {
	mu      sync.Mutex
	watches map[watchKey]*softWatch
	running map[string]*softEviction // by UID
	// conditions are the node's; sent is what the proxy was told last.
	conditions conditions
	sent       bool
	sentError  string
	// noReclaim: the kernel does not offer memory.reclaim.
	noReclaim bool
}

func newSoftHalf() softHalf {
	return softHalf{watches: map[watchKey]*softWatch{}, running: map[string]*softEviction{}}
}

// thresholds lists what is watched: the hard memory thresholds and the soft
// ones, memory.available first.
func (set *Settings) thresholds() []watchKey {
	var out []watchKey
	for _, h := range []struct {
		signal Signal
		rules  *Rules
	}{{MemoryAvailable, &set.Rules}, {AllocatableMemoryAvailable, &set.Allocatable}} {
		if h.rules.Amount > 0 {
			out = append(out, watchKey{SoftThreshold: SoftThreshold{Signal: h.signal, Amount: h.rules.Amount, MinReclaim: h.rules.MinReclaim}, hard: true})
		}
	}
	soft := slices.Clone(set.Soft)
	order := Signals()
	slices.SortStableFunc(soft, func(a, b SoftThreshold) int {
		return slices.Index(order, a.Signal) - slices.Index(order, b.Signal)
	})
	for _, t := range soft {
		if t.Amount > 0 {
			out = append(out, watchKey{SoftThreshold: t})
		}
	}
	return out
}

// softRound is the slow half's round over all thresholds: what is met, the
// conditions, and for soft ones what is to be done.
func (e *Engine) softRound(ctx context.Context) {
	now, set := e.clock(), e.settings()
	due := e.watchThresholds(now, set)
	e.publishConditions(now)
	e.tellNear()
	for _, w := range due {
		e.considerSoft(ctx, set, w, now)
	}
}

// watchThresholds takes one round of samples and returns the soft thresholds
// whose grace is over.
func (e *Engine) watchThresholds(now time.Time, set *Settings) []*softWatch {
	seen := e.observations()
	keys := e.thresholds(set)
	s := &e.soft
	var due []*softWatch
	e.watchAll(keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.watches {
		if !slices.Contains(keys, k) {
			delete(s.watches, k)
		}
	}
	met, still := [conditionKinds]time.Time{}, [conditionKinds]bool{}
	for _, k := range keys {
		w := s.watches[k]
		w.last = seen[k.Signal]
		if k.fast() {
			w.armed = e.hardArmed(k.Signal)
		}
		w.observed = set.Rules.Observe
		w.round(k.SoftThreshold, w.last, now)
		if w.fresh {
			w.breaker.observe(now, w.last.Available, !Met(w.last.Lowest, k.Amount+k.MinReclaim))
		}
		if of := k.Signal.condition(); w.armed {
			still[of] = still[of] || !w.firstMet.IsZero()
			if w.lastMet.After(met[of]) {
				met[of] = w.lastMet
			}
		}
		if k.fast() {
			continue
		}
		if k.slow && k.hard {
			e.slowEpisode(w)
		}
		if !w.past && w.busy == "" {
			e.cleared(w, now)
		}
		w.why = ""
		if w.past {
			due = append(due, w)
		}
	}
	for r := range s.conditions {
		s.conditions[r].update(now, met[r], still[r], set.Transition)
	}
	if set.Rules.Observe {
		s.conditions = conditions{}
	}
	return due
}

// watchAll has a watch for each threshold: the one it had before its amount changed
// with the capacity, or a new one.
func (e *Engine) watchAll(keys []watchKey) {
	e.soft.mu.Lock()
	e.soft.follow(keys)
	e.soft.mu.Unlock()
	for _, k := range keys {
		e.watchFor(k) // asks for what was in force before: not under the lock
	}
}

// watchFor returns the watch of a threshold, made at first sight.
func (e *Engine) watchFor(k watchKey) *softWatch {
	s := &e.soft
	s.mu.Lock()
	w, ok := s.watches[k]
	s.mu.Unlock()
	if ok {
		return w
	}
	w = &softWatch{key: k}
	switch {
	case k.slow:
		w.armed = e.slowArmedBefore(k)
		e.seedSlow(w)
	case !k.hard:
		w.armed = e.softArmedBefore(k.SoftThreshold)
	}
	w.lastNotClear = e.started
	s.mu.Lock()
	s.watches[k] = w
	s.mu.Unlock()
	return w
}

// cleared forgets what was begun for a decision that is not needed any more; mu
// is held.
func (e *Engine) cleared(w *softWatch, _ time.Time) {
	if w.tried && w.reclaim != nil && w.fresh {
		r := w.reclaim
		r.After = w.last.Available
		key, last := w.key, w.last
		// The report asks for locks of its own.
		e.finishing.Go(func() { e.reportReclaimed(key, last, r) })
	}
	if w.tried && w.disk != nil && w.fresh && w.disk.did() {
		key, last, did := w.key, w.last, *w.disk
		e.finishing.Go(func() { e.reportReclaimedDisk(key, last, &did) })
	}
	if w.fresh || !w.tried {
		w.tried, w.reclaim, w.disk = false, nil, nil
		w.said, w.noted = "", [noVictims]bool{}
	}
}

// observations returns what the fast half has seen since the last round.
func (e *Engine) observations() map[Signal]observation {
	out := map[Signal]observation{}
	for _, h := range e.sampler.hards() {
		l := &h.latest
		o := observation{absent: l.absent.Load(), Available: l.available.Load()}
		if at := l.at.Load(); at != 0 && !o.absent {
			o.At = l.time(int64(at))
		}
		o.Lowest, o.Highest = o.Available, o.Available
		if low, high, ok := l.extremes.take(); ok {
			o.Lowest, o.Highest = min(low, o.Available), max(high, o.Available)
		}
		out[h.signal] = o
	}
	e.slowObservations(out)
	return out
}

// hardArmed says whether the hard threshold of a signal is acted on.
func (e *Engine) hardArmed(sig Signal) bool {
	return e.sampler.hardOf(sig).armed.armed(e.settings().rulesOf(sig))
}

// hardActs says whether a hard threshold is met and acted on: nothing soft is
// begun then.
func (e *Engine) hardActs() bool {
	for _, h := range e.sampler.hards() {
		if h.latest.met.Load() && e.hardArmed(h.signal) {
			return true
		}
	}
	return false
}

// publishConditions tells the proxy of the node's conditions, each round while
// they hold and once when they have ended.
func (e *Engine) publishConditions(now time.Time) {
	s := &e.soft
	s.mu.Lock()
	c, sent := s.conditions.published(now), s.sent
	s.mu.Unlock()
	any := c != holds.Conditions{}
	if !any && !sent {
		return
	}
	err := e.holds.SetConditions(c)
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	s.sent = any || err != nil // taking them back is tried again
	changed := s.sentError != text
	s.sentError = text
	s.mu.Unlock()
	switch {
	case err != nil && changed:
		e.log.WithError(err).Error("the node's conditions cannot be told to the proxy: new pods are let in")
	case any && !sent && err == nil:
		e.log.WithField("since", c.Since.UTC().Format(time.RFC3339)).Warn(pressureText(c))
	case !any && sent && err == nil:
		e.log.Info("the node's pressure is over: new pods are let in")
	}
}

// counts says whether a hold waits for this threshold: not for a soft one that is
// not acted on, nor for a number the kernel does not have.
func (w *softWatch) counts() bool { return !w.last.absent && (w.key.fast() || w.armed) }

// clearSince returns since when every threshold of a condition that is acted on
// has been clear, its minimum reclaim included; clear is false when one is not
// now, or is not known.
func (e *Engine) clearSince(now time.Time, of conditionKind) (since time.Time, clear bool) {
	s := &e.soft
	s.mu.Lock()
	defer s.mu.Unlock()
	since = e.started
	for _, w := range s.watches {
		if w.key.Signal.condition() != of || !w.counts() {
			continue
		}
		if !w.last.fresh(now) || Met(w.last.Available, w.key.Amount+w.key.MinReclaim) {
			return time.Time{}, false
		}
		if w.lastNotClear.After(since) {
			since = w.lastNotClear
		}
	}
	if of != memoryPressure {
		return since, true
	}
	// The fast half knows of readings that failed as well.
	for _, h := range e.sampler.hards() {
		if n := h.latest.lastNotClear.Load(); n != 0 && h.amount() > 0 && !h.latest.absent.Load() && h.latest.time(n).After(since) {
			since = h.latest.time(n)
		}
	}
	return since, true
}

// room returns what each signal has to keep free for a hold to end.
func (e *Engine) room(now time.Time) map[Signal]Room {
	s := &e.soft
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[Signal]Room{}
	for _, w := range s.watches {
		if !w.counts() || !w.last.fresh(now) {
			continue
		}
		r := by[w.key.Signal]
		r.Available, r.Need = w.last.Available, max(r.Need, w.key.Amount+w.key.MinReclaim)
		by[w.key.Signal] = r
	}
	return by
}

// softNear says whether the grace of a soft threshold is over, or will be within
// this time.
func (e *Engine) softNear(within time.Duration) bool {
	now := e.clock()
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	for _, w := range e.soft.watches {
		if !w.key.fast() && !w.firstMet.IsZero() && w.firstMet.Add(w.key.Grace).Sub(now) <= within {
			return true
		}
	}
	return false
}

// softPlan tells the planner of the soft evictions under way: their pods are not
// barred, so that a hard decision can shorten them.
func (e *Engine) softPlan(in *planInput) {
	in.evicting = map[string]uint64{}
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	for uid, ev := range e.soft.running {
		in.keepOpen[uid] = true
		if ev.hard {
			in.held[uid] = "its kill is in progress"
		} else {
			in.evicting[uid] = ev.d.ID
		}
	}
}
