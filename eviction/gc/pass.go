package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/eviction"
)

const (
	// removePatience bounds one removal (bugs.md B77).
	removePatience = 30 * time.Second
	// reserveFor is how long the proxy keeps an image reserved at most: the removal
	// and what it may be late.
	reserveFor = removePatience + 10*time.Second
	// settleLong is how long space that a removal frees may take to show where the
	// runtime cleans up in the background, settleShort where it was seen to do so
	// before it answers.
	settleLong  = 5 * time.Second
	settleShort = 300 * time.Millisecond
	settleFirst = 20 * time.Millisecond
	settleStep  = 500 * time.Millisecond
	// fruitlessMost is after how many removals in a row that freed nothing no more
	// are made: the space is somebody else's, or the runtime does not give it back.
	fruitlessMost = 5
	// listedLately is how old the list may be that says that nobody has an image,
	// where the proxy answers for at least quietLeast before the removal.
	listedLately = 30 * time.Second
	quietLeast   = time.Minute
)

// Less than this freed is nothing: others write and delete meanwhile.
const (
	leastBytes  = 256 << 10
	leastInodes = 16
)

// Why something is removed.
const (
	ForPressure  = "pressure"  // a threshold is met
	ForWatermark = "watermark" // imageGCHighThresholdPercent
	ForAge       = "age"       // imageMaximumGCAge
	ForCount     = "count"     // too many dead containers
)

// Run is what one pass did.
type Run struct {
	Time time.Time     `json:"time"`
	Why  string        `json:"why"`
	Unit eviction.Unit `json:"unit"`
	Path string        `json:"path,omitempty"`
	// Available is what was available at the end, Freed by how much it rose, both
	// in Unit.
	Available  uint64 `json:"available"`
	Freed      uint64 `json:"freed"`
	Containers int    `json:"containers"`
	Sandboxes  int    `json:"sandboxes"`
	Images     int    `json:"images"`
	Failed     int    `json:"failed,omitempty"`
	Text       string `json:"text,omitempty"`
}

// pass is one removal of several things.
type pass struct {
	c *Collector
	Run
	// target is what has to be available; 0: all that is planned goes.
	target uint64
	start  uint64
	looked bool
	prompt bool // the runtime frees before it answers
	// fruitless removals in a row; gaveUp after too many.
	fruitless int
	gaveUp    bool
}

// least is what counts as freed.
func (p *pass) least() uint64 {
	if p.Unit == eviction.Inodes {
		return leastInodes
	}
	return leastBytes
}

// look reads what is available.
func (p *pass) look(ctx context.Context) error {
	if p.Path == "" {
		return nil // nothing is measured then, and there is no target
	}
	fs, err := p.c.opt.Filesystem(ctx, p.Path)
	if err != nil {
		return fmt.Errorf("what is available is not known: %w", err)
	}
	p.Available = fs.Available
	if p.Unit == eviction.Inodes {
		p.Available = fs.InodesFree
	}
	if !p.looked {
		p.start, p.looked = p.Available, true
	}
	p.Freed = p.Available - min(p.Available, p.start)
	return nil
}

// enough says whether the target is reached.
func (p *pass) enough() bool { return p.target > 0 && p.Available >= p.target }

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// settle waits until what a removal freed has shown: it rises and then stands
// still. before is what was available before the removal.
func (p *pass) settle(ctx context.Context, before uint64) (freed uint64, err error) {
	limit := settleLong
	if p.prompt {
		limit = settleShort
	}
	end := p.c.opt.Clock().Add(limit)
	var last uint64
	for wait, looks := settleFirst, 0; ; looks++ {
		if err := p.look(ctx); err != nil {
			return 0, err
		}
		rose := p.Available >= before+p.least()
		if rose && looks == 0 {
			p.prompt = true
		}
		if p.enough() || rose && looks > 0 && p.Available <= last || !p.c.opt.Clock().Before(end) {
			return p.Available - min(p.Available, before), nil
		}
		last = p.Available
		if err := pause(ctx, wait); err != nil {
			return p.Available - min(p.Available, before), err
		}
		wait = min(2*wait, settleStep)
	}
}

// containers removes them one after the other, and with them the sandboxes that
// are empty then. pace is the least time between two.
func (p *pass) containers(ctx context.Context, steps []ContainerStep, pace time.Duration) error {
	removed := map[string]bool{}
	before := p.Available
	done := 0
	for i := range steps {
		s := &steps[i]
		if p.enough() {
			return nil
		}
		if !ready(s, removed) || !p.c.opt.Acts() {
			continue
		}
		if done > 0 && pace > 0 {
			if err := pause(ctx, pace); err != nil {
				return err
			}
		}
		if err := p.removeContainer(ctx, s); err != nil {
			if stuck(ctx, err) {
				return err
			}
			continue
		}
		done++
		removed[s.ID] = true
		if err := p.look(ctx); err != nil {
			return err
		}
	}
	if done == 0 || p.target == 0 {
		return nil
	}
	_, err := p.settle(ctx, before)
	return err
}

