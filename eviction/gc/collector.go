package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// Collector removes dead containers and unused images: in the background, and as
// eviction.Reclaimer before a pod has to go. One pass at a time.
type Collector struct {
	opt    Options
	log    logrus.FieldLogger
	counts *counters
	// turn holds one token; whoever takes it has facts.
	turn  chan struct{}
	facts *facts

	mu    sync.Mutex
	rests map[place]*rest
	said  map[string]time.Time // what was logged lately, by what it was about
	runs  []Run                // newest last
	// problem is why the last background round could not do its work.
	problem string
}

var _ eviction.Reclaimer = (*Collector)(nil)

// place is what removals are meant to free.
type place struct {
	device uint64
	unit   eviction.Unit
}

// rest is a pause after removals that freed nothing.
type rest struct {
	until time.Time
	wait  time.Duration
}

const (
	// restFirst to restLongest is how long no image is removed for a place after
	// removals that freed nothing.
	restFirst   = 5 * time.Minute
	restLongest = time.Hour
	// sayAgain is how often the same is said (bugs.md B68).
	sayAgain = 5 * time.Minute
	// runsKept is how many passes are remembered.
	runsKept = 20
)

// New returns a Collector; Run does the background part.
func New(opt Options, log logrus.FieldLogger) *Collector {
	c := &Collector{
		opt: opt, log: log, counts: newCounters(), turn: make(chan struct{}, 1),
		rests: map[place]*rest{}, said: map[string]time.Time{},
	}
	c.facts = newFacts(&c.opt)
	c.turn <- struct{}{}
	return c
}

// take waits for the turn; the caller gives it back.
func (c *Collector) take(ctx context.Context) (back func(), err error) {
	select {
	case <-c.turn:
		return func() { c.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another pass is not over: %w", ctx.Err())
	}
}

// Reclaim implements eviction.Reclaimer.
func (c *Collector) Reclaim(ctx context.Context, want eviction.ReclaimWant) (eviction.ReclaimedDisk, error) {
	unit := want.Signal.Unit()
	if want.Signal.Memory() || unit == eviction.Tasks || !c.opt.Acts() {
		return eviction.ReclaimedDisk{}, nil
	}
	back, err := c.take(ctx)
	if err != nil {
		return eviction.ReclaimedDisk{}, err
	}
	defer back()
	on, err := c.opt.Devices(ctx)
	if err != nil {
		return eviction.ReclaimedDisk{}, fmt.Errorf("where images and containers lie is not known, nothing was removed: %w", err)
	}
	if want.Device != on.Images && want.Device != on.Containers {
		return eviction.ReclaimedDisk{Text: "neither images nor containers lie on this file system"}, nil
	}
	p := &pass{c: c, Run: Run{Time: c.opt.Clock().UTC(), Why: ForPressure, Unit: unit, Path: want.Path}}
	err = p.look(ctx)
	var need uint64
	if err == nil {
		need, err = want.Measure(ctx)
	}
	if err == nil && need > 0 {
		p.target = p.Available + need
		err = c.reclaim(ctx, p, &want, on)
	}
	c.end(p, err)
	return eviction.ReclaimedDisk{Containers: p.Containers, Images: p.Images, Freed: p.Freed, Text: p.Text}, err
}

// reclaim does the steps that can free something on the device.
func (c *Collector) reclaim(ctx context.Context, p *pass, want *eviction.ReclaimWant, on Devices) error {
	if err := c.facts.list(ctx); err != nil {
		return err
	}
	var err error
	if want.Device == on.Containers {
		remove, _ := c.facts.containers(want.Hard, true)
		if err = p.containers(ctx, remove, 0); p.enough() || stuck(ctx, err) {
			return err
		}
		// The list is older than what was removed; what images are needed by has
		// only become less.
	}
	if want.Device == on.Images && !p.enough() {
		err = errors.Join(err, c.reclaimImages(ctx, p, place{want.Device, p.Unit}))
	}
	return err
}

// reclaimImages removes images until the target of the pass is reached.
func (c *Collector) reclaimImages(ctx context.Context, p *pass, at place) error {
	if off := c.imagesOff(); off != "" {
		p.Text = off
		return nil
	}
	if until := c.resting(at); !until.IsZero() {
		p.Text = fmt.Sprintf("no images are removed until %s, because removing them freed nothing; %s", until.UTC().Format(time.RFC3339), c.consumers(at))
		return nil
	}
	x, err := c.facts.images(ctx)
	if err != nil {
		return fmt.Errorf("which images are needed is not known, none was removed: %w", err)
	}
	c.saveUses()
	remove, keep := c.facts.plan(x)
	err = p.images(ctx, remove, x.ids)
	switch {
	case p.enough():
		c.rested(at)
	case p.gaveUp:
		until := c.goToRest(at)
		p.Text = fmt.Sprintf("the last %d images removed freed nothing, so no more are until %s; %s", fruitlessMost, until.UTC().Format(time.RFC3339), c.consumers(at))
	default:
		p.Text = fmt.Sprintf("%d of %d images are unused and may be removed; %s", len(remove), len(remove)+len(keep), c.consumers(at))
	}
	return err
}

// imagesOff says why no images are removed; empty when they are.
func (c *Collector) imagesOff() string {
	if c.opt.Settings().Configured || c.opt.Kubelet() {
		return ""
	}
	return "image GC is off: there is no sign of a kubelet that would pull an image again, and none of its keys is written"
}

// resting is until when no image is removed for a place; zero when one may be.
func (c *Collector) resting(at place) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rests[at]; r != nil && c.opt.Clock().Before(r.until) {
		return r.until
	}
	return time.Time{}
}

