package diskusage

import (
	"context"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// idle is how long the walker rests when there is nothing to do.
const idle = time.Second

// walker goes through the pods, one step at a time. It is used by one
// goroutine.
type walker struct {
	c        *Collector
	tools    *tools
	pods     map[string]*walked
	snapshot *inventory.Snapshot
	current  *walked
	left     int // steps of the present turn
	turns    uint64
	lookedAt time.Time
}

// walked is one pod.
type walked struct {
	candidate
	uid string
	job *job
	// last is what the last whole walk found.
	last *found
}

func newWalker(c *Collector) *walker {
	p := c.opt.Places
	return &walker{c: c, pods: map[string]*walked{}, tools: &tools{
		places: p, mem: newMemory(), procs: c.opt.Processes,
		devices: &devices{proc: p.Proc, clock: c.opt.Clock},
	}}
}

func (w *walker) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !wait(ctx, w.step()) {
			return
		}
	}
}

// step works for a moment and returns how long to rest.
func (w *walker) step() time.Duration {
	clock := w.c.opt.Clock
	began := clock()
	if w.c.opt.Paused() {
		return idle
	}
	stop := func() bool { return clock().Sub(began) >= stepTime }
	busy := false
	w.sync()
	w.refresh(began)
	for !stop() {
		if w.current == nil && !w.choose(began) {
			break
		}
		busy = true
		w.work(clock(), stop)
	}
	r := rest(clock().Sub(began))
	if !busy {
		return max(r, idle)
	}
	return r
}

// sync follows the inventory.
func (w *walker) sync() {
	s := w.c.opt.Pods()
	if s == w.snapshot {
		return
	}
	w.snapshot = s
	for uid, p := range w.pods {
		if _, ok := s.Pod(uid); ok {
			continue
		}
		if p.job != nil {
			p.job.end()
		}
		if w.current == p {
			w.current = nil
		}
		delete(w.pods, uid)
	}
	for _, p := range s.Pods {
		if w.pods[p.UID] == nil {
			w.pods[p.UID] = &walked{uid: p.UID}
		}
	}
	w.c.keep(s)
}

// refresh reads the operator's files and mounts again, now and then.
func (w *walker) refresh(now time.Time) {
	if !w.lookedAt.IsZero() && now.Sub(w.lookedAt) < lookAgain && !now.Before(w.lookedAt) {
		return
	}
	w.lookedAt = now
	w.c.mu.Lock()
	layers := w.c.layers
	w.c.mu.Unlock()
	w.tools.devices.refresh(w.tools.places, layers)
	w.tools.projects = nil
	if file := w.tools.places.ProjectsFile; file != "" {
		if b, err := readBounded(file, maxProjects); err == nil { // most nodes have none
			w.tools.projects = parseProjects(b)
		}
	}
}

// choose gives the pod whose last turn is longest ago its turn.
func (w *walker) choose(now time.Time) bool {
	w.c.mu.Lock()
	near := len(w.c.near) > 0
	w.c.mu.Unlock()
	var best *walked
	for _, p := range w.pods {
		if p.due(now, near) && (best == nil || p.lastTurn < best.lastTurn) {
			best = p
		}
	}
	if best == nil {
		return false
	}
	w.turns++
	best.lastTurn = w.turns
	w.current, w.left = best, turn
	return true
}

// work goes on with the present pod.
func (w *walker) work(now time.Time, stop func() bool) {
	p := w.current
	if p.job == nil {
		pod, ok := w.snapshot.Pod(p.uid)
		if !ok {
			w.current = nil
			return
		}
		p.job = newJob(pod, w.tools, now)
		p.began, p.walking = now, true
	}
	done := p.job.step(now, stop)
	w.left--
	if done {
		f := p.job.found
		f.node = w.tools.devices.node
		p.job, p.walking, p.last = nil, false, &f
		w.c.put(p.uid, &f)
		w.current = nil
		return
	}
	if w.left <= 0 {
		f := p.job.sofar(p.last)
		f.node = w.tools.devices.node
		w.c.put(p.uid, f)
		w.current = nil
	}
}
