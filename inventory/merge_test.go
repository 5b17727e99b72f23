package inventory

import (
	"testing"
	"time"
)

// at is a moment of the tests' clock.
func at(seconds int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

func pod(name string) Ref { return Ref{Namespace: "default", Name: name, UID: "uid-" + name} }

func listed(id, name string, ready bool) ListedSandbox {
	return ListedSandbox{Sandbox: Sandbox{ID: id, Ready: ready, Created: at(0)}, Pod: pod(name)}
}

func started(when int, id, name, parent string) Event {
	return Event{Type: SandboxStarted, Time: at(when), Pod: pod(name), Sandbox: Sandbox{ID: id, Ready: true, Created: at(when), CgroupParent: parent}}
}

func created(when int, id, sandbox string, adj, limit int64) Event {
	return Event{Type: ContainerCreated, Time: at(when), Container: Container{ID: id, SandboxID: sandbox, Running: true, Created: at(when), OOMScoreAdj: &adj, MemoryLimit: &limit}}
}

func ended1(typ EventType, when int, id string) Event {
	return Event{Type: typ, Time: at(when), Sandbox: Sandbox{ID: id}, Container: Container{ID: id}}
}

// state is the inventory as text: pods with their sandboxes and containers;
// a "-" marks one that has stopped.
func state(s *Store) string {
	out := ""
	for _, p := range s.Snapshot().Pods {
		out += p.Name + "["
		for _, b := range p.Sandboxes {
			out += b.ID + mark(b.Ready)
		}
		out += "|"
		for _, c := range p.Containers {
			out += c.ID + mark(c.Running)
		}
		out += "]"
	}
	return out
}

func mark(runs bool) string {
	if runs {
		return ""
	}
	return "-"
}

// step is an event, or a list asked for at one time and applied at its place.
type step struct {
	event Event
	list  *Listing
}

func list(asked int, sandboxes []ListedSandbox, containers ...Container) step {
	return step{list: &Listing{Started: at(asked), Finished: at(asked + 1), Sandboxes: sandboxes, Containers: containers}}
}

func on(e Event) step { return step{event: e} }

func run(id, sandbox string) Container {
	return Container{ID: id, SandboxID: sandbox, Running: true, Created: at(0)}
}

// Events and lists arrive in any order; what happened last counts.
func TestWhatHappenedLastCounts(t *testing.T) {
	one := []ListedSandbox{listed("s1", "a", true)}
	for _, tt := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"events alone", []step{on(started(1, "s1", "a", "")), on(created(2, "c1", "s1", 1000, 0))}, "a[s1|c1]"},
		{"list alone", []step{list(1, one, run("c1", "s1"))}, "a[s1|c1]"},
		{"a list asked for before the start lacks it", []step{on(started(2, "s1", "a", "")), on(created(3, "c1", "s1", 1000, 0)), list(1, nil)}, "a[s1|c1]"},
		{"a list asked for after the start lacks it", []step{on(started(1, "s1", "a", "")), on(created(1, "c1", "s1", 1000, 0)), list(2, nil)}, ""},
		{"a list asked for before the stop has it", []step{list(1, one, run("c1", "s1")), on(ended1(SandboxStopped, 3, "s1")), list(2, one, run("c1", "s1"))}, "a[s1-|c1-]"},
		{"a list asked for after the stop", []step{list(1, one, run("c1", "s1")), on(ended1(SandboxStopped, 2, "s1")), list(3, one, run("c1", "s1"))}, "a[s1|c1]"},
		{"removed while listing", []step{list(1, one, run("c1", "s1")), on(ended1(SandboxRemoved, 3, "s1")), list(2, one, run("c1", "s1"))}, ""},
		{"removed while the first list is under way", []step{on(ended1(SandboxRemoved, 2, "s1")), list(1, one, run("c1", "s1"))}, ""},
		{"stopped while the first list is under way", []step{on(ended1(SandboxStopped, 2, "s1")), list(1, one, run("c1", "s1"))}, "a[s1-|c1-]"},
		{"container removed while the first list is under way", []step{on(ended1(ContainerRemoved, 2, "c1")), list(1, one, run("c1", "s1"))}, "a[s1|]"},
		{"container stopped while the first list is under way", []step{on(ended1(ContainerStopped, 2, "c1")), list(1, one, run("c1", "s1"))}, "a[s1|c1-]"},
		{"then the next list decides", []step{on(ended1(SandboxStopped, 2, "s1")), list(1, one, run("c1", "s1")), list(3, one, run("c1", "s1"))}, "a[s1|c1]"},
		{"the end of something nobody knows", []step{on(ended1(SandboxStopped, 1, "s9")), on(ended1(ContainerRemoved, 1, "c9"))}, ""},
		{"container stopped", []step{list(1, one, run("c1", "s1")), on(ended1(ContainerStopped, 2, "c1"))}, "a[s1|c1-]"},
		{"container removed", []step{list(1, one, run("c1", "s1")), on(ended1(ContainerRemoved, 2, "c1"))}, "a[s1|]"},
		{"a removal the runtime undid", []step{list(1, one), on(ended1(SandboxRemoved, 2, "s1")), list(3, one)}, "a[s1|]"},
		{"an older list comes after a newer one", []step{list(1, one, run("c1", "s1")), list(3, nil), list(2, one, run("c1", "s1"))}, ""},
		{"a start that is told after a newer list", []step{list(2, nil), on(started(1, "s1", "a", "")), on(created(1, "c1", "s1", 1, 1))}, ""},
		{"a start told late of one that has stopped", []step{list(2, []ListedSandbox{listed("s1", "a", false)}), on(started(1, "s1", "a", ""))}, "a[s1-|]"},
		{"a container whose sandbox is not known", []step{on(created(1, "c1", "s9", 1, 1))}, ""},
		{"two attempts of one pod", []step{list(1, []ListedSandbox{listed("s1", "a", false)}), on(started(2, "s2", "a", ""))}, "a[s2s1-|]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStore(Options{})
			for _, st := range tt.steps {
				if st.list != nil {
					s.ApplyListing(*st.list)
				} else {
					s.Apply(st.event)
				}
			}
			if got := state(s); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What only a request carries survives the lists, also when the event is late.
func TestListsKeepWhatTheyDoNotCarry(t *testing.T) {
	const parent = "/kubepods/burstable/poduid-a"
	for _, late := range []bool{false, true} {
		s := NewStore(Options{MemTotal: 1000})
		events := []Event{started(1, "s1", "a", parent), created(1, "c1", "s1", 500, 77)}
		lists := Listing{Started: at(2), Finished: at(3), Sandboxes: []ListedSandbox{listed("s1", "a", true)}, Containers: []Container{run("c1", "s1")}}
		if late {
			s.ApplyListing(lists)
		}
		for _, e := range events {
			s.Apply(e)
		}
		if !late {
			s.ApplyListing(lists)
		}
		p, ok := s.Snapshot().Pod("uid-a")
		if !ok || p.Cgroup != parent || len(p.Containers) != 1 || p.Containers[0].OOMScoreAdj == nil || *p.Containers[0].MemoryLimit != 77 {
			t.Errorf("late %v: %+v", late, p)
		}
	}
}

func TestRecovered(t *testing.T) {
	s := NewStore(Options{MemTotal: 1000})
	s.ApplyListing(Listing{Started: at(1), Sandboxes: []ListedSandbox{listed("s1", "a", true)}, Containers: []Container{run("c1", "s1"), run("c2", "s1")}})
	s.Apply(created(2, "c2", "s1", 300, 7))
	before := s.Snapshot()
	s.ApplyRecovered(nil)
	if s.Snapshot() != before {
		t.Error("nothing recovered, but a new snapshot")
	}
	s.ApplyRecovered([]Recovered{{ContainerID: "c1", OOMScoreAdj: 500, MemoryLimit: 9, Cgroup: "/x"}, {ContainerID: "c2", OOMScoreAdj: 1}, {ContainerID: "gone"}})
	p, _ := s.Snapshot().Pod("uid-a")
	if c := p.Containers[0]; *c.OOMScoreAdj != 500 || *c.MemoryLimit != 9 || c.Cgroup != "/x" {
		t.Errorf("%+v", c)
	}
	if c := p.Containers[1]; *c.OOMScoreAdj != 300 {
		t.Errorf("what the request said was overwritten: %d", *c.OOMScoreAdj)
	}
	if old, _ := before.Pod("uid-a"); old.Containers[0].OOMScoreAdj != nil {
		t.Error("a snapshot that was handed out has changed")
	}
}

func TestWanted(t *testing.T) {
	s := NewStore(Options{})
	s.Apply(Event{Type: SandboxWanted, Time: at(5), Pod: pod("a")})
	s.Apply(started(6, "s1", "a", ""))
	if !s.Wanted("uid-a").Equal(at(5)) {
		t.Errorf("wanted %v", s.Wanted("uid-a"))
	}
	if p, _ := s.Snapshot().Pod("uid-a"); !p.LastWanted.Equal(at(5)) {
		t.Errorf("pod says %v", p.LastWanted)
	}
	// Remembered longer than the 2 min after which a pod counts as gone, but
	// not for ever.
	s.ApplyListing(Listing{Started: at(5 + 3*60)})
	if s.Wanted("uid-a").IsZero() {
		t.Error("forgotten after 3 min")
	}
	s.ApplyListing(Listing{Started: at(5 + 16*60)})
	if !s.Wanted("uid-a").IsZero() {
		t.Error("not forgotten after 16 min")
	}
	s.Apply(Event{Type: SandboxWanted, Time: at(5), Pod: pod("a")})
	s.ForgetWanted("uid-a")
	if !s.Wanted("uid-a").IsZero() {
		t.Error("not forgotten when told so")
	}
}

func TestSnapshotsRise(t *testing.T) {
	s := NewStore(Options{})
	last := s.Snapshot().Generation
	for i, e := range []Event{started(1, "s1", "a", ""), created(2, "c1", "s1", 1, 1), ended1(SandboxStopped, 3, "s1"), ended1(SandboxRemoved, 4, "s1")} {
		s.Apply(e)
		if g := s.Snapshot().Generation; g <= last {
			t.Errorf("event %d: generation %d after %d", i, g, last)
		} else {
			last = g
		}
	}
	s.Apply(Event{Type: Dirty})
	if g := s.Snapshot().Generation; g != last {
		t.Error("dirty is no change")
	}
}