// goToRest begins a rest, each longer than the one before.
func (c *Collector) goToRest(at place) time.Time {
	c.counts.gaveUp()
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rests[at]
	if r == nil {
		r = &rest{wait: restFirst}
		c.rests[at] = r
	} else {
		r.wait = min(2*r.wait, restLongest)
	}
	r.until = c.opt.Clock().Add(r.wait)
	return r.until
}

// rested forgets that removals freed nothing.
func (c *Collector) rested(at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rests, at)
}

// consumersNamed is how many of those who occupy a device are named.
const consumersNamed = 3

// consumers says who occupies a place besides images.
func (c *Collector) consumers(at place) string {
	list := c.opt.Consumers(at.device, at.unit)
	if len(list) == 0 {
		return "no pod is known to have anything there: look for what is no pod's"
	}
	var names []string
	for _, x := range list[:min(consumersNamed, len(list))] {
		names = append(names, x.Name+" "+amount(x.Amount, at.unit))
	}
	return "the largest consumers besides images: " + strings.Join(names, ", ")
}

// amount is a number for people.
func amount(n uint64, unit eviction.Unit) string {
	if unit != eviction.Bytes {
		return fmt.Sprintf("%d %s", n, unit)
	}
	const whole = 1 << 20
	if n > whole {
		n -= n % whole
	}
	return resource.NewQuantity(int64(min(n, 1<<62)), resource.BinarySI).String()
}

// end remembers a pass and says what it did, and that it did nothing only now and
// then.
func (c *Collector) end(p *pass, err error) {
	if err != nil {
		p.Text = strings.TrimPrefix(p.Text+"; "+err.Error(), "; ")
	}
	did := p.Containers+p.Sandboxes+p.Images > 0
	if did || p.Failed > 0 || err != nil || p.Text != "" && p.Why != ForCount {
		c.mu.Lock()
		c.runs = append(c.runs, p.Run)
		c.runs = slices.Delete(c.runs, 0, max(0, len(c.runs)-runsKept))
		c.mu.Unlock()
	}
	log := c.log.WithFields(logrus.Fields{
		"for": p.Why, "path": p.Path, "unit": p.Unit, "containers": p.Containers, "sandboxes": p.Sandboxes, "images": p.Images,
		"failed": p.Failed, "freed": p.Freed, "available": p.Available,
	})
	about := p.Why + " " + p.Path + " " + string(p.Unit)
	short := p.target > 0 && !p.enough()
	switch {
	case err != nil:
		c.say(about, did, func() { log.WithError(err).Warn("garbage collection could not do all it should") })
	case short:
		c.say(about, did, func() { log.Warn("removing what nobody needs is not enough: " + p.Text) })
	case did:
		log.Info("dead containers and unused images were removed")
	}
}

// saveUses writes the uses if they have changed.
func (c *Collector) saveUses() {
	if c.opt.Save == nil {
		return
	}
	all, changed := c.opt.Uses.take()
	if !changed {
		return
	}
	if err := c.opt.Save(all); err != nil {
		c.opt.Uses.again()
		c.say("uses", false, func() {
			c.log.WithError(err).Warn("when images were used is not kept over a restart: all would count as used then")
		})
	}
}

// say calls say unless something was said about it a short while ago; always has it
// said in any case.
func (c *Collector) say(about string, always bool, say func()) {
	c.mu.Lock()
	at, ok := c.said[about]
	now := c.opt.Clock()
	due := always || !ok || now.Sub(at) >= sayAgain
	if due {
		c.said[about] = now
	}
	c.mu.Unlock()
	if due {
		say()
	}
}
