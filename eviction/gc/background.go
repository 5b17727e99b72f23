package gc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
)

const (
	// listEvery is how often containers are listed: who is dead since when, and
	// whether there are too many. imagesEvery is how often image GC looks, kubelet's
	// period (Kubernetes 1.37, pkg/kubelet/kubelet.go ImageGCPeriod).
	listEvery   = time.Minute
	imagesEvery = 5 * time.Minute
	// backgroundPatience bounds one round.
	backgroundPatience = 30 * time.Minute
	// deadMost is how many containers a runtime has before those that are safe to
	// remove go, whatever the space: kubelet lists all of them every second, and
	// cannot at all once the answer is larger than 16 MiB (bugs.md B79). deadPace
	// is the time between two removals.
	deadMost = 2000
	deadPace = time.Second / 20
	// The watermarks for inodes, in percent used, where those for bytes are not
	// higher (bugs.md B76).
	inodesHigh = 90
	inodesLow  = 85
)

// Run follows what is there and collects in the background until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	defer c.saveUses()
	var imagesAt time.Time
	for {
		images := imagesAt.IsZero() || c.opt.Clock().Sub(imagesAt) >= imagesEvery
		if images {
			imagesAt = c.opt.Clock()
		}
		c.note(c.round(ctx, images))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// note keeps why a round could not do its work.
func (c *Collector) note(err error) {
	text := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		text = err.Error()
		c.say("round", false, func() { c.log.WithError(err).Warn("garbage collection: nothing is removed in the background") })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem = text
}

// round is one background round.
func (c *Collector) round(ctx context.Context, images bool) error {
	ctx, cancel := context.WithTimeout(ctx, backgroundPatience)
	defer cancel()
	back, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer back()
	if err := c.facts.list(ctx); err != nil {
		return err
	}
	err = c.tooMany(ctx)
	if images {
		err = errors.Join(err, c.watermarks(ctx))
	}
	c.saveUses()
	return err
}

// tooMany removes the oldest containers that are safe to remove while there are
// more than deadMost.
func (c *Collector) tooMany(ctx context.Context) error {
	over := len(c.facts.listing.Containers) - deadMost
	if over < 0 || !c.opt.Acts() {
		return nil
	}
	remove, _ := c.facts.containers(false, true)
	remove = slices.DeleteFunc(remove, func(s ContainerStep) bool { return s.Kind == KindSandbox })
	remove = remove[:min(over+1, len(remove))]
	p := &pass{c: c, Run: Run{Time: c.opt.Clock().UTC(), Why: ForCount, Unit: eviction.Bytes}}
	if on, err := c.opt.Devices(ctx); err == nil {
		p.Path = on.ContainersPath
	}
	err := p.containers(ctx, remove, deadPace)
	if len(remove) <= over {
		p.Text = fmt.Sprintf("there are %d containers, and only %d can be removed safely", len(c.facts.listing.Containers), len(remove))
	}
	c.end(p, err)
	return err
}

// watermarks is image GC as kubelet has it: images that are too old go, and above
// the high watermark those that were not used for the longest time, down to the
// low one.
func (c *Collector) watermarks(ctx context.Context) error {
	x, err := c.facts.images(ctx)
	if err != nil {
		return fmt.Errorf("which images are needed is not known: %w", err)
	}
	set := c.opt.Settings()
	if c.imagesOff() != "" || !c.opt.Acts() {
		return nil
	}
	on, err := c.opt.Devices(ctx)
	if err != nil {
		return fmt.Errorf("where images lie is not known: %w", err)
	}
	remove, keep := c.facts.plan(x)
	c.counts.images(len(remove), len(keep))
	if expired := slices.DeleteFunc(slices.Clone(remove), func(s ImageStep) bool { return !s.Expired }); len(expired) > 0 {
		p := &pass{c: c, Run: Run{Time: c.opt.Clock().UTC(), Why: ForAge, Unit: eviction.Bytes, Path: on.ImagesPath}}
		err = p.look(ctx)
		if err == nil {
			err = p.images(ctx, expired, x.ids)
		}
		c.end(p, err)
		if err != nil {
			return err
		}
	}
	for _, unit := range []eviction.Unit{eviction.Bytes, eviction.Inodes} {
		fs, err := c.opt.Filesystem(ctx, on.ImagesPath)
		if err != nil {
			return fmt.Errorf("how full the images' file system is is not known: %w", err)
		}
		target, above := watermark(&fs, unit, set.High, set.Low)
		if !above {
			continue
		}
		p := &pass{c: c, Run: Run{Time: c.opt.Clock().UTC(), Why: ForWatermark, Unit: unit, Path: on.ImagesPath}, target: target}
		err = p.look(ctx)
		if err == nil {
			err = c.reclaimImages(ctx, p, place{on.Images, unit})
		}
		c.end(p, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// watermark says whether the file system is above the high watermark, and how much
// has to be available for the low one. High 100 is off. For bytes it is kubelet's
// (Kubernetes 1.37, pkg/kubelet/images/image_gc_manager.go GarbageCollect), except
// that space which only root may use counts as used; inodes have watermarks of
// their own where those are higher.
func watermark(fs *cgroupfs.Filesystem, unit eviction.Unit, high, low int) (target uint64, above bool) {
	if high >= 100 {
		return 0, false
	}
	available, capacity := fs.Available, fs.Capacity
	if unit == eviction.Inodes {
		available, capacity = fs.InodesFree, fs.Inodes
		high, low = max(high, inodesHigh), max(low, inodesLow)
	}
	if capacity == 0 || available > capacity || capacity > math.MaxUint64/100 {
		return 0, false
	}
	used := 100 - int(available*100/capacity)
	return capacity * uint64(100-low) / 100, used >= high
}
