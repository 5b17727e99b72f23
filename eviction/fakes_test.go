package eviction

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// fakeClock is a clock that moves when told.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *fakeClock { return &fakeClock{now: t0} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.mu.Unlock()
}

// fakeNode is the memory of a machine: what the cgroups and the rest of the
// system do not use is available. It is a MeminfoSource.
type fakeNode struct {
	mu       sync.Mutex
	capacity uint64
	system   uint64 // used outside of the cgroups
	cache    uint64 // active page cache: only kubelet's reading counts it as used
	err      error
	reads    int
	cgroups  []*fakeCgroup

	swapTotal, swapFree uint64
}

func newNode(available uint64) *fakeNode {
	return &fakeNode{capacity: 16 * gi, system: 16*gi - available}
}

func (n *fakeNode) Read(m *cgroupfs.Meminfo) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	if n.err != nil {
		return n.err
	}
	used := n.used()
	*m = cgroupfs.Meminfo{
		MemTotal: n.capacity, MemAvailable: n.capacity - min(n.capacity, used), HasAvailable: true,
		AnonPages: used, Cached: n.cache, HasKubelet: true, SwapTotal: n.swapTotal, SwapFree: n.swapFree,
	}
	return nil
}

func (n *fakeNode) used() uint64 {
	used := n.system
	for _, c := range n.cgroups {
		used += c.bytes()
	}
	return used
}

// setAvailable changes what the rest of the system uses so that this much is
// available now.
func (n *fakeNode) setAvailable(available uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.system = 0
	n.system = n.capacity - min(n.capacity, available+n.used())
}

func (n *fakeNode) fail(err error) {
	n.mu.Lock()
	n.err = err
	n.mu.Unlock()
}

// fakeCgroup is an OpenCgroup; the descriptors are it itself.
type fakeCgroup struct {
	mu       sync.Mutex
	path     string
	inode    uint64
	current  uint64
	inactive uint64
	shmem    uint64 // 0: not known
	procs    bool
	immortal bool // kills change nothing
	gone     bool

	statErr, popErr, killErr error
	foreign                  []string
	foreignErr               error

	kills, pidfds, thaws, stats, opens, closes int
	onKill, onPidfd                            func() // may block
	// onReclaim answers memory.reclaim; without it the kernel does not offer it.
	onReclaim func(bytes uint64) error
	reclaims  int
}

var errClosedFake = errors.New("use of closed descriptors")

func (c *fakeCgroup) bytes() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return 0
	}
	return c.current
}

// state must be called with mu held.
func (c *fakeCgroup) state() error {
	switch {
	case c.opens > 0 && c.closes >= c.opens:
		return errClosedFake
	case c.gone:
		return cgroupfs.ErrGone
	}
	return nil
}

func (c *fakeCgroup) Usage() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.state()
}

func (c *fakeCgroup) InactiveFile() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats++
	return c.inactive, errors.Join(c.state(), c.statErr)
}

func (c *fakeCgroup) MemoryStat(m *cgroupfs.MemoryStat) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*m = cgroupfs.MemoryStat{InactiveFile: c.inactive, Shmem: c.shmem}
	if c.shmem == 0 {
		return cgroupfs.ErrAbsent
	}
	return errors.Join(c.state(), c.statErr)
}

func (c *fakeCgroup) Populated() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.state(); err != nil {
		return false, err
	}
	return c.procs, c.popErr
}

func (c *fakeCgroup) Kill() (int, error) {
	c.mu.Lock()
	c.kills++
	wait := c.onKill
	c.mu.Unlock()
	if wait != nil {
		wait()
	}
	return c.die()
}

func (c *fakeCgroup) KillByPidfd() (int, error) {
	c.mu.Lock()
	c.pidfds++
	wait := c.onPidfd
	c.mu.Unlock()
	if wait != nil {
		wait()
	}
	return c.die()
}

func (c *fakeCgroup) die() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.state(); err != nil {
		return 0, err
	}
	if c.immortal {
		return 0, c.killErr
	}
	c.procs, c.current = false, 0
	return 1, c.killErr
}

