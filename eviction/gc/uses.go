package gc

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cri-evictd/cri-evictd/cri"
)

// Uses follows the real use of images: what passes through the proxy, and what the
// runtime's lists say. Its methods may be called from any goroutine.
type Uses struct {
	clock func() time.Time

	mu      sync.Mutex
	byID    map[string]Use
	ids     map[string]string // canonical name → ID, of the last list
	waiting map[string]mark   // canonical names that no list had yet
	flights map[string]int    // canonical names of calls under way
	linked  time.Time         // since when the proxy's events are followed; zero: they are not
	started time.Time
	changed bool
}

// mark is what happened to an image whose ID is not known yet.
type mark struct{ used, pulled time.Time }

const (
	// marksKept bounds the names that wait for a list, markKept how long they do.
	marksKept = 1024
	markKept  = time.Hour
)

// NewUses begins with what an earlier process knew.
func NewUses(known map[string]Use, clock func() time.Time) *Uses {
	u := &Uses{
		clock: clock, byID: maps.Clone(known), ids: map[string]string{}, waiting: map[string]mark{}, flights: map[string]int{},
		started: clock(),
	}
	if u.byID == nil {
		u.byID = map[string]Use{}
	}
	return u
}

// Linked says that the proxy's events are followed from now on. What was under
// way before is not known.
func (u *Uses) Linked() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.linked, u.flights = u.clock(), map[string]int{}
}

// Unlinked says that the proxy's events are not followed any more.
func (u *Uses) Unlinked() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.linked, u.flights = time.Time{}, map[string]int{}
}

// Watched is how long uses have been followed without a break: through the proxy,
// or, linked false, by lists only.
func (u *Uses) Watched() (d time.Duration, linked bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.linked.IsZero() {
		return u.clock().Sub(u.started), false
	}
	return u.clock().Sub(u.linked), true
}

// Begin says that a pull, or a creation with these images, is under way.
func (u *Uses) Begin(names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range names {
		if n != "" {
			u.flights[cri.CanonicalImage(n)]++
		}
	}
}

// Created says that the creation of a container with these images is over.
func (u *Uses) Created(ok bool, names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock()
	for _, n := range names {
		u.endLocked(n)
		if ok && n != "" {
			u.markLocked(n, mark{used: now})
		}
	}
}

// Pulled says that a pull is over. id is what the runtime said the image is, which
// is an ID or another name of it.
func (u *Uses) Pulled(ok bool, name, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endLocked(name)
	if !ok {
		return
	}
	if _, known := u.byID[id]; known || name == "" {
		name = id
	}
	if name != "" {
		u.markLocked(name, mark{pulled: u.clock()})
	}
}

func (u *Uses) endLocked(name string) {
	n := cri.CanonicalImage(name)
	if u.flights[n]--; u.flights[n] <= 0 {
		delete(u.flights, n)
	}
}

// markLocked notes what happened to the image of this name.
func (u *Uses) markLocked(name string, m mark) {
	canonical := cri.CanonicalImage(name)
	id := name
	if known, ok := u.ids[canonical]; ok {
		id = known
	}
	if _, ok := u.byID[id]; ok {
		u.applyLocked(id, m)
		if m.used.IsZero() && canonical != id {
			// The name may have moved to another image with this pull.
			u.waitLocked(canonical, m)
		}
		return
	}
	u.waitLocked(canonical, m)
}

func (u *Uses) waitLocked(canonical string, m mark) {
	old := u.waiting[canonical]
	if m.used.IsZero() {
		m.used = old.used
	}
	if m.pulled.IsZero() {
		m.pulled = old.pulled
	}
	if len(u.waiting) < marksKept || old != (mark{}) {
		u.waiting[canonical] = m
	}
}

func (u *Uses) applyLocked(id string, m mark) {
	use := u.byID[id]
	if !m.pulled.IsZero() && !m.pulled.Equal(use.LastPulled) {
		use.pulled(m.pulled)
	}
	if !m.used.IsZero() {
		use.used(m.used)
	}
	u.byID[id] = use
	u.changed = true
}

// Listed takes a list of all images. One that was never seen before counts as used
// now; what is not listed any more is forgotten.
func (u *Uses) Listed(images []Image) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock()
	listed := make(map[string]bool, len(images))
	u.ids = make(map[string]string, 2*len(images))
	for i := range images {
		img := &images[i]
		listed[img.ID] = true
		if use := u.byID[img.ID]; use.FirstSeen.IsZero() {
			use.FirstSeen, use.LastUsed = now, now
			u.byID[img.ID] = use
			u.changed = true
		}
		for _, n := range canonicalNames(img) {
			u.ids[n] = img.ID
			if m, ok := u.waiting[n]; ok {
				delete(u.waiting, n)
				u.applyLocked(img.ID, m)
			}
		}
	}
	for id := range u.byID {
		if !listed[id] {
			delete(u.byID, id)
			u.changed = true
		}
	}
	maps.DeleteFunc(u.waiting, func(_ string, m mark) bool { return now.Sub(m.used) > markKept && now.Sub(m.pulled) > markKept })
}

// Removed says that an image is gone. If it is listed the next time it was pulled
// anew, and is as young as one that was never there; how often it was pulled is
// still known.
func (u *Uses) Removed(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if use, known := u.byID[id]; known {
		use.FirstSeen, use.LastUsed = time.Time{}, time.Time{}
		u.byID[id] = use
		u.changed = true
	}
}

// InUse says that containers have these images now.
func (u *Uses) InUse(ids map[string]string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock()
	for id := range ids {
		if _, known := u.byID[id]; known {
			u.applyLocked(id, mark{used: now})
		}
	}
}

// Use is what is known of one image.
func (u *Uses) Use(id string) (Use, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	use, ok := u.byID[id]
	return use, ok
}

// InFlight says whether a call about one of these canonical names is under way.
func (u *Uses) InFlight(names []string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(names, func(n string) bool { return u.flights[n] > 0 })
}

// take returns all that is known if it has changed since the last time.
func (u *Uses) take() (all map[string]Use, changed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	changed, u.changed = u.changed, false
	return maps.Clone(u.byID), changed
}

// again has the next take return all once more: it could not be written.
func (u *Uses) again() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = true
}
