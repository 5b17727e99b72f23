package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// Runtime lists what the runtime has.
type Runtime interface {
	// List calls ListPodSandbox and ListContainers once each.
	List(ctx context.Context) (Listing, error)
	// PID asks for the process of one container; 0 when it has none.
	PID(ctx context.Context, containerID string) (int, error)
}

// Tree finds pods and numbers in the cgroup tree and /proc.
type Tree interface {
	// Pods returns every pod cgroup.
	Pods() ([]cgroupfs.PodPath, error)
	// Recover reads oom_score_adj and memory limit of a container that was
	// only listed; ok is false when its cgroup cannot be found.
	Recover(podCgroup string, c Container) (r Recovered, ok bool)
	// Container says whether the container's cgroup can be found by its name.
	Container(podCgroup, containerID string) (path string, ok bool)
	// CgroupOf is the memory cgroup a process is in.
	CgroupOf(pid int) (path string, err error)
}

const (
	relistEvery  = 5 * time.Minute
	treeEvery    = time.Second
	listTimeout  = 10 * time.Second
	retryFirst   = 250 * time.Millisecond
	retryLongest = 5 * time.Second
	// slowList is the time a list may take before ours are spaced out, so that
	// a struggling runtime is not burdened further (bugs.md B90).
	slowList       = time.Second
	slowListFactor = 10
	// askPerSecond bounds the calls for single containers (bugs.md B82).
	askPerSecond = 20
	askTimeout   = 2 * time.Second
)

// Syncer keeps a Store in step with the runtime and the cgroup tree.
type Syncer struct {
	store   *Store
	runtime Runtime
	tree    Tree
	log     logrus.FieldLogger
	clock   func() time.Time
	dirty   chan struct{}
	changed chan struct{}
	// Run's own: the containers whose process was asked for, and when the
	// runtime may be asked again.
	asked    map[string]int
	askAfter time.Time

	mu    sync.Mutex
	state SyncState
}

// SyncState says how current the inventory is.
type SyncState struct {
	// Listed is true once the lists were read at least once.
	Listed    bool      `json:"listed"`
	ListedAt  time.Time `json:"listedAt,omitzero"`
	ListError string    `json:"listError,omitempty"`
	// TreeAt is when the pods' cgroups were last read.
	TreeAt    time.Time `json:"treeAt,omitzero"`
	TreeError string    `json:"treeError,omitempty"`
}

// NewSyncer returns a Syncer; Run does the work.
func NewSyncer(store *Store, runtime Runtime, tree Tree, clock func() time.Time, log logrus.FieldLogger) *Syncer {
	return &Syncer{
		store: store, runtime: runtime, tree: tree, clock: clock, log: log,
		dirty: make(chan struct{}, 1), changed: make(chan struct{}, 1), asked: map[string]int{},
	}
}

// MarkDirty asks for a new list soon.
func (s *Syncer) MarkDirty() { signal(s.dirty) }

// FactsChanged has the store take what its source of facts says now.
func (s *Syncer) FactsChanged() {
	s.store.FactsChanged()
	signal(s.changed)
}

// Changed is signalled after the store took something new.
func (s *Syncer) Changed() <-chan struct{} { return s.changed }

// Take applies an event of the proxy.
func (s *Syncer) Take(e Event) {
	if e.Type == Dirty {
		s.MarkDirty()
		return
	}
	s.store.Apply(e)
	signal(s.changed)
}

// State returns how current the inventory is.
func (s *Syncer) State() SyncState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run lists at start, when dirty and every five minutes, and walks the cgroup
// tree every second, until ctx ends.
func (s *Syncer) Run(ctx context.Context) {
	walk := time.NewTicker(treeEvery)
	defer walk.Stop()
	relist := time.NewTimer(0)
	defer relist.Stop()
	retry, failing := retryFirst, false
	var notBefore time.Time
	s.walk()
	for {
		select {
		case <-ctx.Done():
			return
		case <-walk.C:
			// While listing fails, the next try is planned already and must
			// not come earlier for a surprise that stays.
			if s.walk() && !failing {
				s.MarkDirty()
			}
			s.locate(ctx)
			continue
		case <-s.dirty:
			if wait := notBefore.Sub(s.clock()); wait > 0 {
				relist.Reset(wait)
				continue
			}
		case <-relist.C:
		}
		took, err := s.list(ctx)
		if ctx.Err() != nil {
			return
		}
		if failing = err != nil; failing {
			// A runtime that cannot answer in time gets as much time again.
			wait := retry
			if took > slowList {
				wait = max(wait, took)
				notBefore = s.clock().Add(wait)
			}
			relist.Reset(wait)
			retry = min(2*retry, retryLongest)
			continue
		}
		retry = retryFirst
		notBefore = s.clock()
		if took > slowList {
			notBefore = notBefore.Add(slowListFactor * took)
		}
		relist.Reset(relistEvery)
	}
}

// Refresh lists now when the last list is older than maxAge.
func (s *Syncer) Refresh(ctx context.Context, maxAge time.Duration) error {
	if s.clock().Sub(s.store.Snapshot().ListedAt) <= maxAge {
		return nil
	}
	_, err := s.list(ctx)
	return err
}

