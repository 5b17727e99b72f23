package eviction

import (
	"sync/atomic"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// MeminfoSource reads /proc/meminfo without allocating.
type MeminfoSource interface {
	Read(*cgroupfs.Meminfo) error
}

// ScanSource reads /proc/vmstat without allocating.
type ScanSource interface {
	Read(*cgroupfs.VMStat) error
}

// RootSource reads what kubelet itself reads for the whole node
// (cgroupfs.RootMemory), without allocating.
type RootSource interface {
	Read() (usage, inactiveFile uint64, err error)
}

// Sampler is the fast half: it reads memory, decides, and hands the kill to the
// killer thread. Tick does not allocate, lock, log or look up a path.
type Sampler struct {
	mem     MeminfoSource
	root    RootSource // memoryAvailableFrom: kubelet; nil where there is none
	scan    ScanSource // nil when the kernel has no pgscan_direct
	minFree uint64     // bytes
	clock   func() time.Time

	plan      atomic.Pointer[Plan]
	orders    chan<- *Decision
	observed  chan<- *Decision
	stuck     chan<- *Decision
	elsewhere chan release

	hard        // memory.available
	allocatable hard

	// ticks counts rounds, whether they had a sample or not.
	ticks atomic.Uint64

	info cgroupfs.Meminfo
	vm   cgroupfs.VMStat
	// inflight is the kill that is waited for, of whichever signal; second is
	// another one that an emergency called for meanwhile.
	inflight, second *Decision
}

// hardSignals is how many hard memory signals there are.
const hardSignals = 2

// hards are the hard memory signals, the one that decides first first.
func (s *Sampler) hards() [hardSignals]*hard {
	return [hardSignals]*hard{&s.hard, &s.allocatable}
}

// hardOf returns the hard signal with this name, memory.available for any other.
func (s *Sampler) hardOf(sig Signal) *hard {
	if sig == AllocatableMemoryAvailable {
		return &s.allocatable
	}
	return &s.hard
}

// newSampler wires a sampler; the channels must have room, a full one is never
// waited for.
func newSampler(mem MeminfoSource, scan ScanSource, minFree uint64, clock func() time.Time, orders, observed, stuck chan<- *Decision) *Sampler {
	s := &Sampler{
		mem: mem, scan: scan, minFree: minFree, clock: clock, orders: orders, observed: observed, stuck: stuck,
		elsewhere: make(chan release, 64),
	}
	s.signal, s.allocatable.signal = MemoryAvailable, AllocatableMemoryAvailable
	s.latest.base = clock()
	s.allocatable.latest.base = s.latest.base
	return s
}

// use takes the rules of settings; a tick that has begun still uses the old
// ones.
func (s *Sampler) use(set *Settings) {
	memory, allocatable := set.Rules, set.Allocatable
	memory.KillBudget, allocatable.KillBudget = set.KillBudget, set.KillBudget
	memory.HardGrace, allocatable.HardGrace = set.HardGrace, set.HardGrace
	s.rules.Store(&memory)
	s.allocatable.rules.Store(&allocatable)
}

// rootPeriod is the least time between two readings of kubelet's own sources:
// a memory.stat costs the kernel a flush of per-CPU counts.
const rootPeriod = 10 * time.Millisecond

// tick takes one sample of each signal and acts on it. It returns how long to
// wait.
func (s *Sampler) tick() time.Duration {
	s.ticks.Add(1)
	period := periodCalm
	rules := s.rules.Load()
	if rules == nil {
		return period
	}
	var node, pods MemorySample
	nodeOK := s.readNode(&node, rules)
	podsOK := s.readPods(&pods)
	now := s.clock()
	s.takeReleases(now)
	busy, ended := s.follow(now)
	// Memory of the node comes first: what the pods may use together matters
	// less than what there is.
	if nodeOK {
		period = min(period, s.round(&s.hard, &node, rules, busy, ended))
		if rules.From == FromKubelet && s.root != nil {
			period = max(period, rootPeriod)
		}
	} else {
		period = periodNear
	}
	if podsOK {
		busy = busy || s.inflight != nil
		period = min(period, s.round(&s.allocatable, &pods, s.allocatable.rules.Load(), busy, ended))
	}
	return period
}

// round takes one sample of one signal and acts on it.
func (s *Sampler) round(h *hard, m *MemorySample, rules *Rules, busy, ended bool) time.Duration {
	h.core.rules = *rules
	st := h.core.step(m, busy)
	h.breaker.observe(m.At, st.verdict.Available, st.cleared)
	if !st.verdict.Met {
		h.armed.sawClear(rules)
	}
	switch {
	case !h.armed.armed(rules):
		st.action, h.core.met, h.core.past = waiting, 0, false
	case !ended && s.emergency(h, &st, m.At):
		st.action = decide
	}
	h.publish(m, &st)
	if st.action == decide {
		s.decide(h, m, &st, rules)
	}
	return st.period
}

// readNode fills in one sample of the node's memory; false when there is none. A
// reading that fails or makes no sense is no sample: nothing is concluded from
// it.
func (s *Sampler) readNode(m *MemorySample, rules *Rules) bool {
	err := s.mem.Read(&s.info)
	m.Kubelet = s.info.KubeletAvailable()
	if err == nil && rules.From == FromKubelet && s.root != nil {
		var usage, inactive uint64
		usage, inactive, err = s.root.Read()
		m.Kubelet = cgroupfs.KubeletAvailableFrom(s.info.MemTotal, usage, inactive, s.info.HugePools())
	}
	m.At = s.clock()
	if err != nil {
		s.noSample(m.At)
		return false
	}
	m.Capacity = s.info.MemTotal
	m.Kernel = s.info.KernelAvailable()
	s.latest.hugePools.Store(s.info.HugePools())
	m.MinFree = s.minFree
	m.SwapTotal, m.SwapFree = s.info.SwapTotal, s.info.SwapFree
	// vmstat costs four times as much as meminfo; only where it can matter.
	if s.scan != nil && m.Kernel/2 < rules.Amount {
		if err := s.scan.Read(&s.vm); err == nil {
			m.DirectScan, m.HasDirectScan = s.vm.PgscanDirect, true
		}
	}
	return true
}

// readPods fills in one sample of the pods' memory; false when there is none.
func (s *Sampler) readPods(m *MemorySample) bool {
	h := &s.allocatable
	plan := s.plan.Load()
	if h.rules.Load() == nil || plan == nil || plan.pods == nil {
		if h.latest.at.Load() != 0 || !h.latest.absent.Load() {
			h.none()
		}
		return false
	}
	err := plan.pods.sample(m)
	m.At = s.clock()
	if err != nil {
		h.noSample(m.At)
		return false
	}
	return true
}

// ticket returns the decision to fill in, nil when the plan has none left: a plan
// is good for one, and for a second one while the first is in flight.
func (s *Sampler) ticket(plan *Plan) *Decision {
	switch {
	case plan == nil:
		return nil
	case plan.decision != nil:
		return plan.decision
	case plan.spare != nil && s.inflight != nil && s.inflight.Plan == plan:
		return plan.spare
	}
	return nil
}

// measure measures every pod of the plan for a decision about this signal.
func (s *Sampler) measure(h *hard, d *Decision) {
	plan := d.Plan
	for i := range plan.Pods {
		p, c := &plan.Pods[i], &d.Candidates[i]
		if plan.barred[i] {
			*c = p.Candidate
			continue
		}
		p.measure(c)
		// The plan may be older than what is in flight, which is one kill at most
		// when another is decided on.
		dying := s.inflight != nil && s.inflight.pod().UID == p.UID
		c.Out = dying || h == &s.allocatable && !p.inPods
	}
}

// decide measures every pod of the plan and takes the first by rank.
func (s *Sampler) decide(h *hard, m *MemorySample, st *step, rules *Rules) {
	plan := s.plan.Load()
	d := s.ticket(plan)
	if d == nil {
		h.latest.action.Store(uint32(waiting))
		return
	}
	v := &st.verdict
	observe, why := rules.Observe, Chosen
	if !observe {
		if why = h.breaker.stops(m.At); why != Chosen && !rules.AsKubelet.NoBreakers {
			h.notNow(m.At, why)
			return
		}
		why = Chosen
		if v.Available >= rules.Floor && h.breaker.spent(m.At, rules.KillBudget) {
			observe, why = true, BudgetSpent
		}
	}
	// Nothing is killed then, so nothing will change: one report a minute is
	// enough, also where available hovers around the threshold.
	if observe && !h.observedAt.IsZero() && m.At.Sub(h.observedAt) < observedFor {
		h.notNow(m.At, why)
		return
	}
	s.measure(h, d)
	earlyBand := v.Available >= rules.Floor
	victim, none := chooseHard(d.Candidates, plan.barred, v.Available, rules.Floor, rules.rankBy(v.Available))
	if victim < 0 {
		h.latest.nobody(none)
		return
	}
	outside := allGain(d.Candidates, plan.barred)+st.coming+s.underWay() < rules.Amount+rules.MinReclaim-v.Available
	outside = outside && !rules.AsKubelet.NoBreakers
	if outside && !observe && h.breaker.outside {
		h.notNow(m.At, OutsidePressure)
		return
	}
	h.latest.nobody(why)
	if d == plan.decision {
		plan.decision = nil
	} else {
		plan.spare = nil
	}
	d.Signal, d.At, d.Victim, d.Sample, d.Verdict, d.Rules, d.EarlyBand = h.signal, m.At, victim, *m, *v, *rules, earlyBand
	d.Outside, d.bases = outside, s.bases()
	// Below half the threshold nobody gets time, and who is being stopped softly
	// had it.
	if (!v.Half || rules.AsKubelet.GraceBelowHalf) && !d.Candidates[victim].Evicting {
		d.Grace = rules.HardGrace
	}
	d.Rules.Observe, d.OverBudget = observe, why == BudgetSpent
	if observe {
		h.observedAt = m.At
		select {
		case s.observed <- d:
		default: // the slow half is behind; a later plan tries again
		}
		return
	}
	h.latest.lastVictim.Store(h.latest.of(m.At))
	s.order(h, d)
}

// underWay is what the kills in flight will give back, in bytes.
func (s *Sampler) underWay() uint64 {
	var total uint64
	for _, d := range [...]*Decision{s.inflight, s.second} {
		if d != nil {
			total += d.Candidates[d.Victim].Gain
		}
	}
	return total
}

// order sends the decision to the killer thread.
func (s *Sampler) order(h *hard, d *Decision) {
	v := &d.Verdict
	h.core.met, h.core.line = 0, emergencyLine(d.Rules.Amount, v.Available)
	h.breaker.note(d.At, d.Candidates[d.Victim].Gain, v.Available, d.Outside)
	h.publishBreaker(d.At)
	if s.inflight == nil {
		s.inflight = d
	} else {
		s.second = d
	}
	select {
	case s.orders <- d:
	default:
		// The killer thread hangs and its queue is full: the fallback may still
		// take it. If not, a later plan tries again.
		s.watch(d, 2*killWatchdog)
		if !d.kill.fallback.Load() {
			d.kill.advance(killAbandoned)
		}
	}
}
