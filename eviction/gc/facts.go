package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// facts are what the Collector has learned and does not ask for again. They belong
// to whoever has the turn.
type facts struct {
	opt *Options
	// asks bounds the calls for single containers and sandboxes (bugs.md B82).
	asks *rate.Limiter
	// dead is when a container was first seen to be over, mounted what each mounts,
	// made what each sandbox was made of.
	dead    map[string]time.Time
	mounted map[string][]string
	made    map[string]string
	// listing is the last one, listedAt when it was asked for.
	listing  Listing
	listedAt time.Time
}

// asksPerSecond bounds the calls for single containers and sandboxes; what they
// tell does not change, so that each costs one.
const asksPerSecond = 50

func newFacts(opt *Options) *facts {
	return &facts{
		opt: opt, asks: rate.NewLimiter(asksPerSecond, asksPerSecond),
		dead: map[string]time.Time{}, mounted: map[string][]string{}, made: map[string]string{},
	}
}

// list asks for all sandboxes and containers.
func (f *facts) list(ctx context.Context) error {
	at := f.opt.Clock()
	l, err := f.opt.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing sandboxes and containers: %w", err)
	}
	f.listing, f.listedAt = l, at
	containers := make(map[string]bool, len(l.Containers))
	for i := range l.Containers {
		c := &l.Containers[i]
		containers[c.ID] = true
		if _, known := f.dead[c.ID]; c.State == Exited && !known {
			f.dead[c.ID] = at
		}
	}
	sandboxes := make(map[string]bool, len(l.Sandboxes))
	for i := range l.Sandboxes {
		sandboxes[l.Sandboxes[i].ID] = true
	}
	maps.DeleteFunc(f.dead, func(id string, _ time.Time) bool { return !containers[id] })
	maps.DeleteFunc(f.mounted, func(id string, _ []string) bool { return !containers[id] })
	maps.DeleteFunc(f.made, func(id string, _ string) bool { return !sandboxes[id] })
	return nil
}

// containers plans the containers of the last list.
func (f *facts) containers(hard, finished bool) (remove, keep []ContainerStep) {
	now := f.opt.Clock()
	return PlanContainers(&f.listing, ContainerRules{
		Now: now, Hard: hard, Finished: finished, Pod: f.pods(),
		DeadFor: func(id string) time.Duration {
			since, known := f.dead[id]
			if !known {
				return 0
			}
			return now.Sub(since)
		},
	})
}

// pods returns what tells of a pod what is known of it besides the lists.
func (f *facts) pods() func(uid string) PodState {
	pods, held := f.opt.Pods(), f.opt.Held()
	return func(uid string) PodState {
		s := PodState{Gone: f.opt.Gone(uid), Held: held[uid]}
		if p, ok := pods.Pod(uid); ok {
			s.Static, s.Finished = p.Static(), finishedBy(p.Facts())
		} else {
			// What the inventory does not have may be static.
			s.Static = true
		}
		return s
	}
}

// finishedBy says whether Kubernetes itself says that the pod is over.
func finishedBy(p *inventory.PodFacts) bool { return p.Spec != "" && p.Finished }

// errNoImage is a container that does not say what image it has: nobody knows then
// which one is needed.
var errNoImage = errors.New("a container does not say which image it has")

// imageFacts are what images are judged by.
type imageFacts struct {
	images         []Image
	ids            map[string]string // canonical name → ID
	inUse, sandbox map[string]string // by ID
}

