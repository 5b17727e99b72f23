package gc

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Plan is what would be removed under pressure, and why the rest stays.
type Plan struct {
	Time time.Time `json:"time"`
	// ContainersGo and ImagesGo are in the order in which they would be removed,
	// until enough is free.
	ContainersGo   []ContainerStep `json:"containersGo"`
	ContainersStay []ContainerStep `json:"containersStay"`
	ImagesGo       []ImageStep     `json:"imagesGo"`
	ImagesStay     []ImageStep     `json:"imagesStay"`
	// ImagesOff says why no images are removed; ImagesProblem why it is not known
	// which may be, so that none is.
	ImagesOff     string `json:"imagesOff,omitempty"`
	ImagesProblem string `json:"imagesProblem,omitempty"`
	// Acts is false while nothing is removed at all: in mode observe and in a pause.
	Acts bool `json:"acts"`
	// Watched is how long uses of images have been followed without a break, ns;
	// Linked says that it is through the proxy.
	Watched time.Duration `json:"watched"`
	Linked  bool          `json:"linked"`
	// Problem is why the last round in the background could not do its work.
	Problem string `json:"problem,omitempty"`
	// Runs are the last passes, the newest first.
	Runs []Run `json:"runs"`
}

// planPatience is how long a plan waits for a pass that is under way.
const planPatience = time.Second

// Plan says what a hard threshold would have removed now, without removing
// anything.
func (c *Collector) Plan(ctx context.Context) (Plan, error) {
	turn, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	back, err := c.take(turn)
	if err != nil {
		return Plan{}, fmt.Errorf("something is being removed just now: %w", err)
	}
	defer back()
	out := Plan{
		Time: c.opt.Clock().UTC(), Acts: c.opt.Acts(), ImagesOff: c.imagesOff(),
		ContainersGo: []ContainerStep{}, ContainersStay: []ContainerStep{}, ImagesGo: []ImageStep{}, ImagesStay: []ImageStep{}, Runs: []Run{},
	}
	out.Watched, out.Linked = c.opt.Uses.Watched()
	c.mu.Lock()
	out.Problem = c.problem
	c.mu.Unlock()
	out.Runs = append(out.Runs, c.Runs()...)
	if err := c.facts.list(ctx); err != nil {
		return Plan{}, err
	}
	remove, keep := c.facts.containers(true, true)
	out.ContainersGo, out.ContainersStay = append(out.ContainersGo, remove...), append(out.ContainersStay, keep...)
	x, err := c.facts.images(ctx)
	if err != nil {
		out.ImagesProblem = err.Error()
		return out, nil
	}
	images, stay := c.facts.plan(x)
	out.ImagesGo, out.ImagesStay = append(out.ImagesGo, images...), append(out.ImagesStay, stay...)
	return out, nil
}

// Runs are the last passes that did something or could not, the newest first.
func (c *Collector) Runs() []Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.runs)
	slices.Reverse(out)
	return out
}
