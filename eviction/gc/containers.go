package gc

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

const (
	// seenAge is how long something must have been over before it goes: kubelet
	// has then read its end, its termination message and its log long ago (bugs.md
	// B81). seenAgeHard is the same while a hard threshold is met: kubelet lists
	// every second and needs two of those (facts/kubelet.md §6.8).
	seenAge     = time.Minute
	seenAgeHard = 10 * time.Second
	// createdAge is when a container that was created and never started is taken
	// for abandoned: before that it may be between CreateContainer and
	// StartContainer.
	createdAge = 10 * time.Minute
)

// PodState is what is known of a pod beyond the runtime's lists. The zero value is
// that of a pod of which nothing is known; it counts as alive.
type PodState struct {
	// Gone: kubelet said DELETED and does not list it any more.
	Gone bool
	// Finished: its phase is Succeeded or Failed, and kubelet never starts it again.
	Finished bool
	// Static: from a file or URL. Nothing but the runtime's records says that it
	// has finished, so those are never its end.
	Static bool
	// Held: it was evicted, and what happens to it is the eviction's business.
	Held bool
}

// ContainerRules are the inputs of PlanContainers besides the lists.
type ContainerRules struct {
	Now time.Time
	// Hard: a hard threshold is met.
	Hard bool
	// Finished: the containers of pods that have finished may go. Their logs cannot
	// be read any more then, so that kubelet does it under pressure only.
	Finished bool
	// Pod tells what is known of a pod.
	Pod func(uid string) PodState
	// DeadFor is how long a container is known to be over at least, 0 when that is
	// not known.
	DeadFor func(containerID string) time.Duration
}

// age is how long things must have been over.
func (r *ContainerRules) age() time.Duration {
	if r.Hard {
		return seenAgeHard
	}
	return seenAge
}

// Kinds of what is removed.
const (
	KindContainer = "container"
	KindSandbox   = "sandbox"
	KindImage     = "image"
)

// ContainerStep is a dead container or sandbox, with why it goes or stays.
type ContainerStep struct {
	Kind string        `json:"kind"` // container or sandbox
	ID   string        `json:"id"`
	Pod  inventory.Ref `json:"pod"`
	// Name and State are those of a container.
	Name    string    `json:"name,omitempty"`
	State   string    `json:"state,omitempty"`
	Attempt uint32    `json:"attempt"`
	Created time.Time `json:"created"`
	Why     string    `json:"why"`

	rank int // what costs least goes first
	// needs are the containers that have to be removed before.
	needs []string
}

// The order in which things go: what nobody can ask for any more, what has a
// successor, and then the ends of finished pods, whose logs somebody may still
// want to read.
const (
	rankGone = iota
	rankOlder
	rankFinished
)

