package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
)

const gi = 1 << 30

// disk is the device of everything on the machine.
const disk = 7

// release is space that comes back at a time.
type release struct {
	at            time.Time
	bytes, inodes uint64
}

// machine is a runtime with a disk: removals free what they are said to, after a
// while.
type machine struct {
	t *testing.T

	mu       sync.Mutex
	listing  Listing
	images   []Image
	frees    map[string]release         // by ID; at counts for nothing
	lag      time.Duration              // until it shows
	sandbox  []string                   // of the runtime's configuration
	mounted  map[string][]string        // by container
	names    map[string]string          // what ResolveImage knows besides the list
	errs     map[string]error           // by method
	hangs    map[string]bool            // IDs whose removal hangs
	calls    map[string]int             // by method
	removed  []string                   // IDs, in order
	removals map[string]time.Time       // by ID
	onRemove func(id string)            // runs before a removal
	reserve  func(names []string) error // of the proxy
	reserved []string                   // first names of reservations that were not released
	fs       cgroupfs.Filesystem
	coming   []release
	gone     map[string]bool
	held     map[string]bool
	acts     bool
	kubelet  bool
	set      Settings
	use      []Consumer

	uses *Uses
	log  *logrus.Logger
	said *logtest.Hook
	c    *Collector
}

// newMachine has a disk of 100 GiB with this much free, kubelet's settings, and a
// proxy that has been followed for an hour.
func newMachine(t *testing.T, free uint64) *machine {
	m := &machine{
		t: t, frees: map[string]release{}, mounted: map[string][]string{}, names: map[string]string{}, errs: map[string]error{}, hangs: map[string]bool{},
		calls: map[string]int{}, removals: map[string]time.Time{}, gone: map[string]bool{}, held: map[string]bool{}, acts: true, kubelet: true,
		fs:  cgroupfs.Filesystem{Device: disk, Capacity: 100 * gi, Available: free, Free: free, Inodes: 1_000_000, InodesFree: 500_000},
		set: Settings{High: 85, Low: 80, MinAge: 2 * time.Minute},
	}
	m.log, m.said = logtest.NewNullLogger()
	m.uses = NewUses(nil, time.Now)
	m.c = New(Options{
		Runtime: m, Reservations: m, Uses: m.uses, Pods: m.inventory, Gone: func(uid string) bool { return m.gone[uid] },
		Held: func() map[string]bool { return m.held },
		Devices: func(context.Context) (Devices, error) {
			return Devices{Images: disk, Containers: disk, ImagesPath: "/ctd", ContainersPath: "/ctd"}, m.err("Devices")
		},
		Filesystem: m.statfs, Consumers: func(uint64, eviction.Unit) []Consumer { return m.use },
		Acts: func() bool { return m.acts }, Kubelet: func() bool { return m.kubelet }, Settings: func() Settings { return m.set }, Clock: time.Now,
	}, m.log)
	m.uses.Linked()
	time.Sleep(time.Hour)
	return m
}

// bubble runs a test in a time of its own.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

func (m *machine) inventory() *inventory.Snapshot {
	store := inventory.NewStore(inventory.Options{Facts: podFacts{m}})
	l := inventory.Listing{Started: time.Now()}
	for _, s := range m.listing.Sandboxes {
		l.Sandboxes = append(l.Sandboxes, inventory.ListedSandbox{Sandbox: inventory.Sandbox{ID: s.ID, Created: s.Created}, Pod: s.Pod})
	}
	store.ApplyListing(l)
	return store.Snapshot()
}

// podFacts say that pods whose name begins with "done" have finished.
type podFacts struct{ m *machine }

func (f podFacts) Pod(uid string) (inventory.PodFacts, bool) {
	if strings.HasPrefix(uid, "done") {
		return inventory.PodFacts{
			Spec: inventory.FromPodsAPI, Finished: true, Ref: inventory.Ref{Namespace: "default", Name: uid, UID: uid},
		}, true
	}
	return inventory.PodFacts{}, false
}

func (m *machine) err(method string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[method]++
	return m.errs[method]
}

// image adds one that was last used so long ago and frees that many bytes.
func (m *machine) image(id string, bytes uint64, unused time.Duration) {
	m.images = append(m.images, Image{ID: id, Names: []string{"docker.io/library/" + id + ":1"}, Size: bytes})
	m.frees[id] = release{bytes: bytes, inodes: 1000}
	m.uses.mu.Lock()
	defer m.uses.mu.Unlock()
	m.uses.byID[id] = Use{FirstSeen: time.Now().Add(-24 * time.Hour), LastUsed: time.Now().Add(-unused)}
}

func (m *machine) List(context.Context) (Listing, error) {
	err := m.err("List")
	m.mu.Lock()
	defer m.mu.Unlock()
	return Listing{Sandboxes: slices.Clone(m.listing.Sandboxes), Containers: slices.Clone(m.listing.Containers)}, err
}

func (m *machine) Images(context.Context) ([]Image, error) {
	err := m.err("Images")
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.images), err
}

func (m *machine) ConfiguredSandboxImages(context.Context) ([]string, error) {
	return m.sandbox, m.err("ConfiguredSandboxImages")
}