func (s *Syncer) list(ctx context.Context) (time.Duration, error) {
	started := s.clock()
	lctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	l, err := s.runtime.List(lctx)
	took := s.clock().Sub(started)
	if err != nil {
		err = fmt.Errorf("listing sandboxes and containers: %w", err)
		s.note(func(st *SyncState) bool {
			changed := st.ListError != err.Error()
			st.ListError = err.Error()
			return changed
		}, func() { s.log.WithError(err).Warn("the inventory is not current; nothing new is judged by it") })
		return took, err
	}
	l.Started, l.Finished = started, started.Add(took)
	s.store.ApplyListing(l)
	s.recover()
	s.note(func(st *SyncState) bool {
		changed := st.ListError != "" || !st.Listed
		st.Listed, st.ListedAt, st.ListError = true, l.Finished, ""
		return changed
	}, func() {
		s.log.WithFields(logrus.Fields{"sandboxes": len(l.Sandboxes), "containers": len(l.Containers)}).Info("inventory read from the runtime")
	})
	signal(s.changed)
	return took, nil
}

// recover reads what the lists do not carry for containers whose creation was
// not seen, from files only: no call per container reaches the runtime.
func (s *Syncer) recover() {
	var found []Recovered
	for _, p := range s.store.Snapshot().Pods {
		for _, c := range p.Containers {
			if !c.Running || c.OOMScoreAdj != nil {
				continue
			}
			if r, ok := s.tree.Recover(p.Cgroup, c); ok {
				found = append(found, r)
			}
		}
	}
	s.store.ApplyRecovered(found)
}

// locate finds the cgroups of containers that are not below their pod's: their
// runtime is asked for a process, a few times per container at most.
func (s *Syncer) locate(ctx context.Context) {
	const triesPerContainer = 5
	if s.clock().Before(s.askAfter) {
		return
	}
	var found []Recovered
	budget := askPerSecond
	present := map[string]bool{}
	for _, p := range s.store.Snapshot().Pods {
		for _, c := range p.Containers {
			present[c.ID] = true
			if !c.Running || c.Cgroup != "" || s.asked[c.ID] >= triesPerContainer || p.OwnCgroup && s.inTree(p) {
				continue
			}
			if _, ok := s.tree.Container(p.Cgroup, c.ID); ok {
				continue
			}
			if budget--; budget < 0 {
				continue
			}
			s.asked[c.ID]++
			r, err := s.ask(ctx, c)
			if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
				// A runtime that hangs is not asked for the others as well,
				// and its silence says nothing about this one.
				budget = 0
				s.askAfter = s.clock().Add(slowListFactor * askTimeout)
				s.asked[c.ID]--
			}
			if err == nil {
				found = append(found, r)
			}
		}
	}
	for id := range s.asked {
		if !present[id] {
			delete(s.asked, id)
		}
	}
	s.store.ApplyRecovered(found)
	if len(found) > 0 {
		signal(s.changed)
	}
}

// inTree says whether the pod's own cgroup is really there.
func (s *Syncer) inTree(p *Pod) bool { return s.store.InTree(p.UID, p.Cgroup) }

// errNoNumbers: the container's process or cgroup tells nothing (yet).
var errNoNumbers = errors.New("no process or no cgroup")

func (s *Syncer) ask(ctx context.Context, c Container) (Recovered, error) {
	actx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	pid, err := s.runtime.PID(actx, c.ID)
	if err != nil {
		return Recovered{}, err
	}
	if pid == 0 {
		return Recovered{}, errNoNumbers
	}
	path, err := s.tree.CgroupOf(pid)
	if err != nil {
		return Recovered{}, err
	}
	c.Cgroup = path
	r, ok := s.tree.Recover("", c)
	if !ok {
		return Recovered{}, errNoNumbers
	}
	r.ContainerID, r.Cgroup = c.ID, path
	return r, nil
}

// walk reads the pods' cgroup tree and says whether it holds surprises.
func (s *Syncer) walk() bool {
	paths, err := s.tree.Pods()
	if err != nil {
		s.note(func(st *SyncState) bool {
			changed := st.TreeError != err.Error()
			st.TreeError = err.Error()
			return changed
		}, func() {
			s.log.WithError(err).Warn("the pods' cgroup tree cannot be read; out-of-band changes go unnoticed until the next list")
		})
		return false
	}
	s.note(func(st *SyncState) bool {
		changed := st.TreeError != ""
		st.TreeError, st.TreeAt = "", s.clock()
		return changed
	}, func() { s.log.Info("the pods' cgroup tree can be read again") })
	surprise := s.store.ApplyTree(paths, s.clock())
	if surprise {
		signal(s.changed)
	}
	return surprise
}

// note changes the state under the lock and calls say, without it, when the
// change is worth a line.
func (s *Syncer) note(change func(*SyncState) bool, say func()) {
	s.mu.Lock()
	worth := change(&s.state)
	s.mu.Unlock()
	if worth {
		say()
	}
}
