package kube

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

const (
	// remembered bounds the UIDs of pods that ended; a node has a few hundred.
	remembered = 4096
	// goneFor is how long a pod that is gone is remembered as such.
	goneFor = 15 * time.Minute
	// staleAfter is how long a source may fail before one that does not is
	// believed in its place.
	staleAfter = 5 * time.Minute
)

// Store merges what the sources know, the best first: kubelet's Pods API, then
// the API server. Its methods may be called from any goroutine.
type Store struct {
	clock   func() time.Time
	changed chan struct{}

	mu         sync.RWMutex
	feeds      []*Feed // best first
	allocated  map[string]Allocation
	gone       map[string]time.Time // UID → when that was concluded
	labelsFrom map[string]bool      // namespaces whose pods' labels are kept
}

var _ inventory.Facts = (*Store)(nil)

// NewStore returns an empty store.
func NewStore(clock func() time.Time) *Store {
	return &Store{
		clock: clock, changed: make(chan struct{}, 1), gone: map[string]time.Time{}, labelsFrom: map[string]bool{},
	}
}

// Feed adds a source: inventory.FromPodsAPI or inventory.FromAPI. Better sources
// are believed first, whichever was added first.
func (s *Store) Feed(source inventory.Source) *Feed {
	f := &Feed{store: s, source: source, pods: map[string]entry{}, deleted: map[string]time.Time{}, state: FeedState{Source: source}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds = append(s.feeds, f)
	slices.SortStableFunc(s.feeds, func(a, b *Feed) int { return rankOf(a.source) - rankOf(b.source) })
	return f
}

func rankOf(s inventory.Source) int {
	if s == inventory.FromPodsAPI {
		return 0
	}
	return 1
}

// Changed is signalled after something changed that Pod, Gone or States tell.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// change applies f under the lock and signals if f says that it changed
// something.
func (s *Store) change(f func(now time.Time) bool) {
	s.mu.Lock()
	changed := f(s.clock())
	s.mu.Unlock()
	if !changed {
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// SetAllocations replaces what kubelet's file of allocated resources says, by
// UID; nil when it cannot be read. The store keeps the map.
func (s *Store) SetAllocations(all map[string]Allocation) {
	s.change(func(time.Time) bool {
		changed := !reflect.DeepEqual(s.allocated, all)
		s.allocated = all
		return changed
	})
}

// KeepLabels says of which namespaces' pods the labels are kept, from the next
// record on.
func (s *Store) KeepLabels(namespaces []string) {
	set := make(map[string]bool, len(namespaces))
	for _, ns := range namespaces {
		set[ns] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labelsFrom = set
}

func (s *Store) keepsLabels(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.labelsFrom[namespace]
}

// Record returns the best record of a pod.
func (s *Store) Record(uid string) (Record, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.best(uid)
	return e.Record, ok
}

// best finds the record to believe; mu is held. A source that has failed for
// long comes after one that has not.
func (s *Store) best(uid string) (entry, bool) {
	now := s.clock()
	var old entry
	found := false
	for _, f := range s.feeds {
		e, ok := f.pods[uid]
		if !ok {
			e, ok = f.pods[mirrorKey(uid)]
		}
		switch {
		case !ok:
		case f.failing.IsZero() || now.Sub(f.failing) < staleAfter:
			return e, true
		case !found:
			old, found = e, true
		}
	}
	return old, found
}

// Pod returns the facts of a pod.
func (s *Store) Pod(uid string) (inventory.PodFacts, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var facts inventory.PodFacts
	alloc, allocated := s.allocated[uid]
	e, known := s.best(uid)
	if !known {
		if !allocated || alloc.ContainersOnly { // its pod level may be anything
			return facts, false
		}
		// Neither the roles of the containers nor the overhead are known.
		memory, storage := alloc.bounds()
		value := func(b [2]int64) inventory.Value[int64] {
			return inventory.Value[int64]{Value: b[1], Source: inventory.FromAllocation, Slack: b[1] - b[0]}
		}
		facts.Request, facts.StorageRequest = value(memory), value(storage)
		return facts, true
	}
	r := &e.Record
	facts = inventory.PodFacts{
		Ref: r.Ref, Spec: r.Source, Static: r.Static, Labels: r.Labels, Tolerates: r.Tolerates,
		EndsBy: s.endsBy(uid), Finished: r.Finished(),
		// kubelet takes a pod without a priority for 0
		// (component-helpers/scheduling/corev1.PodPriority).
		Priority:       inventory.Value[int32]{Value: r.Priority, Source: r.Source, Exact: true},
		Request:        inventory.Value[int64]{Value: r.Memory, Source: r.Source, Exact: r.Exact},
		StorageRequest: inventory.Value[int64]{Value: r.EphemeralStorage, Source: r.Source, Exact: r.Exact},
	}
	if r.QoS != "" {
		facts.QoS = inventory.Value[string]{Value: string(r.QoS), Source: r.Source, Exact: true}
	}
	if allocated {
		memory, storage := r.shape.requests(&alloc)
		facts.Request = inventory.Value[int64]{Value: memory, Source: inventory.FromAllocation, Exact: true}
		facts.StorageRequest = inventory.Value[int64]{Value: storage, Source: inventory.FromAllocation, Exact: true}
	}
	return facts, true
}

// Ending says whether the pod is being deleted, by any source.
func (s *Store) Ending(uid string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.endsBy(uid).IsZero()
}

// endsBy is the earliest end that any source tells; mu is held.
func (s *Store) endsBy(uid string) time.Time {
	var by time.Time
	for _, f := range s.feeds {
		if e, ok := f.pods[uid]; ok && !e.Deleting.IsZero() && (by.IsZero() || e.Deleting.Before(by)) {
			by = e.Deleting
		}
	}
	return by
}

// Gone says whether the pod has ended for good: the Pods API said DELETED, and a
// list that was asked for after that does not have it (design §6).
func (s *Store) Gone(uid string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, gone := s.gone[uid]
	return gone
}

// concludeGone moves from deleted to gone what a list does not have; mu is held.
// DELETED alone means that kubelet's worker has finished, and absence alone may
// be a pod that kubelet has not taken up yet after a restart.
func (s *Store) concludeGone(deleted map[string]time.Time, listed map[string]entry, asked, now time.Time) {
	for uid, at := range deleted {
		if _, still := listed[uid]; !still && asked.After(at) {
			s.gone[uid] = now
			delete(deleted, uid)
		}
	}
	maps.DeleteFunc(s.gone, func(uid string, at time.Time) bool {
		_, back := listed[uid]
		return back || now.Sub(at) > goneFor
	})
}

// Known says whether some source tells what a pod is: it answers, or did a short
// while ago.
func (s *Store) Known() bool {
	now := s.clock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.feeds, func(f *Feed) bool {
		return !f.state.At.IsZero() && (f.failing.IsZero() || now.Sub(f.failing) < staleAfter)
	})
}

// States returns how current each source is, best first.
func (s *Store) States() []FeedState {
	s.mu.RLock()
	feeds := slices.Clone(s.feeds)
	s.mu.RUnlock()
	out := make([]FeedState, 0, len(feeds))
	for _, f := range feeds {
		out = append(out, f.State())
	}
	return out
}

// same says whether two records tell the same.
func same(a, b *Record) bool { return reflect.DeepEqual(a, b) }