// PlanContainers says which containers and sandboxes are safe to remove, in which
// order, and why the other dead ones stay. It removes what kubelet's own container
// GC would (Kubernetes 1.37, pkg/kubelet/kuberuntime/kuberuntime_gc.go
// evictableContainers, evictSandboxes) where nothing that is not known could make
// that wrong: a record that is missing makes kubelet start something again, forget
// a back-off or count restarts anew (facts/kubelet.md §6.8).
func PlanContainers(l *Listing, r ContainerRules) (remove, keep []ContainerStep) {
	p := newContainerPlan(l, &r)
	for i := range l.Containers {
		p.container(&l.Containers[i])
	}
	for i := range l.Sandboxes {
		p.sandbox(&l.Sandboxes[i])
	}
	slices.SortStableFunc(p.remove, func(a, b ContainerStep) int {
		return cmp.Or(kindOrder(a.Kind)-kindOrder(b.Kind), a.rank-b.rank, a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return p.remove, p.keep
}

// kindOrder has containers go before the sandboxes they are in.
func kindOrder(kind string) int {
	if kind == KindContainer {
		return 0
	}
	return 1
}

// containerPlan is the work of one PlanContainers.
type containerPlan struct {
	rules     *ContainerRules
	sandboxes map[string]*Sandbox
	pods      map[string]*podPlan
	in        map[string][]*Container // by sandbox
	going     map[string]bool         // containers
	// newer is the earliest successor of a container in its unit, ended that of those
	// that have ended; after is the same of a sandbox in its pod.
	newer, ended map[*Container]*Container
	after        map[*Sandbox]*Sandbox
	remove       []ContainerStep
	keep         []ContainerStep
}

// podPlan is what a pod has.
type podPlan struct {
	state     PodState
	sandboxes []*Sandbox
	units     map[string][]*Container // by name
	// active: a sandbox is ready, or a container runs or may.
	active bool
}

func newContainerPlan(l *Listing, r *ContainerRules) *containerPlan {
	p := &containerPlan{
		rules: r, sandboxes: make(map[string]*Sandbox, len(l.Sandboxes)), pods: map[string]*podPlan{},
		in: map[string][]*Container{}, going: map[string]bool{},
		newer: map[*Container]*Container{}, ended: map[*Container]*Container{}, after: map[*Sandbox]*Sandbox{},
	}
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		p.sandboxes[s.ID] = s
		pod := p.pods[s.Pod.UID]
		if pod == nil {
			pod = &podPlan{units: map[string][]*Container{}}
			if s.Pod.UID != "" {
				pod.state = r.Pod(s.Pod.UID)
			}
			p.pods[s.Pod.UID] = pod
		}
		pod.sandboxes = append(pod.sandboxes, s)
		pod.active = pod.active || s.Ready
	}
	for i := range l.Containers {
		c := &l.Containers[i]
		p.in[c.SandboxID] = append(p.in[c.SandboxID], c)
		s, ok := p.sandboxes[c.SandboxID]
		if !ok {
			continue
		}
		pod := p.pods[s.Pod.UID]
		pod.units[c.Name] = append(pod.units[c.Name], c)
		pod.active = pod.active || c.State == Running || c.State == Unknown
	}
	for _, pod := range p.pods {
		p.order(pod)
	}
	return p
}

// order finds what came after what in a pod.
func (p *containerPlan) order(pod *podPlan) {
	for _, unit := range pod.units {
		stamps := make([]stamp, len(unit))
		for i, c := range unit {
			stamps[i] = stamp{c.Created, c.Attempt}
		}
		for i, j := range successors(stamps, func(int) bool { return true }) {
			if j >= 0 {
				p.newer[unit[i]] = unit[j]
			}
		}
		for i, j := range successors(stamps, func(i int) bool { return unit[i].State == Exited }) {
			if j >= 0 {
				p.ended[unit[i]] = unit[j]
			}
		}
	}
	stamps := make([]stamp, len(pod.sandboxes))
	for i, s := range pod.sandboxes {
		stamps[i] = stamp{s.Created, s.Attempt}
	}
	for i, j := range successors(stamps, func(int) bool { return true }) {
		if j >= 0 {
			p.after[pod.sandboxes[i]] = pod.sandboxes[j]
		}
	}
}

// container decides about one container.
func (p *containerPlan) container(c *Container) {
	if c.State == Running {
		return // nobody asks why
	}
	step := ContainerStep{Kind: KindContainer, ID: c.ID, Name: c.Name, State: c.State.String(), Attempt: c.Attempt, Created: c.Created}
	s, ok := p.sandboxes[c.SandboxID]
	if !ok {
		step.Why = "its sandbox is not listed, so its pod is not known"
		p.keep = append(p.keep, step)
		return
	}
	step.Pod = s.Pod
	goes := false
	step.rank, step.Why, goes = p.judge(c, s)
	if !goes {
		p.keep = append(p.keep, step)
		return
	}
	p.going[c.ID] = true
	p.remove = append(p.remove, step)
}

// judge says whether a container that does not run goes.
func (p *containerPlan) judge(c *Container, s *Sandbox) (rank int, why string, goes bool) {
	pod := p.pods[s.Pod.UID]
	switch {
	case s.Pod.UID == "":
		return 0, "its pod has no UID", false
	case c.State == Unknown:
		return 0, "its state is unknown", false
	case pod.state.Held:
		return 0, "its pod was evicted and is held", false
	}
	if rank, why, over := p.podOver(pod); over {
		if rank == rankFinished && p.rules.DeadFor(c.ID) < p.rules.age() {
			return 0, fmt.Sprintf("it is not known to be over for %s", p.rules.age()), false
		}
		return rank, why, true
	}
	return p.older(c)
}

// podOver says whether all of a pod's contents may go.
func (p *containerPlan) podOver(pod *podPlan) (rank int, why string, over bool) {
	switch {
	case pod.state.Static || pod.active:
	case pod.state.Gone:
		return rankGone, "its pod is gone", true
	case pod.state.Finished && p.rules.Finished:
		return rankFinished, "its pod has finished", true
	}
	return 0, "", false
}

// older says whether a container has a successor, so that its record is of no use
// any more: not to the restart count, not to the back-off, not to the status.
func (p *containerPlan) older(c *Container) (rank int, why string, goes bool) {
	newer := p.newer[c]
	switch {
	case newer == nil:
		return 0, "it is the newest of its name in a pod that is not over", false
	// What kubelet tells of the last end.
	case c.State == Exited && p.ended[c] == nil:
		return 0, "it is the newest of its name that has ended: its end, its message and its log are shown", false
	case c.State == Created && p.rules.Now.Sub(c.Created) < createdAge:
		return 0, fmt.Sprintf("it was created less than %s ago and may be started yet", createdAge), false
	// It had ended when its successor was created.
	case p.rules.Now.Sub(newer.Created) < p.rules.age():
		return 0, fmt.Sprintf("its successor is not %s old", p.rules.age()), false
	}
	if c.State == Created {
		return rankOlder, "it was never started, and a newer one of its name was made", true
	}
	return rankOlder, "a newer one of its name has ended too", true
}

// sandbox decides about one sandbox, after all containers.
func (p *containerPlan) sandbox(s *Sandbox) {
	if s.Ready {
		return
	}
	step := ContainerStep{Kind: KindSandbox, ID: s.ID, Pod: s.Pod, Attempt: s.Attempt, Created: s.Created}
	goes := false
	step.rank, step.Why, goes = p.judgeSandbox(s, &step)
	if goes {
		p.remove = append(p.remove, step)
	} else {
		p.keep = append(p.keep, step)
	}
}

func (p *containerPlan) judgeSandbox(s *Sandbox, step *ContainerStep) (rank int, why string, goes bool) {
	pod := p.pods[s.Pod.UID]
	switch {
	case s.Pod.UID == "":
		return 0, "its pod has no UID", false
	case pod.state.Held:
		return 0, "its pod was evicted and is held", false
	}
	for _, c := range p.in[s.ID] {
		if !p.going[c.ID] {
			return 0, "a container in it stays", false
		}
		step.needs = append(step.needs, c.ID)
	}
	if rank, why, over := p.podOver(pod); over && rank == rankGone {
		return rank, why, true
	}
	// The newest one carries the pod's attempt and its IP, also of a pod that has
	// finished: kubelet keeps it as well.
	newer := p.after[s]
	switch {
	case newer == nil:
		return 0, "it is the newest of its pod", false
	case p.rules.Now.Sub(newer.Created) < p.rules.age():
		return 0, fmt.Sprintf("its successor is not %s old", p.rules.age()), false
	}
	return rankOlder, "its pod has a newer one, and nothing is in it", true
}
