package inventory

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// Options are fixed for the life of a Store.
type Options struct {
	// MemTotal of the node in bytes, for requests estimated from oom_score_adj.
	MemTotal uint64
	// TrustedNamespaces are those whose pods' annotations count.
	TrustedNamespaces []string
	// Facts may be nil.
	Facts Facts
}

// Store holds the inventory. Its methods may be called from any goroutine.
type Store struct {
	opt     Options
	trusted map[string]bool
	current atomic.Pointer[Snapshot]

	mu         sync.Mutex
	sandboxes  map[string]*sandboxEntry
	containers map[string]*containerEntry
	tree       map[string]cgroupfs.PodPath // by UID
	wanted     map[string]time.Time        // by UID
	listedFrom time.Time                   // when the newest list applied was asked for
	listedAt   time.Time
	generation uint64
}

type sandboxEntry struct {
	Sandbox
	pod         Ref
	labels      map[string]string
	annotations map[string]string
	seen        time.Time // last event or list that had it
	stopped     time.Time // stop event
	gone        time.Time // removal event
	// endOnly: nothing but its end was told. It is kept because a list that is
	// on its way may still have it.
	endOnly bool
}

type containerEntry struct {
	Container
	seen    time.Time
	gone    time.Time
	endOnly bool
}

// Snapshot is the inventory at one moment; immutable.
type Snapshot struct {
	Pods       []*Pod // by namespace, name, UID
	Generation uint64 // rises with every change
	ListedAt   time.Time

	byUID map[string]*Pod
}

// Pod returns the pod with this UID.
func (s *Snapshot) Pod(uid string) (*Pod, bool) {
	p, ok := s.byUID[uid]
	return p, ok
}

// NewStore returns an empty inventory.
func NewStore(opt Options) *Store {
	s := &Store{
		opt:        opt,
		trusted:    map[string]bool{},
		sandboxes:  map[string]*sandboxEntry{},
		containers: map[string]*containerEntry{},
		tree:       map[string]cgroupfs.PodPath{},
		wanted:     map[string]time.Time{},
	}
	for _, ns := range opt.TrustedNamespaces {
		s.trusted[ns] = true
	}
	s.current.Store(&Snapshot{byUID: map[string]*Pod{}})
	return s
}

// Snapshot returns the present inventory; the result must not be changed.
func (s *Store) Snapshot() *Snapshot { return s.current.Load() }

// unknownRelist is how often a pod cgroup nobody knows leads to a new list.
const unknownRelist = 10 * time.Second

// ApplyTree takes the pod cgroups found in the tree at time now. It reports
// whether the tree and the inventory disagree, so that the lists should be read
// again: a pod cgroup without a known sandbox (at once when it appears, then
// every unknownRelist), or a ready sandbox whose pod cgroup went away.
func (s *Store) ApplyTree(paths []cgroupfs.PodPath, now time.Time) (surprise bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]bool{}
	for _, b := range s.sandboxes {
		if b.Ready && b.gone.IsZero() {
			known[b.pod.UID] = true
		}
	}
	tree := make(map[string]cgroupfs.PodPath, len(paths))
	for _, p := range paths {
		tree[p.UID] = p
		_, before := s.tree[p.UID]
		if !known[p.UID] && (!before || now.Sub(s.listedAt) >= unknownRelist) {
			surprise = true
		}
	}
	for uid := range s.tree {
		if _, still := tree[uid]; !still && known[uid] {
			surprise = true
		}
	}
	if !maps.Equal(tree, s.tree) {
		s.tree = tree
		s.publish()
	}
	return surprise
}

// Recovered is what was read from a container's cgroup and processes because no
// CreateContainer request was seen.
type Recovered struct {
	ContainerID string
	OOMScoreAdj int64
	MemoryLimit int64 // bytes, 0 = none
	// Cgroup is set when it was found through a process of the container.
	Cgroup string
}

// ApplyRecovered fills in numbers of containers that were only listed.
func (s *Store) ApplyRecovered(rs []Recovered) {
	if len(rs) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		c, ok := s.containers[r.ContainerID]
		if !ok {
			continue
		}
		if c.OOMScoreAdj == nil {
			adj, limit := r.OOMScoreAdj, r.MemoryLimit
			c.OOMScoreAdj, c.MemoryLimit = &adj, &limit
		}
		if r.Cgroup != "" {
			c.Cgroup = r.Cgroup
		}
	}
	s.publish()
}

