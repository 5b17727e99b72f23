package kubeletdiff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/holds"
)

const (
	// calmFor is how long nobody does anything before a world is taken for one at
	// rest: longer than our longest sampling period and than the round of the slow
	// half.
	calmFor = 3500 * time.Millisecond
	// followWithin is how long ours may take to do what kubelet did: garbage is looked
	// for again after a minute where nobody can be taken for it, and a reading
	// that stands still is believed after 30 s.
	followWithin = 75 * time.Second
	// unsettled is how many looks in a row the conditions may differ: the ends of
	// transition periods lie apart by as much as the last samples of the shortage.
	unsettled = 2
	// picks is how often kubelet is asked again until it acts on the threshold
	// that ours acts on: which of several it takes is the order of a map.
	picks = 64
)

// driver plays one scenario.
type driver struct {
	w     *world
	k     *kubeletSide
	o     *oursSide
	began time.Time
	// entered is when the present step began.
	entered time.Time
	step    int
	trace   []string
	again   int // how often the last line of the trace came again
	// since is when kubelet first saw each soft threshold met that is met now.
	since map[line]time.Time
	last  time.Time // what kubelet's clock was in its last pass
	count func(cell)
}

// play runs a scenario under a policy of ours in a synctest bubble and returns the
// first disagreement, nil when there is none.
func play(sc *Scenario, policy eviction.Settings, file *holds.Writer, count func(cell)) (*difference, []string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := newWorld(sc)
	o, err := startOurs(w, policy, file)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	k, err := startKubelet(ctx, w)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	var engine sync.WaitGroup
	engine.Go(func() { err = o.engine.Run(ctx) })
	d := &driver{w: w, k: k, o: o, began: time.Now(), since: map[line]time.Time{}, count: count}
	diff := d.run()
	cancel()
	over := make(chan struct{})
	go func() { engine.Wait(); close(over) }()
	for stopped := false; !stopped; {
		select {
		case a := <-o.acts: // too late to matter
			close(a.done)
		case <-over:
			stopped = true
		}
	}
	synctest.Wait()
	return diff, d.trace, errors.Join(err, holdsFile{file, o}.empty())
}

func (d *driver) note(format string, args ...any) {
	text := fmt.Sprintf("%d/%-8s ", d.step, time.Since(d.began).Round(time.Millisecond)) + fmt.Sprintf(format, args...)
	if n := len(d.trace); n > 0 && (d.trace[n-1] == text || strings.HasPrefix(d.trace[n-1], text+" again, ")) {
		d.again++
		d.trace[n-1] = fmt.Sprintf("%s again, %d times", text, d.again)
		return
	}
	d.trace, d.again = append(d.trace, text), 0
}

func (d *driver) differ(format string, args ...any) *difference {
	return &difference{step: d.step, at: time.Since(d.began).Round(time.Millisecond), text: fmt.Sprintf(format, args...)}
}

func (d *driver) run() *difference {
	// Ours comes to rest in a calm world, as a node that has been up for a while.
	time.Sleep(2*readings - time.Millisecond)
	d.pass() // kubelet finds its filesystems, and thresholds for containerfs, in its first
	for d.step = range d.w.sc.Steps {
		d.w.enter(d.step)
		d.entered = time.Now()
		if diff := d.playStep(); diff != nil {
			return diff
		}
	}
	return nil
}

// playStep plays one step until both sides are at rest and it has lasted.
func (d *driver) playStep() *difference {
	ends := time.Now().Add(d.w.sc.Steps[d.step].Lasts)
	v, patience, last := d.pass(), unsettled, time.Duration(0)
	for {
		wait := cmp.Or(last, calmFor)
		last = 0
		if d.owed(v) != "" {
			wait = followWithin
		}
		timer := time.NewTimer(wait)
		select {
		case a := <-d.o.acts:
			timer.Stop()
			acts, diff := d.judge(a)
			if diff != nil {
				return diff
			}
			v, patience = d.pass(), unsettled
			for _, a := range acts {
				if a.pod == "" && d.owed(v) == "" {
					d.countFocus(a.signal, Reclaimed)
				}
			}
			continue
		case <-timer.C:
		}
		if owed := d.owed(v); owed != "" {
			return d.differ("kubelet %s; ours does not %s within %s", v, owed, followWithin)
		}
		v = d.pass() // a grace may be over since
		if d.owed(v) != "" {
			continue
		}
		theirs, own := d.k.conditions(), d.o.conditions()
		d.note("conditions: kubelet %+v, ours %+v", theirs, own)
		switch {
		case theirs == own:
			patience = unsettled
		case patience == 0:
			for _, n := range d.o.engine.State().Signals {
				d.note("ours: %s known %t absent %t same %q problem %q available %d thresholds %+v", n.Signal, n.Known, n.Absent, n.SameAs, n.Problem, n.Available, n.Thresholds)
			}
			return d.differ("conditions: kubelet %+v, ours %+v", theirs, own)
		default:
			patience--
			continue
		}
		d.countRest(v)
		if time.Now().Before(ends) || d.graceEnds() {
			continue
		}
		if last = d.untilReading(); last == 0 {
			return nil
		}
	}
}

