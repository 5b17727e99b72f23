package eviction

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// Cgroup is what the fast half needs of a cgroup. Usage and Kill must not
// allocate, look up a path or take a lock (v2; on v1 Kill has to list the
// processes, the kernel offers nothing better).
type Cgroup interface {
	// Usage is memory.current or memory.usage_in_bytes, in bytes.
	Usage() (uint64, error)
	// InactiveFile and MemoryStat are read in the slow half only.
	InactiveFile() (uint64, error)
	MemoryStat(*cgroupfs.MemoryStat) error
	// Populated says whether any process is left in the subtree.
	Populated() (bool, error)
	// Kill ends every process of the subtree at once.
	Kill() (signalled int, err error)
	// KillByPidfd is the fallback without a write to the cgroup.
	KillByPidfd() (signalled int, err error)
	// Thaw undoes a freeze.
	Thaw() error
}

// PlanPod is one pod as the fast half sees it. All amounts are bytes.
type PlanPod struct {
	inventory.Ref
	Candidate Candidate // Usage, Gain and Known are filled in at decision time
	Request   inventory.Value[int64]
	// StorageRequest is the ephemeral-storage request.
	StorageRequest inventory.Value[int64]
	Priority       inventory.Value[int32]
	QoS            inventory.Value[string]
	// InactiveFile was read when the plan was built: page cache the kernel
	// takes back without a kill.
	InactiveFile uint64
	// VolumeBytes are files in memory emptyDirs. They stay after the stop until
	// kubelet unmounts the volumes, which it does once it is told of the eviction:
	// VolumesFreed.
	VolumeBytes  uint64
	VolumesFreed bool
	// Evicting is the decision of a soft eviction that has begun to stop the pod,
	// 0 for none. Its hold is written already.
	Evicting uint64
	// Ending: it is being deleted and will soon have given back what it has.
	Ending bool
	// Static: kubelet's own eviction never takes it, whatever we do.
	Static bool
	// Barred says why the pod cannot be a victim now; empty when it can.
	Barred string
	// NoDirect says why its cgroup is not killed directly, so that the victim
	// is stopped through CRI only; empty when it is.
	NoDirect string
	// CgroupPath and CgroupInode identify the pod's cgroup.
	CgroupPath  string
	CgroupInode uint64

	cgroups    []Cgroup // the pod's, or its containers' when it has none of its own
	paths      []string // of cgroups
	unmeasured bool     // InactiveFile could not be read yet: no numbers
	inPods     bool     // it is below the cgroup that allocatableMemory.available is about
	freezes    bool     // a direct kill uses the v1 freezer
	prepared   *holds.Prepared
	noHold     error // why no hold can be written for it
	sandboxes  []string
	containers []string
	repeat     uint32
}

// usage reads the pod's memory now.
func (p *PlanPod) usage() (uint64, bool) {
	var total uint64
	known := false
	for _, c := range p.cgroups {
		u, err := c.Usage()
		if err != nil {
			continue
		}
		known = true
		total += u
	}
	return total, known
}

// populated says whether any process of the pod is left; err when that cannot
// be told. A cgroup can only be removed when it is empty.
func (p *PlanPod) populated() (bool, error) {
	for _, c := range p.cgroups {
		if populated, err := c.Populated(); populated || err != nil && !errors.Is(err, cgroupfs.ErrGone) {
			return populated, err
		}
	}
	return false, nil
}

// measure fills in the candidate from a usage reading: working set = usage −
// inactive_file as kubelet has it, gain = working set less what stays behind.
// Other shared memory (MAP_SHARED, /dev/shm) is in the usage and in the gain: it
// ends with the pod's processes and its sandbox.
func (p *PlanPod) measure(c *Candidate) {
	*c = p.Candidate
	u, known := p.usage()
	c.Known = known && !p.unmeasured
	c.Usage = u - min(u, p.InactiveFile)
	c.Gain = c.Usage
	if !p.VolumesFreed {
		c.Gain -= min(c.Gain, p.VolumeBytes)
	}
	c.Evicting = p.Evicting != 0
}

