package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/cri-evictd/cri-evictd/cri"
)

const (
	// reserveLongest bounds how long pulls and creations may have to wait for a
	// removal: an evictor that has died keeps nobody waiting for longer.
	reserveLongest = 45 * time.Second
	// wantedKept is how long it is remembered that somebody asked for an image,
	// wantedMost how many are.
	wantedKept = time.Hour
	wantedMost = 4096
	// nameLongest bounds the names that are remembered; no registry takes longer
	// ones.
	nameLongest = 1024
)

// images knows which images calls under way and calls of late were about, and has
// pulls and creations wait while the evictor removes their image.
type images struct {
	mu       sync.Mutex
	began    time.Time            // since when nothing was missed
	active   map[string]int       // canonical name → calls under way
	pulls    map[string]int       // repository → pulls under way
	wanted   map[string]time.Time // canonical name → when it was last asked for
	reserved map[string]*reservation
	// before is closed when the process before this one has finished its calls,
	// which are not known here; nil: there is none, or it has.
	before <-chan struct{}
}

// reservation is an image that is being removed.
type reservation struct {
	names        map[string]struct{} // canonical
	repositories map[string]struct{}
	over         chan struct{} // closed at its end
	end          *time.Timer
}

func newImages() *images {
	return &images{
		began: time.Now(), active: map[string]int{}, pulls: map[string]int{}, wanted: map[string]time.Time{}, reserved: map[string]*reservation{},
	}
}

// imageCall is a call that needs images: names as they were written.
type imageCall struct {
	names []string
	pull  bool
}

// add notes a name of the call.
func (c *imageCall) add(names ...string) {
	for _, n := range names {
		if n != "" && len(n) <= nameLongest {
			c.names = append(c.names, cri.CanonicalImage(n))
		}
	}
}

// begin notes a call under way. While one of its images is being removed it waits
// for the end of that, and not longer than ctx.
func (m *images) begin(ctx context.Context, c *imageCall) {
	m.whenFree(ctx, c, func() {
		for _, n := range c.names {
			m.active[n]++
			if c.pull {
				m.pulls[cri.ImageRepository(n)]++
			}
		}
	})
}

// whenFree calls note, with mu held, as soon as none of the call's images is being
// removed, or ctx has ended.
func (m *images) whenFree(ctx context.Context, c *imageCall, note func()) {
	for {
		m.mu.Lock()
		r := m.removing(c)
		if r == nil || ctx.Err() != nil {
			note()
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		select {
		case <-r.over:
		case <-ctx.Done():
		}
	}
}

// removing finds the removal that the call would overlap; mu is held. A pull also
// waits for other images of its repository: its tag may lead to one of them.
func (m *images) removing(c *imageCall) *reservation {
	for _, r := range m.reserved {
		for _, n := range c.names {
			if _, ok := r.names[n]; ok {
				return r
			}
			if _, ok := r.repositories[cri.ImageRepository(n)]; ok && c.pull {
				return r
			}
		}
	}
	return nil
}

// end notes the end of a call that began. more is what else its image is called.
func (m *images) end(c *imageCall, more ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range c.names {
		drop(m.active, n)
		if c.pull {
			drop(m.pulls, cri.ImageRepository(n))
		}
	}
	m.want(c.names)
	also := imageCall{}
	also.add(more...)
	m.want(also.names)
}

// drop takes one off a count.
func drop(counts map[string]int, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// missed says that a call may be about any image.
func (m *images) missed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = time.Now()
}

// asked notes that somebody asks about images: kubelet does before it creates a
// container of one. While that is being removed it waits for the end, and not longer
// than ctx: who is told that it is there does not pull it.
func (m *images) asked(ctx context.Context, c *imageCall) {
	m.whenFree(ctx, c, func() { m.want(c.names) })
}

// want remembers the names; mu is held. When there are too many the older half
// goes.
func (m *images) want(names []string) {
	now := time.Now()
	for _, n := range names {
		m.wanted[n] = now
	}
	for age := wantedKept; len(m.wanted) > wantedMost && age > time.Second; age /= 2 {
		for n, at := range m.wanted {
			if now.Sub(at) > age {
				delete(m.wanted, n)
			}
		}
	}
}

// reserve keeps everybody from pulling and using an image that is called so, for
// limit at most; the token ends it. ErrImageWanted: a call under way is about it,
// or one within quiet was, or this proxy does not know what was then.
func (m *images) reserve(names []string, quiet, limit time.Duration) (token string, err error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return "", fmt.Errorf("a token for the reservation: %w", err)
	}
	r := &reservation{names: map[string]struct{}{}, repositories: map[string]struct{}{}, over: make(chan struct{})}
	for _, n := range names {
		r.names[cri.CanonicalImage(n)] = struct{}{}
		if repository := cri.ImageRepository(n); repository != "" {
			r.repositories[repository] = struct{}{}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.before != nil {
		select {
		case <-m.before:
			m.before, m.began = nil, now
		default:
			return "", fmt.Errorf("%w: the process before this one has not finished its calls", ErrImageWanted)
		}
	}
	if watched := now.Sub(m.began); watched < quiet {
		return "", fmt.Errorf("%w: this proxy has been watching for %s only", ErrImageWanted, watched.Round(time.Second))
	}
	for n := range r.names {
		if m.active[n] > 0 {
			return "", fmt.Errorf("%w: a call about %s is under way", ErrImageWanted, n)
		}
		if at, ok := m.wanted[n]; ok && now.Sub(at) < quiet {
			return "", fmt.Errorf("%w: %s was asked for %s ago", ErrImageWanted, n, now.Sub(at).Round(time.Second))
		}
	}
	for repository := range r.repositories {
		if m.pulls[repository] > 0 {
			return "", fmt.Errorf("%w: a pull from %s is under way", ErrImageWanted, repository)
		}
	}
	token = hex.EncodeToString(id)
	m.reserved[token] = r
	r.end = time.AfterFunc(min(limit, reserveLongest), func() { m.release(token) })
	return token, nil
}

// release ends a reservation; one that is over has ended.
func (m *images) release(token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.reserved[token]; ok {
		delete(m.reserved, token)
		r.end.Stop()
		close(r.over)
	}
}

// releaseAll ends all reservations: calls that wait must not hold up our own end.
func (m *images) releaseAll() {
	m.mu.Lock()
	tokens := make([]string, 0, len(m.reserved))
	for t := range m.reserved {
		tokens = append(tokens, t)
	}
	m.mu.Unlock()
	for _, t := range tokens {
		m.release(t)
	}
}