func (m *machine) SandboxImage(context.Context, string) (string, error) {
	return "", m.err("SandboxImage")
}

func (m *machine) MountedImages(_ context.Context, id string) ([]string, error) {
	return m.mounted[id], m.err("MountedImages")
}

func (m *machine) ResolveImage(_ context.Context, name string) (string, error) {
	return m.names[name], m.err("ResolveImage")
}

func (m *machine) RemoveContainer(ctx context.Context, id string) error {
	return m.remove(ctx, "RemoveContainer", id)
}

func (m *machine) RemoveSandbox(ctx context.Context, id string) error {
	return m.remove(ctx, "RemoveSandbox", id)
}

func (m *machine) RemoveImage(ctx context.Context, id string) error {
	return m.remove(ctx, "RemoveImage", id)
}

func (m *machine) remove(ctx context.Context, method, id string) error {
	if err := m.err(method); err != nil {
		return err
	}
	if m.onRemove != nil {
		m.onRemove(id)
	}
	if m.hangs[id] {
		<-ctx.Done()
		return fmt.Errorf("removing %s: %w", id, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = append(m.removed, id)
	m.removals[id] = time.Now()
	r := m.frees[id]
	r.at = time.Now().Add(m.lag)
	m.coming = append(m.coming, r)
	m.images = slices.DeleteFunc(m.images, func(i Image) bool { return i.ID == id })
	if i := slices.IndexFunc(m.listing.Containers, func(c Container) bool { return c.ID == id }); i >= 0 {
		last := len(m.listing.Containers) - 1
		m.listing.Containers[i] = m.listing.Containers[last]
		m.listing.Containers = m.listing.Containers[:last]
	}
	m.listing.Sandboxes = slices.DeleteFunc(m.listing.Sandboxes, func(s Sandbox) bool { return s.ID == id })
	return nil
}

func (m *machine) statfs(context.Context, string) (cgroupfs.Filesystem, error) {
	if err := m.err("statfs"); err != nil {
		return cgroupfs.Filesystem{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.coming = slices.DeleteFunc(m.coming, func(r release) bool {
		if r.at.After(now) {
			return false
		}
		m.fs.Available += r.bytes
		m.fs.InodesFree += r.inodes
		return true
	})
	m.fs.At = now
	return m.fs, nil
}

// Reserve implements Reservations.
func (m *machine) Reserve(_ context.Context, names []string, _, _ time.Duration) (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["Reserve"]++
	if m.reserve != nil {
		if err := m.reserve(names); err != nil {
			return nil, err
		}
	}
	m.reserved = append(m.reserved, names[0])
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.reserved = slices.DeleteFunc(m.reserved, func(n string) bool { return n == names[0] })
	}, nil
}

// reclaim asks for so much, as the engine does.
func (m *machine) reclaim(signal eviction.Signal, need uint64) (eviction.ReclaimedDisk, error) {
	target := m.fs.Available + need
	if signal.Unit() == eviction.Inodes {
		target = m.fs.InodesFree + need
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	return m.c.Reclaim(ctx, eviction.ReclaimWant{
		Signal: signal, Hard: true, Device: disk, Path: "/ctd", Need: need,
		Measure: func(ctx context.Context) (uint64, error) {
			fs, err := m.statfs(ctx, "/ctd")
			now := fs.Available
			if signal.Unit() == eviction.Inodes {
				now = fs.InodesFree
			}
			return target - min(target, now), err
		},
	})
}

// wantRemoved compares what was removed, in order.
func (m *machine) wantRemoved(ids ...string) {
	m.t.Helper()
	if !slices.Equal(m.removed, ids) {
		m.t.Errorf("removed %q, want %q", m.removed, ids)
	}
	if len(m.reserved) > 0 {
		m.t.Errorf("still reserved: %q", m.reserved)
	}
}

// lines counts what was said at this level.
func (m *machine) lines(level logrus.Level) int {
	n := 0
	for _, e := range m.said.AllEntries() {
		if e.Level == level {
			n++
		}
	}
	return n
}

// container adds one that is over to a pod with a sandbox of its own.
func (m *machine) container(uid, name string, attempt uint32, state ContainerState, age time.Duration, image string) {
	id := "sandbox of " + uid
	if !slices.ContainsFunc(m.listing.Sandboxes, func(s Sandbox) bool { return s.ID == id }) {
		m.listing.Sandboxes = append(m.listing.Sandboxes, Sandbox{
			ID: id, Pod: inventory.Ref{Namespace: "default", Name: uid, UID: uid}, Created: time.Now().Add(-24 * time.Hour),
		})
	}
	for i := range m.listing.Sandboxes {
		if s := &m.listing.Sandboxes[i]; s.ID == id && state == Running {
			s.Ready = true
		}
	}
	m.listing.Containers = append(m.listing.Containers, Container{
		ID: fmt.Sprintf("%s/%s/%d", uid, name, attempt), SandboxID: id, Name: name, Attempt: attempt, State: state, Created: time.Now().Add(-age), Images: []string{image},
	})
}

var errBroken = errors.New("broken")