// publish builds a new snapshot; s.mu is held.
func (s *Store) publish() {
	s.generation++
	snap := &Snapshot{Generation: s.generation, ListedAt: s.listedAt, byUID: map[string]*Pod{}}
	parents := map[string]map[string]bool{} // cgroup → UIDs that name it
	for _, b := range s.sandboxes {
		if !b.gone.IsZero() || b.endOnly {
			continue
		}
		p, ok := snap.byUID[b.pod.UID]
		if !ok {
			p = &Pod{Ref: b.pod}
			snap.byUID[b.pod.UID] = p
			snap.Pods = append(snap.Pods, p)
		}
		p.Sandboxes = append(p.Sandboxes, b.Sandbox)
		if path, err := cgroupfs.ResolveParent(b.CgroupParent); err == nil && b.CgroupParent != "" {
			if parents[path] == nil {
				parents[path] = map[string]bool{}
			}
			parents[path][b.pod.UID] = true
		}
	}
	for _, c := range s.containers {
		b, ok := s.sandboxes[c.SandboxID]
		if !ok || !c.gone.IsZero() || !b.gone.IsZero() || c.endOnly || b.endOnly {
			continue
		}
		p := snap.byUID[b.pod.UID]
		p.Containers = append(p.Containers, c.Container)
	}
	for _, p := range snap.Pods {
		s.complete(p, parents)
	}
	slices.SortFunc(snap.Pods, func(a, b *Pod) int {
		return strings.Compare(a.Namespace+"\x00"+a.Name+"\x00"+a.UID, b.Namespace+"\x00"+b.Name+"\x00"+b.UID)
	})
	s.current.Store(snap)
}

// complete derives what follows from the parts of a pod.
func (s *Store) complete(p *Pod, parents map[string]map[string]bool) {
	slices.SortFunc(p.Sandboxes, func(a, b Sandbox) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	slices.SortFunc(p.Containers, func(a, b Container) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	newest := s.sandboxes[p.Sandboxes[0].ID]
	p.Labels, p.Annotations = newest.labels, newest.annotations
	p.LastWanted = s.wanted[p.UID]
	p.Cgroup, p.OwnCgroup = s.cgroupOf(p, parents)
	if s.opt.Facts != nil {
		f, _ := s.opt.Facts.Pod(p.UID)
		// Another name for the same UID is somebody's claim about somebody else's
		// pod, such as a mirror of what is not static.
		if f.Spec == "" || f.Ref == p.Ref {
			p.facts = f
		}
	}
	if l := p.facts.Labels; l != nil {
		p.Labels = l
	}
	if p.QoS = qosOf(p.Cgroup); !p.QoS.Exact && p.facts.QoS.Source != "" {
		p.QoS = p.facts.QoS
	}
	p.Priority = priorityOf(p, s.trusted)
	p.Request = requestOf(p, s.trusted, s.opt.MemTotal)
	if p.StorageRequest = p.facts.StorageRequest; p.StorageRequest.Source == "" {
		p.StorageRequest.Source = FromDefault
	}
}

func (s *Store) cgroupOf(p *Pod, parents map[string]map[string]bool) (path string, own bool) {
	for _, b := range p.Sandboxes {
		if b.CgroupParent == "" {
			continue
		}
		resolved, err := cgroupfs.ResolveParent(b.CgroupParent)
		if err != nil {
			continue
		}
		path = resolved
		break
	}
	if path == "" {
		found, ok := s.tree[p.UID]
		if !ok {
			return "", false
		}
		path = found.Path
	}
	parsed, ok := cgroupfs.ParsePodPath(path)
	own = ok && parsed.UID == p.UID && len(parents[path]) <= 1
	return path, own
}

// FactsChanged takes what Options.Facts says now.
func (s *Store) FactsChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish()
}

// Trust replaces Options.TrustedNamespaces.
func (s *Store) Trust(namespaces []string) {
	trusted := map[string]bool{}
	for _, ns := range namespaces {
		trusted[ns] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.Equal(trusted, s.trusted) {
		return
	}
	s.trusted = trusted
	s.publish()
}

// ForgetWanted drops what is known of attempts to run a pod that is gone.
func (s *Store) ForgetWanted(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wanted, uid)
}

// Wanted returns when RunPodSandbox was last seen for this UID.
func (s *Store) Wanted(uid string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[uid]
}

// InTree says whether the last walk of the cgroup tree found this pod at this
// path.
func (s *Store) InTree(uid, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.tree[uid]
	return ok && p.Path == path
}