// Plan is a ticket for one decision, and for a second one in an emergency:
// everything the fast half needs, prepared ahead. The slow half publishes a new one once a second and after
// each decision; until then no further victim can be taken.
type Plan struct {
	Generation uint64
	BuiltAt    time.Time
	listedAt   time.Time // of the runtime's lists it was made from; zero: of none
	Pods       []PlanPod
	barred     []bool
	// controlPlane: see planner.
	controlPlane []string
	pods         *podsView // nil: there is no allocatableMemory.available
	decision     *Decision // nil once it was used; touched by the sampler only
	// spare is for the second kill of an emergency, which must not wait for the
	// slow half: that may get no CPU just then.
	spare *Decision
}

// newPlan makes a plan with room for one decision.
func newPlan(generation uint64, at time.Time, pods []PlanPod) *Plan {
	p := &Plan{
		Generation: generation, BuiltAt: at, Pods: pods,
		barred: make([]bool, len(pods)),
	}
	p.decision, p.spare = p.room(), p.room()
	for i := range pods {
		p.barred[i] = pods[i].Barred != ""
	}
	return p
}

// room makes an empty decision about this plan's pods.
func (p *Plan) room() *Decision {
	return &Decision{Signal: MemoryAvailable, Plan: p, Candidates: make([]Candidate, len(p.Pods)), Victim: -1}
}

// Decision is one decision of the fast half with all its inputs.
type Decision struct {
	ID         uint64
	Signal     Signal
	At         time.Time
	Plan       *Plan
	Candidates []Candidate // as measured at the decision, in the plan's order
	Victim     int         // index into Plan.Pods
	Sample     MemorySample
	Verdict    MemoryVerdict
	Rules      Rules
	EarlyBand  bool
	// Outside: all pods that could be taken would together not give back what is
	// missing.
	Outside bool
	// OverBudget: it is only reported because killBudget is used up.
	OverBudget bool
	// Grace is what the victim gets to end by itself (hardMemoryGrace); 0: its
	// cgroup is killed at once.
	Grace time.Duration
	// soft is what a soft decision was made of; nil for a hard one.
	soft *SoftReport
	// slow is what one about disk, inodes or PIDs was made of; nil for memory.
	slow *slowDecision

	// bases are what was available by each hard signal at the decision, in bytes.
	bases [hardSignals]uint64
	kill  kill
}

// pod returns the victim.
func (d *Decision) pod() *PlanPod { return &d.Plan.Pods[d.Victim] }

// killState is how far a kill has come; it only moves forward.
type killState uint32

const (
	killOrdered   killState = iota // handed to the killer thread
	killIntent                     // the hold is visible, the kill is being sent
	killSent                       // the kill was sent, or is CRI's to do
	killSettled                    // verified: no process left, usage settled
	killAbandoned                  // given up
)

// kill is the shared state of one kill. The sampler reads state, the killer and
// the slow half write it.
type kill struct {
	state     atomic.Uint32
	sentAt    atomic.Int64 // unix ns
	intentAt  atomic.Int64 // unix ns
	emptyAt   atomic.Int64 // unix ns; when no process was left
	signalled atomic.Int64
	fallback  atomic.Bool // the watchdog gave it to the fallback thread
	claimed   atomic.Bool // by the one thread that writes its hold
	handed    atomic.Bool // to the slow half, by whichever thread came first
	// killErr may still be written when the fallback has handed the decision
	// over and the write that hung comes back.
	killErr atomic.Pointer[error]

	// Written by the claimer before killIntent, read afterwards.
	intentErr error
	numbers   holds.Numbers // here, not on the stack, so that no kill allocates

	// The sampler's own.
	lowest   uint64
	lastFall time.Time
	// what usage has fallen by since windowAt, and in the window before
	fell, pace, windowFrom uint64
	windowAt               time.Time
}

func (k *kill) at() killState { return killState(k.state.Load()) }

// failed notes an error of the direct kill.
func (k *kill) failed(err error) {
	if err != nil {
		e := err // so that only a failure allocates
		k.killErr.Store(&e)
	}
}

// err is the last error of the direct kill.
func (k *kill) err() error {
	if e := k.killErr.Load(); e != nil {
		return *e
	}
	return nil
}

// advance moves the state forward to s; it never moves it back.
func (k *kill) advance(s killState) {
	for {
		old := k.state.Load()
		if old >= uint32(s) || k.state.CompareAndSwap(old, uint32(s)) {
			return
		}
	}
}
