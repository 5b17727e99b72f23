package eviction

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// openPod is a pod's cgroups with what was read of them last.
type openPod struct {
	path    string
	own     bool   // the cgroup is the pod's alone
	direct  bool   // and it is what is open
	partial bool   // a cgroup of a running container could not be found yet
	members string // IDs of sandboxes and containers: a change looks anew
	cgroups []OpenCgroup
	paths   []string // of cgroups
	inode   uint64
	// foreign are the processes found at checkedAt.
	foreign   []string
	unread    bool // the processes could not be read
	vacant    bool // no process is left
	checkedAt time.Time
	inactive  uint64
	measured  bool // inactive was read at least once
	// volumes are the bytes in memory emptyDirs; shmem was read from memory.stat
	// when they were volumesThen.
	volumes, volumesThen, shmem uint64
	shmemKnown                  bool
}

// open returns the pod's cgroups, opened at first sight and after a change.
func (pl *planner) open(p *inventory.Pod, in planInput) *openPod {
	members := membersOf(p)
	o := pl.cache[p.UID]
	if o != nil && in.keepOpen[p.UID] {
		return o // a kill is followed through these descriptors
	}
	if o == nil || o.path != p.Cgroup || o.own != p.OwnCgroup || !o.direct && (o.partial || o.members != members) || len(o.cgroups) == 0 || o.gone() {
		if o != nil {
			o.close()
		}
		o = &openPod{path: p.Cgroup, own: p.OwnCgroup}
		pl.openCgroups(p, o)
		pl.cache[p.UID] = o
	}
	due := o.members != members || in.now.Sub(o.checkedAt) >= foreignEvery
	if due {
		o.members, o.checkedAt = members, in.now
		pl.look(p, o)
	}
	// On v1 this lists the pod's processes: too much for every plan.
	if due || o.vacant || !pl.cgroups.Freezes() {
		o.vacant = o.empty()
	}
	// Asking the volumes costs no flush of counts, and they are what grows when a
	// pod writes into them.
	o.volumes = pl.cgroups.MemoryVolumes(p.UID)
	if !in.alarm || !o.measured {
		pl.measure(p, o)
	}
	return o
}

// openCgroups opens the pod's own cgroup or, for a pod without one, those of its
// sandbox and containers.
func (pl *planner) openCgroups(p *inventory.Pod, o *openPod) {
	if p.OwnCgroup && pl.openOne(p, o, p.Cgroup) {
		o.direct, o.inode = true, o.cgroups[0].Inode()
		return
	}
	for _, s := range p.Sandboxes {
		if name, ok := pl.cgroups.Container(p.Cgroup, s.ID); ok && s.Ready {
			pl.openOne(p, o, name)
		}
	}
	for _, c := range p.RunningContainers() {
		name, ok := c.Cgroup, c.Cgroup != ""
		if !ok {
			name, ok = pl.cgroups.Container(p.Cgroup, c.ID)
		}
		if !ok || !pl.openOne(p, o, name) {
			o.partial = true
		}
	}
}

func (pl *planner) openOne(p *inventory.Pod, o *openPod, name string) bool {
	c, err := pl.cgroups.Open(name)
	if err != nil {
		if !errors.Is(err, cgroupfs.ErrGone) {
			pl.sayOnce(p, fmt.Errorf("cgroup %s: %w", name, err))
		}
		return false
	}
	o.cgroups, o.paths = append(o.cgroups, c), append(o.paths, name)
	return true
}

// look searches the pod's cgroups for processes that are not the pod's.
func (pl *planner) look(p *inventory.Pod, o *openPod) {
	o.foreign, o.unread = nil, false
	for _, c := range o.cgroups {
		names, err := pl.cgroups.Foreign(c)
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) && !errors.Is(err, fs.ErrNotExist) {
			o.unread = true
			pl.sayOnce(p, fmt.Errorf("processes of cgroup %s: %w", o.path, err))
		}
		o.foreign = append(o.foreign, names...)
	}
}

func (pl *planner) sayOnce(p *inventory.Pod, err error) {
	if text := err.Error(); pl.problems[p.UID] != text {
		pl.problems[p.UID] = text
		pl.log.WithFields(logrus.Fields{"pod": p.String(), "uid": p.UID}).WithError(err).Warn("part of this pod cannot be read")
	}
}

// close gives up the descriptors. The fast half may still hold the plan: reads
// then fail, which makes the pod one without numbers.
func (o *openPod) close() {
	for _, c := range o.cgroups {
		_ = c.Close() // read only; nothing can be lost
	}
}

// empty says whether the pod's cgroups are there and without a process, as when
// the runtime lost an exit event (bugs.md B20, B23). What a stop of such a pod
// would free is page cache.
func (o *openPod) empty() bool {
	if len(o.cgroups) == 0 || o.partial {
		return false
	}
	for _, c := range o.cgroups {
		if populated, err := c.Populated(); populated || err != nil {
			return false
		}
	}
	return true
}

// gone says whether the cgroup was removed under the descriptor, as when a pod
// directory is made again at the same path.
func (o *openPod) gone() bool {
	for _, c := range o.cgroups {
		if _, err := c.Usage(); errors.Is(err, cgroupfs.ErrGone) {
			return true
		}
	}
	return false
}

func (pl *planner) closeAll() {
	pl.pods.close()
	for _, o := range pl.cache {
		o.close()
	}
	clear(pl.cache)
}

// membersOf changes whenever a sandbox or container of the pod comes or goes.
func membersOf(p *inventory.Pod) string {
	var s string
	for _, b := range p.Sandboxes {
		if b.Ready {
			s = path.Join(s, b.ID)
		}
	}
	for _, c := range p.RunningContainers() {
		s = path.Join(s, c.ID)
	}
	return s
}
