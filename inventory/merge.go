package inventory

import (
	"maps"
	"time"
)

// Apply takes an event of the proxy. An event that is older than the newest list
// adds what lists do not carry and changes nothing else.
func (s *Store) Apply(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Type {
	case SandboxWanted:
		s.wanted[e.Pod.UID] = e.Time
	case SandboxStarted:
		s.sandboxStarted(e)
	case SandboxStopped:
		if b := s.endOfSandbox(e); b != nil {
			b.Ready, b.stopped = false, e.Time
		}
		for _, c := range s.containers {
			if c.SandboxID == e.Sandbox.ID {
				c.Running, c.seen = false, e.Time
			}
		}
	case SandboxRemoved:
		if b := s.endOfSandbox(e); b != nil {
			b.gone = e.Time
		}
	case ContainerCreated:
		s.containerCreated(e)
	case ContainerStopped:
		if c := s.endOfContainer(e); c != nil {
			c.Running = false
		}
	case ContainerRemoved:
		if c := s.endOfContainer(e); c != nil {
			c.gone = e.Time
		}
	default:
		return
	}
	s.publish()
}

func (s *Store) sandboxStarted(e Event) {
	old, known := s.sandboxes[e.Sandbox.ID]
	switch {
	case !known && e.Time.Before(s.listedFrom):
		return // the list was asked for later and does not have it: it has ended
	case known && old.seen.After(e.Time):
		old.CgroupParent = e.Sandbox.CgroupParent
		return
	}
	s.sandboxes[e.Sandbox.ID] = &sandboxEntry{
		Sandbox: e.Sandbox, pod: e.Pod, labels: maps.Clone(e.Labels), annotations: maps.Clone(e.Annotations), seen: e.Time,
	}
}

func (s *Store) containerCreated(e Event) {
	old, known := s.containers[e.Container.ID]
	switch {
	case !known && e.Time.Before(s.listedFrom):
		return
	case known && old.seen.After(e.Time):
		old.OOMScoreAdj, old.MemoryLimit = e.Container.OOMScoreAdj, e.Container.MemoryLimit
		return
	}
	s.containers[e.Container.ID] = &containerEntry{Container: e.Container, seen: e.Time}
}

// endOfSandbox returns the entry whose end was told, nil when it is known to be
// gone.
func (s *Store) endOfSandbox(e Event) *sandboxEntry {
	b, known := s.sandboxes[e.Sandbox.ID]
	if !known {
		if e.Time.Before(s.listedFrom) {
			return nil
		}
		b = &sandboxEntry{Sandbox: Sandbox{ID: e.Sandbox.ID}, endOnly: true}
		s.sandboxes[e.Sandbox.ID] = b
	}
	b.seen = e.Time
	return b
}

func (s *Store) endOfContainer(e Event) *containerEntry {
	c, known := s.containers[e.Container.ID]
	if !known {
		if e.Time.Before(s.listedFrom) {
			return nil
		}
		c = &containerEntry{Container: Container{ID: e.Container.ID}, endOnly: true}
		s.containers[e.Container.ID] = c
	}
	c.seen = e.Time
	return c
}

// ListedSandbox is one entry of ListPodSandbox.
type ListedSandbox struct {
	Sandbox
	Pod         Ref
	Labels      map[string]string
	Annotations map[string]string
}

// Listing is what the runtime's lists said. Started is when the first call was
// sent: what events told after that moment is newer than the lists.
type Listing struct {
	Started    time.Time
	Finished   time.Time
	Sandboxes  []ListedSandbox
	Containers []Container
}

// ApplyListing merges the runtime's lists: they are the truth for everything
// that no event touched since they were asked for. Lists that were asked for
// before those applied last are dropped.
func (s *Store) ApplyListing(l Listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Started.Before(s.listedFrom) {
		return
	}
	s.listedFrom = l.Started
	s.mergeSandboxes(l)
	s.mergeContainers(l)
	s.forgetOldWanted(l.Started)
	s.listedAt = l.Finished
	s.publish()
}

func (s *Store) mergeSandboxes(l Listing) {
	listed := make(map[string]bool, len(l.Sandboxes))
	for _, b := range l.Sandboxes {
		listed[b.ID] = true
		entry := &sandboxEntry{Sandbox: b.Sandbox, pod: b.Pod, labels: b.Labels, annotations: b.Annotations, seen: l.Started}
		if old, known := s.sandboxes[b.ID]; known {
			newer := old.seen.After(l.Started)
			if newer && !old.endOnly {
				continue
			}
			if newer {
				entry.Ready, entry.seen, entry.stopped, entry.gone = false, old.seen, old.stopped, old.gone
			}
			if entry.CgroupParent == "" {
				entry.CgroupParent = old.CgroupParent
			}
		}
		s.sandboxes[b.ID] = entry
	}
	for id, b := range s.sandboxes {
		if ended(listed[id], b.seen, b.gone, l.Started) {
			delete(s.sandboxes, id)
		}
	}
}

func (s *Store) mergeContainers(l Listing) {
	listed := make(map[string]bool, len(l.Containers))
	for _, c := range l.Containers {
		listed[c.ID] = true
		entry := &containerEntry{Container: c, seen: l.Started}
		if old, known := s.containers[c.ID]; known {
			newer := old.seen.After(l.Started)
			if newer && !old.endOnly {
				continue
			}
			if newer {
				entry.Running, entry.seen, entry.gone = false, old.seen, old.gone
			}
			entry.OOMScoreAdj, entry.MemoryLimit, entry.Cgroup = old.OOMScoreAdj, old.MemoryLimit, old.Cgroup
		}
		if b, ok := s.sandboxes[c.SandboxID]; ok && b.stopped.After(l.Started) {
			entry.Running = false
		}
		s.containers[c.ID] = entry
	}
	for id, c := range s.containers {
		if ended(listed[id], c.seen, c.gone, l.Started) {
			delete(s.containers, id)
		}
	}
}

// ended says whether an entry is to be forgotten: a list that was asked for
// after it was last seen does not have it, or it was removed before.
func ended(listed bool, seen, gone, asked time.Time) bool {
	return !listed && !seen.After(asked) || !gone.IsZero() && !gone.After(asked)
}

// wantedFor bounds how long an attempt to run a pod without a sandbox is
// remembered; it exceeds the 2 min after which a pod counts as gone.
const wantedFor = 15 * time.Minute

func (s *Store) forgetOldWanted(now time.Time) {
	maps.DeleteFunc(s.wanted, func(_ string, at time.Time) bool { return now.Sub(at) > wantedFor })
}
