package eviction

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// fakeDisks is the file systems of a machine, its tasks, and what pods have of
// both. A pod's removal (stopped containers) and stop give back what they do.
type fakeDisks struct {
	mu       sync.Mutex
	fs       map[string]*cgroupfs.Filesystem // by path
	errs     map[string]error
	images   string
	contain  string
	pathsErr error
	asked    int
	reads    map[string]int

	pids    cgroupfs.PIDs
	pidsErr error
	podPIDs map[string]*fakeTasks // by cgroup path

	usage   map[string]*PodUsage
	removed []string
	// removedAt is when the last one was.
	removedAt time.Time
	// onRemove is called for a container that is removed, with mu held.
	onRemove func(id string)
	// onReclaim answers a Reclaimer.
	onReclaim func(ctx context.Context, want ReclaimWant) (ReclaimedDisk, error)
	reclaims  []ReclaimWant
}

// fakeTasks are those of a pod: as long as its cgroup has processes.
type fakeTasks struct {
	cgroup *fakeCgroup
	n      uint64
}

func newDisks() *fakeDisks {
	return &fakeDisks{
		fs: map[string]*cgroupfs.Filesystem{}, errs: map[string]error{}, images: "/img", reads: map[string]int{},
		podPIDs: map[string]*fakeTasks{}, usage: map[string]*PodUsage{}, pids: cgroupfs.PIDs{Max: 32768, Tasks: 500},
	}
}

// mount puts a file system of 100 GiB and 1,000,000 inodes at a path.
func (f *fakeDisks) mount(path string, device uint64, available uint64) {
	f.fs[path] = &cgroupfs.Filesystem{
		Device: device, Capacity: 100 * gi, Available: available, Free: available, Inodes: 1_000_000, InodesFree: 900_000,
	}
}

func (f *fakeDisks) Read(_ context.Context, path string) (cgroupfs.Filesystem, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[path]++
	if err := f.errs[path]; err != nil {
		return cgroupfs.Filesystem{}, err
	}
	at, ok := f.fs[path]
	if !ok {
		return cgroupfs.Filesystem{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	out := *at
	out.At = time.Now()
	return out, nil
}

func (f *fakeDisks) paths(context.Context) (string, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.images, f.contain, f.pathsErr
}

func (f *fakeDisks) tasks() (cgroupfs.PIDs, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.pids
	for _, t := range f.podPIDs {
		if alive, _ := t.cgroup.Populated(); alive {
			out.Tasks += t.n
		}
	}
	return out, f.pidsErr
}

func (f *fakeDisks) cgroupPIDs(path string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.podPIDs[path]
	if !ok {
		return 0, cgroupfs.ErrGone
	}
	return t.n, nil
}

func (f *fakeDisks) PodUsage() map[string]*PodUsage {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]*PodUsage{}
	for uid, u := range f.usage {
		out[uid] = u
	}
	return out
}

func (f *fakeDisks) Near([]uint64) {}

func (f *fakeDisks) RemoveContainer(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removed, f.removedAt = append(f.removed, id), time.Now()
	if f.onRemove != nil {
		f.onRemove(id)
	}
	return nil
}

func (f *fakeDisks) Reclaim(ctx context.Context, want ReclaimWant) (ReclaimedDisk, error) {
	f.mu.Lock()
	f.reclaims = append(f.reclaims, want)
	do := f.onReclaim
	f.mu.Unlock()
	return do(ctx, want)
}

// set changes what is available at a path.
func (f *fakeDisks) set(path string, available uint64) {
	f.mu.Lock()
	f.fs[path].Available = available
	f.mu.Unlock()
}

func (f *fakeDisks) setInodes(path string, free uint64) {
	f.mu.Lock()
	f.fs[path].InodesFree = free
	f.mu.Unlock()
}

func (f *fakeDisks) fail(path string, err error) {
	f.mu.Lock()
	f.errs[path] = err
	f.mu.Unlock()
}

func (f *fakeDisks) removals() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.removed)
}

// has gives a pod a writable layer on a device: bytes and inodes.
func (f *fakeDisks) has(uid string, device, bytes, inodes uint64) {
	f.part(uid, UsagePart{What: PartWritableLayer, Device: device, Freed: FreedByRemoval,
		Bytes: UsageNumber{Value: bytes, Known: true, Exact: true}, Inodes: UsageNumber{Value: inodes, Known: true, Exact: true}, Source: UsageFromCRI})
}

func (f *fakeDisks) part(uid string, p UsagePart) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.At = time.Now()
	old := f.usage[uid]
	u := &PodUsage{}
	if old != nil {
		u.Parts = slices.Clone(old.Parts)
	}
	u.Parts = append(u.Parts, p)
	f.usage[uid] = u
}

// slowRig is a node on one file system of 100 GiB (device 1), with hard
// thresholds of disk and PIDs as they are by default, and 10 % of the PIDs.
func slowRig(t *testing.T) (*rig, *fakeDisks) {
	t.Helper()
	r, f := newRig(t), newDisks()
	f.mount("/kubelet", 1, 60*gi)
	f.mount("/img", 1, 60*gi)
	f.mount("/logs", 1, 60*gi)
	r.slow = SlowParts{
		Filesystems: f, ImagePaths: f.paths, PIDs: f.tasks, CgroupPIDs: f.cgroupPIDs, KubeletRoot: "/kubelet", PodLogs: "/logs",
		Usage: f, Remove: f,
	}
	for s, text := range map[Signal]string{
		NodeFsAvailable: "12%", NodeFsInodesFree: "6%", ImageFsAvailable: "17%", ImageFsInodesFree: "6%", PIDAvailable: "10%",
	} {
		r.set.Slow = append(r.set.Slow, SlowThreshold{Signal: s, Value: threshold(t, text), Hard: true})
	}
	return r, f
}

// signalNow is how a signal stands.
func (r *rig) signalNow(s Signal) SignalNow {
	for _, n := range r.eng.State().Signals {
		if n.Signal == s {
			return n
		}
	}
	return SignalNow{}
}

// evictions counts the pods that were evicted.
func (r *rig) evictions() int {
	n := 0
	for _, o := range r.outcomes() {
		if strings.HasPrefix(o, OutcomeEvicted+" ") {
			n++
		}
	}
	return n
}

// fill changes what is available on the one file system.
func (f *fakeDisks) fill(available uint64) {
	for _, path := range []string{"/kubelet", "/img", "/logs"} {
		f.set(path, available)
	}
}

// frees makes the removal of a pod's container give these bytes back, a while
// later as the runtime does.
func (f *fakeDisks) frees(uid string, bytes uint64, after time.Duration) {
	before := f.onRemove
	f.onRemove = func(id string) {
		if before != nil {
			before(id)
		}
		if id != "c-"+uid {
			return
		}
		time.AfterFunc(after, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, path := range []string{"/kubelet", "/img", "/logs"} {
				f.fs[path].Available += bytes
			}
		})
	}
}