// images asks for all images and finds those that are needed by the last list of
// containers. Any error means that none may be removed.
func (f *facts) images(ctx context.Context) (*imageFacts, error) {
	images, err := f.opt.Runtime.Images(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	out := &imageFacts{images: images, ids: map[string]string{}, sandbox: map[string]string{}}
	for i := range images {
		for _, n := range canonicalNames(&images[i]) {
			out.ids[n] = images[i].ID
		}
	}
	f.opt.Uses.Listed(images)
	if out.inUse, err = f.used(ctx, out.ids); err != nil {
		return nil, err
	}
	f.opt.Uses.InUse(out.inUse)
	return out, f.sandboxImages(ctx, out)
}

// used finds the images that containers have, also dead ones, or mount.
func (f *facts) used(ctx context.Context, ids map[string]string) (map[string]string, error) {
	used := map[string]string{}
	asked := map[string]string{} // names that no list has, with the ID the runtime finds
	for i := range f.listing.Containers {
		c := &f.listing.Containers[i]
		found, named := false, false
		for _, name := range c.Images {
			if name == "" {
				continue
			}
			named = true
			if id, ok := ids[cri.CanonicalImage(name)]; ok {
				used[id], found = c.Name, true
			}
		}
		if !named {
			return nil, fmt.Errorf("container %s: %w", c.ID, errNoImage)
		}
		if found {
			continue
		}
		for _, name := range c.Images {
			id, err := f.resolve(ctx, name, asked)
			if err != nil {
				return nil, err
			}
			if id != "" {
				used[id] = c.Name
			}
		}
	}
	for _, c := range f.mayMount() {
		names, err := f.mounts(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			id, ok := ids[cri.CanonicalImage(name)]
			if !ok {
				if id, err = f.resolve(ctx, name, asked); err != nil {
					return nil, err
				}
			}
			if id != "" {
				used[id] = c.Name + " mounts it"
			}
		}
	}
	return used, nil
}

// mayMount are the containers whose image volumes are needed: those that are not
// over, and the newest of each name in a pod that is not, which may be started
// again.
func (f *facts) mayMount() []*Container {
	type unit struct{ pod, name string }
	known := f.pods()
	pods := make(map[string]string, len(f.listing.Sandboxes))
	for i := range f.listing.Sandboxes {
		pods[f.listing.Sandboxes[i].ID] = f.listing.Sandboxes[i].Pod.UID
	}
	newest := map[unit]*Container{}
	for i := range f.listing.Containers {
		c := &f.listing.Containers[i]
		u := unit{pods[c.SandboxID], c.Name}
		if n := newest[u]; n == nil || c.Created.After(n.Created) {
			newest[u] = c
		}
	}
	var out []*Container
	for i := range f.listing.Containers {
		c := &f.listing.Containers[i]
		uid := pods[c.SandboxID]
		if c.State == Exited {
			if newest[unit{uid, c.Name}] != c {
				continue
			}
			if s := known(uid); !s.Static && (s.Gone || s.Finished) {
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

// mounts are the images that a container mounts; asked for once.
func (f *facts) mounts(ctx context.Context, id string) ([]string, error) {
	if names, known := f.mounted[id]; known {
		return names, nil
	}
	if err := f.asks.Wait(ctx); err != nil {
		return nil, err
	}
	names, err := f.opt.Runtime.MountedImages(ctx, id)
	if err != nil && !errors.Is(err, ErrNoSuch) {
		return nil, fmt.Errorf("image volumes: %w", err)
	}
	f.mounted[id] = names
	return names, nil
}

// sandboxImages finds the images sandboxes are made of: by the runtime's
// configuration, and by the sandboxes there are.
func (f *facts) sandboxImages(ctx context.Context, out *imageFacts) error {
	names, err := f.opt.Runtime.ConfiguredSandboxImages(ctx)
	if err != nil {
		return fmt.Errorf("sandbox image of the runtime's configuration: %w", err)
	}
	by := map[string]string{}
	for _, n := range names {
		by[n] = "the runtime's configuration"
	}
	for i := range f.listing.Sandboxes {
		s := &f.listing.Sandboxes[i]
		if !s.Ready {
			continue
		}
		name, known := f.made[s.ID]
		if !known {
			if err := f.asks.Wait(ctx); err != nil {
				return err
			}
			name, err = f.opt.Runtime.SandboxImage(ctx, s.ID)
			if err != nil && !errors.Is(err, ErrNoSuch) {
				return fmt.Errorf("sandbox image: %w", err)
			}
			f.made[s.ID] = name
		}
		by[name] = s.Pod.String()
	}
	delete(by, "")
	asked := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		id, ok := out.ids[cri.CanonicalImage(name)]
		if !ok {
			if id, err = f.resolve(ctx, name, asked); err != nil {
				return err
			}
		}
		if id != "" {
			out.sandbox[id] = by[name]
		}
	}
	return nil
}

// resolve asks the runtime for an image by a name that no list has.
func (f *facts) resolve(ctx context.Context, name string, asked map[string]string) (string, error) {
	if id, ok := asked[name]; ok || name == "" {
		return id, nil
	}
	if err := f.asks.Wait(ctx); err != nil {
		return "", err
	}
	id, err := f.opt.Runtime.ResolveImage(ctx, name)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", name, err)
	}
	asked[name] = id
	return id, nil
}

const (
	// unlinkedAge is the least age of an image while the proxy is not followed:
	// pulls and creations under way are not seen then, and both are over by this.
	unlinkedAge = 10 * time.Minute
)

// plan judges the images.
func (f *facts) plan(x *imageFacts) (remove, keep []ImageStep) {
	set := f.opt.Settings()
	watched, linked := f.opt.Uses.Watched()
	r := ImageRules{
		Now: f.opt.Clock(), MinAge: set.MinAge, MaxAge: set.MaxAge, Watched: watched, InUse: x.inUse, Sandbox: x.sandbox,
		Keep: set.Keep, InFlight: f.opt.Uses.InFlight, Use: f.opt.Uses.Use,
	}
	if !linked {
		r.MinAge = max(r.MinAge, unlinkedAge)
	}
	return PlanImages(x.images, r)
}
