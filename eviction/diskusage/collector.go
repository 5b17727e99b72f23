package diskusage

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Options of a Collector.
type Options struct {
	Places Places
	// Pods is the inventory at this moment; it does not block.
	Pods func() *inventory.Snapshot
	// Stats tells the writable layers; nil leaves them unknown.
	Stats Stats
	// Processes finds the pods' processes; nil leaves deleted files unknown.
	Processes Processes
	// Paused says that the walker has to rest, as in an alarm; nil is never.
	Paused func() bool
	Clock  func() time.Time
	Log    logrus.FieldLogger
}

// Collector measures what the pods have on disk. Usage and Near may be called
// from any goroutine and wait for nothing.
type Collector struct {
	opt Options

	mu     sync.Mutex // held for memory only, never across I/O
	layers map[string]Layer
	// period is the time between two questions to the runtime.
	period time.Duration
	found  map[string]*found
	near   map[uint64]bool
	// version rises with every change of the above.
	version uint64
	view    view
}

// view is what Usage returned last.
type view struct {
	usage    *Usage
	snapshot *inventory.Snapshot
	version  uint64
	made     time.Time
	until    time.Time // when a number becomes too old; zero for never
}

// New returns a collector that knows nothing yet.
func New(opt Options) *Collector {
	if opt.Paused == nil {
		opt.Paused = func() bool { return false }
	}
	return &Collector{opt: opt, period: statsCalm, layers: map[string]Layer{}, found: map[string]*found{}}
}

// errStuck says that the walker did not come back from a disk.
var errStuck = errors.New("the walker still waits for a disk")

// stuckAfter is how long Run waits for the walker at its end.
const stuckAfter = 2 * time.Second

// Run measures until ctx ends. An error says that the walker is left behind,
// waiting for a disk that does not answer.
func (c *Collector) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	if c.opt.Stats != nil {
		asking.Go(func() { c.ask(ctx) })
	}
	walked := make(chan struct{})
	go func() {
		defer close(walked)
		if err := politely(); err != nil {
			c.opt.Log.WithError(err).Warn("the walk through the pods' directories competes with others for the disk and processors")
		}
		newWalker(c).run(ctx)
	}()
	<-ctx.Done()
	timer := time.NewTimer(stuckAfter)
	defer timer.Stop()
	select {
	case <-walked:
		return nil
	case <-timer.C:
		return errStuck
	}
}

// ask asks the runtime for its stats again and again, one question at a time.
func (c *Collector) ask(ctx context.Context) {
	said := ""
	for {
		period, err := c.askOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != said && err != nil {
			c.opt.Log.WithError(err).Warn("the runtime does not tell what the containers have on disk")
		}
		said = text
		if !wait(ctx, period) {
			return
		}
	}
}

// askOnce asks once and returns when to ask again.
func (c *Collector) askOnce(ctx context.Context) (time.Duration, error) {
	began := c.opt.Clock()
	call, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	stats, err := c.opt.Stats.ListContainerStats(call)
	now := c.opt.Clock()
	period := statsPeriod(now.Sub(began))
	if err != nil {
		return period, err
	}
	layers := layersOf(stats, now, filesystemOf)
	pods := c.opt.Pods()
	c.mu.Lock()
	defer c.mu.Unlock()
	// What is not told any more stands: for a running container until it is too
	// old, for one that has ended as long as there is the container.
	for _, p := range pods.Pods {
		for i := range p.Containers {
			id := p.Containers[i].ID
			if old, ok := c.layers[id]; ok {
				if _, told := layers[id]; !told {
					layers[id] = old
				}
			}
		}
	}
	c.layers, c.period = layers, period
	c.version++
	return period, nil
}

// wait reports whether the time has passed before the end of ctx.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Near says that a threshold on these devices (st_dev) is met or not far: the
// walker begins anew sooner. The next call replaces the list.
func (c *Collector) Near(devices []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.near = map[uint64]bool{}
	for _, d := range devices {
		c.near[d] = true
	}
}

// Usage is what is known now. As long as nothing has changed it is the same one.
func (c *Collector) Usage() *Usage {
	snapshot, now := c.opt.Pods(), c.opt.Clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.view
	if v.usage != nil && v.snapshot == snapshot && v.version == c.version && (v.until.IsZero() || !now.After(v.until)) && !now.Before(v.made) {
		return v.usage
	}
	c.view = c.look(snapshot, now)
	return c.view.usage
}

// look makes a new view. A pod of which nothing was measured is left out.
func (c *Collector) look(snapshot *inventory.Snapshot, now time.Time) view {
	pods := make(map[string]*Pod, len(snapshot.Pods))
	v := view{usage: &Usage{Pods: pods}, snapshot: snapshot, version: c.version, made: now}
	device := c.layersDevice()
	fresh := 2 * c.period
	var in inputs
	for _, p := range snapshot.Pods {
		in = inputs{layers: device, containers: in.containers[:0]}
		known := false
		for i := range p.Containers {
			x := &p.Containers[i]
			ct := container{name: x.Name, running: x.Running}
			if l, ok := c.layers[x.ID]; ok {
				ct.layer, known = &l, true
			}
			in.containers = append(in.containers, ct)
		}
		if f := c.found[p.UID]; f != nil {
			in.trees, in.open, in.openAt, in.openWhy, in.nodeDevice, known = f.trees, f.open, f.openAt, f.openWhy, f.node, true
		}
		if !known {
			continue
		}
		pod, until := merge(&in, now, fresh)
		if !until.IsZero() && (v.until.IsZero() || until.Before(v.until)) {
			v.until = until
		}
		pods[p.UID] = pod
	}
	return v
}

// layersDevice is the device of all writable layers, if it is one.
func (c *Collector) layersDevice() uint64 {
	var device uint64
	first := true
	for _, l := range c.layers {
		if !first && l.Device != device {
			return 0
		}
		device, first = l.Device, false
	}
	return device
}

// keep forgets what belongs to pods that are gone.
func (c *Collector) keep(pods *inventory.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.found)
	maps.DeleteFunc(c.found, func(uid string, _ *found) bool {
		_, ok := pods.Pod(uid)
		return !ok
	})
	if len(c.found) != before {
		c.version++
	}
}

// put publishes what was found of a pod.
func (c *Collector) put(uid string, f *found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found[uid] = f
	c.version++
}
