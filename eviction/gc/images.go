package gc

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/cri"
)

// Use is what is known of the use of an image. All times are the node's clock.
type Use struct {
	// FirstSeen is when it was first listed.
	FirstSeen time.Time `json:"firstSeen"`
	// LastUsed is when a container was last created of it, or had it, or mounted
	// it; FirstSeen until then.
	LastUsed time.Time `json:"lastUsed"`
	// LastPulled is when a pull of it last ended.
	LastPulled time.Time `json:"lastPulled,omitzero"`
	// Pulls are the ends of pulls since the last use, the last few of them.
	Pulls []time.Time `json:"pulls,omitempty"`
	// Until is how long it counts as used because it is pulled again and again.
	Until time.Time `json:"until,omitzero"`
}

const (
	// An image that was pulled repulls times within repullWithin and not used is
	// about to be: its pod cannot start for another reason, and would have it
	// pulled again (bugs.md B72). It counts as used for repullKept.
	repulls      = 3
	repullWithin = 15 * time.Minute
	repullKept   = time.Hour
)

// pulled notes the end of a pull.
func (u *Use) pulled(at time.Time) {
	u.LastPulled = at
	u.Pulls = slices.DeleteFunc(append(slices.Clone(u.Pulls), at), func(t time.Time) bool { return at.Sub(t) > repullWithin })
	if len(u.Pulls) >= repulls {
		u.Pulls = slices.Clone(u.Pulls[len(u.Pulls)-repulls:])
		u.Until = at.Add(repullKept)
	}
}

// used notes a use.
func (u *Use) used(at time.Time) {
	u.LastUsed, u.Pulls, u.Until = at, nil, time.Time{}
}

// last is when it was last of any interest, never after now: a clock that was set
// back makes things young, not old.
func (u *Use) last(now time.Time) time.Time {
	last := u.FirstSeen
	for _, t := range []time.Time{u.LastUsed, u.LastPulled} {
		if t.After(last) {
			last = t
		}
	}
	if last.After(now) {
		return now
	}
	return last
}

// ImageRules are the inputs of PlanImages besides the list.
type ImageRules struct {
	Now time.Time
	// MinAge is how long an image must not have been used, pulled or new. MaxAge is
	// after what time without use an image goes whether or not space is short; 0
	// for never.
	MinAge, MaxAge time.Duration
	// Watched is how long all uses have been followed without a break; images that
	// were of interest before that are known by the lists only.
	Watched time.Duration
	// InUse and Sandbox are the IDs of images that containers, also dead ones, and
	// sandboxes need, with the name of one.
	InUse, Sandbox map[string]string
	Keep           AllowList
	// InFlight says that a call about one of these canonical names is under way.
	InFlight func(names []string) bool
	// Use tells what is known of the use of an image.
	Use func(id string) (Use, bool)
}

// ImageStep is an image, with why it goes or stays.
type ImageStep struct {
	ID     string   `json:"id"`
	Names  []string `json:"names"`
	Size   uint64   `json:"size"` // bytes, as the runtime counts them
	Pinned bool     `json:"pinned,omitempty"`
	// LastUsed is its last real use, or when it was first seen.
	LastUsed time.Time `json:"lastUsed,omitzero"`
	// Expired: it was not used for imageMaximumGCAge.
	Expired bool   `json:"expired,omitempty"`
	Why     string `json:"why"`

	firstSeen time.Time
}

// PlanImages says which images may be removed, the one that was not used for the
// longest time first, and why the others stay. An image that is listed more than
// once, under several names, is one.
func PlanImages(images []Image, r ImageRules) (remove, keep []ImageStep) {
	for _, img := range merge(images) {
		step := ImageStep{ID: img.ID, Names: img.Names, Size: img.Size, Pinned: img.Pinned}
		u, seen := r.Use(img.ID)
		if seen {
			step.LastUsed, step.firstSeen = u.LastUsed, u.FirstSeen
		}
		if step.Why = r.stays(&img, &u, seen); step.Why != "" {
			keep = append(keep, step)
			continue
		}
		unused := r.Now.Sub(u.last(r.Now))
		step.Expired = r.MaxAge > 0 && unused > r.MaxAge
		step.Why = fmt.Sprintf("nobody has used it for %s", unused.Round(time.Second))
		remove = append(remove, step)
	}
	slices.SortFunc(remove, func(a, b ImageStep) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.firstSeen.Compare(b.firstSeen), cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(keep, func(a, b ImageStep) int { return cmp.Or(cmp.Compare(a.Why, b.Why), cmp.Compare(a.ID, b.ID)) })
	return remove, keep
}

// merge makes one image of all entries with the same ID: its names are all of
// theirs, and it is pinned if one of them is.
func merge(images []Image) []Image {
	at := make(map[string]int, len(images))
	out := make([]Image, 0, len(images))
	for _, img := range images {
		i, known := at[img.ID]
		if !known {
			at[img.ID] = len(out)
			img.Names = slices.Clone(img.Names)
			out = append(out, img)
			continue
		}
		m := &out[i]
		m.Pinned = m.Pinned || img.Pinned
		m.Size = max(m.Size, img.Size)
		for _, n := range img.Names {
			if !slices.Contains(m.Names, n) {
				m.Names = append(m.Names, n)
			}
		}
	}
	return out
}

// stays says why an image must not be removed; empty when it may be.
func (r *ImageRules) stays(img *Image, u *Use, seen bool) string {
	if img.ID == "" {
		return "it has no ID"
	}
	if img.Pinned {
		return "it is pinned"
	}
	if by, ok := r.Sandbox[img.ID]; ok {
		return "sandboxes are made of it: " + by
	}
	if slices.ContainsFunc(img.Names, pauseName) {
		return "it has the name of a sandbox image"
	}
	if entry, ok := r.Keep.Match(img); ok {
		return fmt.Sprintf("imageAllowList has %q", entry)
	}
	if by, ok := r.InUse[img.ID]; ok {
		return "a container needs it: " + by
	}
	if r.InFlight(canonicalNames(img)) {
		return "it is being pulled, or a container is being created of it"
	}
	if !seen {
		return "it was not seen before"
	}
	if r.Now.Before(u.Until) {
		return "it is pulled again and again: a pod that needs it cannot start"
	}
	return r.young(u)
}

// young says why an image is too young to go.
func (r *ImageRules) young(u *Use) string {
	age := r.Now.Sub(u.last(r.Now))
	switch {
	case age <= 0 || age < r.MinAge:
		return fmt.Sprintf("it is of interest since %s, less than imageMinimumGCAge %s", age.Round(time.Second), r.MinAge)
	case r.Watched < r.MinAge:
		return fmt.Sprintf("uses are followed since %s only, less than imageMinimumGCAge %s", r.Watched.Round(time.Second), r.MinAge)
	}
	return ""
}

// pauseName is the last resort to know a sandbox image by (bugs.md B69): the last
// part of the repository begins with "pause".
func pauseName(name string) bool {
	repository := cri.ImageRepository(name)
	return repository != "" && strings.HasPrefix(path.Base(repository), "pause")
}

// canonicalNames are the ID and all names, as they can be compared.
func canonicalNames(img *Image) []string {
	out := make([]string, 0, 1+len(img.Names))
	out = append(out, img.ID)
	for _, n := range img.Names {
		out = append(out, cri.CanonicalImage(n))
	}
	return out
}