// ready says whether what is in a sandbox has been removed.
func ready(s *ContainerStep, removed map[string]bool) bool {
	for _, id := range s.needs {
		if !removed[id] {
			return false
		}
	}
	return true
}

// stuck says whether it makes no sense to go on with the next one: we end, or the
// runtime does not answer.
func stuck(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
}

// removeContainer removes one container or sandbox.
func (p *pass) removeContainer(ctx context.Context, s *ContainerStep) error {
	one, cancel := context.WithTimeout(ctx, removePatience)
	defer cancel()
	remove := p.c.opt.Runtime.RemoveContainer
	if s.Kind == KindSandbox {
		remove = p.c.opt.Runtime.RemoveSandbox
	}
	err := remove(one, s.ID)
	p.c.counts.removed(s.Kind, p.Why, err)
	log := p.c.log.WithFields(logrus.Fields{"pod": s.Pod.String(), "uid": s.Pod.UID, "id": s.ID, "attempt": s.Attempt, "because": s.Why})
	if s.Kind == KindContainer {
		log = log.WithField("container", s.Name)
	}
	if err != nil {
		p.Failed++
		log.WithError(err).Warnf("a dead %s could not be removed", s.Kind)
		return errors.Join(err, one.Err())
	}
	log.Debugf("dead %s removed", s.Kind)
	if s.Kind == KindSandbox {
		p.Sandboxes++
	} else {
		p.Containers++
	}
	return nil
}

// errNoProxy ends a pass over images that relied on a proxy.
var errNoProxy = errors.New("the proxy does not say which images are wanted")

// images removes them one after the other until enough is available. ids are the
// names of all images, those that stay as well.
func (p *pass) images(ctx context.Context, steps []ImageStep, ids map[string]string) error {
	_, linked := p.c.opt.Uses.Watched()
	for i := range steps {
		if p.enough() || p.gaveUp || !p.c.opt.Acts() {
			return nil
		}
		before := p.Available
		removed, err := p.image(ctx, &steps[i], ids, linked)
		if err != nil {
			return err
		}
		if !removed {
			continue
		}
		freed, err := p.settle(ctx, before)
		p.c.log.WithFields(logrus.Fields{
			"image": steps[i].ID, "names": steps[i].Names, "size": steps[i].Size, "lastUsed": steps[i].LastUsed.UTC().Format(time.RFC3339),
			"freed": freed, "unit": p.Unit, "for": p.Why,
		}).Info("unused image removed")
		if err != nil {
			return err
		}
		if p.target == 0 {
			continue
		}
		if p.fruitless++; freed >= p.least() {
			p.fruitless = 0
		}
		p.gaveUp = p.fruitless >= fruitlessMost && !p.enough()
	}
	return nil
}

// image removes one; false when somebody turned out to want it, or when it could
// not be removed. An error ends the pass.
func (p *pass) image(ctx context.Context, s *ImageStep, ids map[string]string, linked bool) (removed bool, err error) {
	c := p.c
	names := canonicalNames(&Image{ID: s.ID, Names: s.Names})
	quiet, lately := c.opt.Settings().MinAge, listedLately
	if quiet < quietLeast {
		lately = 0
	}
	release, err := c.opt.Reservations.Reserve(ctx, names, quiet, reserveFor)
	switch {
	case err == nil:
		defer release()
	case errors.Is(err, ErrWanted):
		c.log.WithField("image", s.ID).Debug("an image is wanted and stays")
		return false, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case linked:
		return false, fmt.Errorf("%w: %w", errNoProxy, err)
	default:
		lately = 0 // nobody tells of what came since
	}
	if lately == 0 || c.opt.Clock().Sub(c.facts.listedAt) > lately {
		if err := c.facts.list(ctx); err != nil {
			return false, err
		}
		used, err := c.facts.used(ctx, ids)
		if err != nil {
			return false, err
		}
		if _, wanted := used[s.ID]; wanted {
			return false, nil
		}
	}
	one, cancel := context.WithTimeout(ctx, removePatience)
	defer cancel()
	err = c.opt.Runtime.RemoveImage(one, s.ID)
	c.counts.removed(KindImage, p.Why, err)
	if err != nil {
		p.Failed++
		c.log.WithError(err).WithFields(logrus.Fields{"image": s.ID, "names": s.Names}).Warn("an unused image could not be removed")
		if stuck(one, err) {
			return false, errors.Join(err, one.Err())
		}
		return false, nil
	}
	c.opt.Uses.Removed(s.ID)
	p.Images++
	return true, nil
}