// judge compares a decision of ours, and what else it decided at the same moment
// beside it, with what kubelet does in the world they were made in, and lets them be
// carried out.
func (d *driver) judge(first *act) ([]*act, *difference) {
	acts := []*act{first}
	// Pods end at once here: a step lasts at least until ours has sampled all of it.
	seen := time.NewTimer(sampling - time.Since(d.entered))
	defer seen.Stop()
	for wait := !first.fast(); wait; {
		select {
		case a := <-d.o.acts:
			acts, wait = append(acts, a), !a.fast() // the fast half waits for nobody
		case <-seen.C:
			wait = false
		}
	}
	synctest.Wait()
	for more := true; more; {
		select {
		case a := <-d.o.acts:
			acts = append(acts, a)
			synctest.Wait()
		default:
			more = false
		}
	}
	var diff *difference
	for _, a := range acts {
		diff = cmp.Or(diff, d.acted(a, len(acts) == 1))
	}
	for _, a := range acts {
		close(a.done)
		if diff == nil {
			diff = d.carriedOut(a)
		}
	}
	return acts, diff
}

const (
	// readings is how often ours reads the file systems.
	readings = 2 * time.Second
	// sampling is longer than our longest sampling period of memory and PIDs.
	sampling = 1100 * time.Millisecond
)

// untilReading is how long it is until ours reads the file systems, but for a
// millisecond; 0 for that moment. The world changes then, so that ours sees all of
// it before a pod that ends changes it again.
func (d *driver) untilReading() time.Duration {
	rest := readings - time.Since(d.began)%readings
	if rest <= time.Millisecond {
		return 0
	}
	return rest - time.Millisecond
}

// graceEnds says whether the grace of a soft threshold ends about now: one side may
// have seen that and the other not yet, which decides what minimum reclaim is for.
func (d *driver) graceEnds() bool {
	now := time.Now()
	for l, since := range d.since {
		over := since.Add(d.w.sc.grace(l.signal))
		if over.After(now.Add(-2*readings)) && over.Before(now.Add(2*readings)) {
			return true
		}
	}
	return false
}

// pass lets kubelet look. Its clock stands where ours last read the file systems,
// so that both see the end of a grace at the same reading.
func (d *driver) pass() verdict {
	late := (time.Since(d.began) + time.Millisecond) % readings
	return d.passAt(time.Now().Add(time.Millisecond - late))
}

// passAt is a pass at a time of kubelet's clock, which never goes back.
func (d *driver) passAt(now time.Time) verdict {
	if now.Before(d.last) {
		now = d.last
	}
	v := d.k.pass(now)
	d.last = now
	for l, met := range v.met {
		switch {
		case !l.soft:
		case !met:
			delete(d.since, l)
		case d.since[l].IsZero():
			d.since[l] = now
		}
	}
	if v.solved = d.solved(v); v.solved {
		d.count(cell{outcome: AllThresholdsClear})
	}
	d.note("kubelet %s", v)
	return v
}

// owed is what ours has to do because kubelet did: empty for nothing.
func (d *driver) owed(v verdict) string {
	own := d.w.collectedBy(ourView)
	for kind := range garbageKinds {
		if v.collected[kind] && !own[kind] {
			return "collect the garbage"
		}
	}
	if len(v.killed) > 0 && !v.solved {
		return "take a pod"
	}
	return ""
}

// solved says whether kubelet took a pod for a threshold that the collection of
// garbage in the same pass had cleared: it does so when any other threshold is
// met (Kubernetes 1.37, pkg/kubelet/eviction/eviction_manager.go
// reclaimNodeLevelResources).
func (d *driver) solved(v verdict) bool {
	about := v.about(d.softGrace)
	for _, l := range about {
		if !v.clear[l] {
			return false
		}
	}
	return v.collected != [garbageKinds]bool{} && len(about) > 0
}

// softGrace is what kubelet gives a pod for a soft threshold, in seconds.
func (d *driver) softGrace(pod string) int64 {
	if g := d.w.sc.Pods[d.w.index(pod)].Grace; g != nil {
		return min(d.w.sc.MaxPodGrace, *g)
	}
	return d.w.sc.MaxPodGrace
}