func (c *fakeCgroup) Reclaim(bytes uint64) error {
	c.mu.Lock()
	answer := c.onReclaim
	if answer != nil {
		c.reclaims++
	}
	c.mu.Unlock()
	if answer == nil {
		return cgroupfs.ErrAbsent
	}
	return answer(bytes)
}

func (c *fakeCgroup) Thaw() error {
	c.mu.Lock()
	c.thaws++
	c.mu.Unlock()
	return nil
}

func (c *fakeCgroup) Inode() uint64 { return c.inode }

func (c *fakeCgroup) Close() error {
	c.mu.Lock()
	c.closes++
	c.mu.Unlock()
	return nil
}

// change runs f with the cgroup locked.
func (c *fakeCgroup) change(f func(c *fakeCgroup)) {
	c.mu.Lock()
	f(c)
	c.mu.Unlock()
}

// see returns what f finds with the cgroup locked.
func see[T any](c *fakeCgroup, f func(c *fakeCgroup) T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(c)
}

func killsOf(c *fakeCgroup) int  { return see(c, func(c *fakeCgroup) int { return c.kills }) }
func pidfdsOf(c *fakeCgroup) int { return see(c, func(c *fakeCgroup) int { return c.pidfds }) }

// fakeCgroups is Cgroups and inventory.Tree.
type fakeCgroups struct {
	mu      sync.Mutex
	node    *fakeNode
	byPath  map[string]*fakeCgroup
	openErr map[string]error
	freezes bool
	volumes map[string]uint64
	inodes  uint64
}

func newCgroups(n *fakeNode) *fakeCgroups {
	return &fakeCgroups{node: n, byPath: map[string]*fakeCgroup{}, openErr: map[string]error{}, volumes: map[string]uint64{}}
}

// make creates the cgroup at a path, in place of one that was there.
func (f *fakeCgroups) make(path string, current uint64) *fakeCgroup {
	f.mu.Lock()
	f.inodes++
	c := &fakeCgroup{path: path, inode: f.inodes, current: current, procs: true}
	f.byPath[path] = c
	f.mu.Unlock()
	if f.node != nil {
		f.node.mu.Lock()
		f.node.cgroups = append(f.node.cgroups, c)
		f.node.mu.Unlock()
	}
	return c
}

func (f *fakeCgroups) remove(path string) {
	f.mu.Lock()
	c := f.byPath[path]
	delete(f.byPath, path)
	f.mu.Unlock()
	c.change(func(c *fakeCgroup) { c.gone = true })
}

func (f *fakeCgroups) Open(path string) (OpenCgroup, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.openErr[path]; err != nil {
		return nil, err
	}
	c, ok := f.byPath[path]
	if !ok {
		return nil, fmt.Errorf("%s: %w", path, cgroupfs.ErrGone)
	}
	c.change(func(c *fakeCgroup) { c.opens++ })
	return c, nil
}

func (f *fakeCgroups) Foreign(c OpenCgroup) ([]string, error) {
	fc := c.(*fakeCgroup)
	fc.mu.Lock()
	defer fc.mu.Unlock()
	return fc.foreign, fc.foreignErr
}

func (f *fakeCgroups) Container(parent, id string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := parent + "/" + id
	_, ok := f.byPath[p]
	return p, ok
}

func (f *fakeCgroups) Freezes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.freezes
}

func (f *fakeCgroups) MemoryVolumes(uid string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.volumes[uid]
}

func (f *fakeCgroups) Pods() ([]cgroupfs.PodPath, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []cgroupfs.PodPath
	for p := range f.byPath {
		if pp, ok := cgroupfs.ParsePodPath(p); ok {
			out = append(out, pp)
		}
	}
	return out, nil
}

func (f *fakeCgroups) Recover(string, inventory.Container) (inventory.Recovered, bool) {
	return inventory.Recovered{}, false
}

func (f *fakeCgroups) CgroupOf(int) (string, error) { return "", cgroupfs.ErrGone }

func openHolds(t testing.TB) (*holds.Writer, string) {
	t.Helper()
	dir := t.TempDir()
	w, err := holds.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, dir
}

func openReader(t testing.TB, dir string) *holds.Reader {
	t.Helper()
	r := holds.OpenReader(dir)
	t.Cleanup(func() { _ = r.Close() })
	return r
}
