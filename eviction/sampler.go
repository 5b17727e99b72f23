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

const (
	// notFalling is how long a victim's usage may stand still before the next
	// victim is taken (design §9).
	notFalling = 2 * time.Second
	// fallStep is the least that counts as falling.
	fallStep = 1 * mi
	// killWatchdog is how long the kill may take to be sent before the fallback
	// thread takes over (bugs.md B15).
	killWatchdog = 100 * time.Millisecond
)

// Sampler is the fast half: it reads memory, decides, and hands the kill to the
// killer thread. Tick does not allocate, lock, log or look up a path.
type Sampler struct {
	mem     MeminfoSource
	scan    ScanSource // nil when the kernel has no pgscan_direct
	minFree uint64     // bytes
	clock   func() time.Time

	rules    atomic.Pointer[Rules]
	plan     atomic.Pointer[Plan]
	orders   chan<- *Decision
	observed chan<- *Decision
	stuck    chan<- *Decision

	// armed: the threshold may be acted on. One that was met when it was loaded
	// is not, until it was seen clear once.
	armed atomic.Bool

	core     core
	info     cgroupfs.Meminfo
	vm       cgroupfs.VMStat
	inflight *Decision

	latest latest
}

// latest is what the slow half may know of the last sample.
type latest struct {
	at, capacity, kernel, kubelet, available    atomic.Uint64
	swapFree, swapTotal                         atomic.Uint64
	samples, failures                           atomic.Uint64
	period                                      atomic.Int64 // ns
	lastMet, lastNotClear, metSince, lastVictim atomic.Int64 // unix ns, 0 = never
	met                                         atomic.Bool
	direct                                      atomic.Bool
	noVictim                                    atomic.Uint32
	action                                      atomic.Uint32
	failing                                     atomic.Bool
}

// newSampler wires a sampler; the channels must have room, a full one is never
// waited for.
func newSampler(mem MeminfoSource, scan ScanSource, minFree uint64, clock func() time.Time, orders, observed, stuck chan<- *Decision) *Sampler {
	return &Sampler{mem: mem, scan: scan, minFree: minFree, clock: clock, orders: orders, observed: observed, stuck: stuck}
}

// tick takes one sample and acts on it. It returns how long to wait.
func (s *Sampler) tick() time.Duration {
	rules := s.rules.Load()
	if rules == nil || rules.Amount == 0 {
		return periodCalm
	}
	s.core.rules = *rules
	var m MemorySample
	if !s.read(&m) {
		return periodNear
	}
	busy := s.busy(m.At)
	st := s.core.step(&m, busy)
	if !s.armed.Load() {
		if !st.verdict.Met {
			s.armed.Store(true)
		} else {
			st.action, s.core.met = waiting, 0
		}
	}
	s.publish(&m, &st)
	if st.action == decide {
		s.decide(&m, &st, rules)
	}
	return st.period
}

// read fills in one sample; false when there is none. A reading that fails or
// makes no sense is no sample: nothing is concluded from it.
func (s *Sampler) read(m *MemorySample) bool {
	if err := s.mem.Read(&s.info); err != nil {
		s.latest.failures.Add(1)
		s.latest.failing.Store(true)
		// What memory did meanwhile is unknown: neither short nor clear.
		s.latest.lastNotClear.Store(s.clock().UnixNano())
		s.core.met = 0
		return false
	}
	s.latest.failing.Store(false)
	m.At = s.clock()
	m.Capacity = s.info.MemTotal
	m.Kernel = s.info.KernelAvailable()
	m.Kubelet = s.info.KubeletAvailable()
	m.MinFree = s.minFree
	m.SwapTotal, m.SwapFree = s.info.SwapTotal, s.info.SwapFree
	// vmstat costs four times as much as meminfo; only where it can matter.
	if s.scan != nil && m.Kernel/2 < s.core.rules.Amount {
		if err := s.scan.Read(&s.vm); err == nil {
			m.DirectScan, m.HasDirectScan = s.vm.PgscanDirect, true
		}
	}
	return true
}

// busy says whether a kill is in flight that has to be waited for, and sees to
// it that a stuck one is noticed.
func (s *Sampler) busy(now time.Time) bool {
	d := s.inflight
	if d == nil {
		return false
	}
	if d.Rules.Observe {
		// Nothing was killed, so nothing will change: one line a minute is
		// enough, also where available hovers around the threshold.
		if now.Sub(d.At) >= observedFor {
			s.inflight = nil
		}
		return true
	}
	switch d.kill.at() {
	case killSettled, killAbandoned:
		// This sample may be older than the end of the kill: the next one
		// counts.
		if d.kill.at() == killSettled {
			s.core.pending.add(now, d.Candidates[d.Victim].Gain, d.Verdict.Available)
		}
		s.inflight = nil
		return true
	case killOrdered:
		// The killer thread may hang in the kill of an earlier victim.
		if !d.kill.claimed.Load() {
			s.watch(d, now.Sub(d.At))
		}
	case killIntent:
		s.watch(d, now.Sub(time.Unix(0, d.kill.intentAt.Load())))
	}
	if u, known := d.pod().usage(); known {
		if d.kill.lastFall.IsZero() || u+fallStep <= d.kill.lowest {
			d.kill.lowest, d.kill.lastFall = u, now
		}
	} else if d.kill.lastFall.IsZero() {
		d.kill.lastFall = now
	}
	if now.Sub(d.kill.lastFall) > notFalling {
		// It goes on dying in the slow half; the node cannot wait for it.
		s.inflight = nil
	}
	return true
}

// watch gives a kill that takes too long to the fallback thread, once.
func (s *Sampler) watch(d *Decision, since time.Duration) {
	if since <= killWatchdog || !d.kill.fallback.CompareAndSwap(false, true) {
		return
	}
	select {
	case s.stuck <- d:
	default:
		d.kill.fallback.Store(false) // the next tick tries again
	}
}

// decide measures every pod of the plan and takes the first by rank.
func (s *Sampler) decide(m *MemorySample, st *step, rules *Rules) {
	plan := s.plan.Load()
	if plan == nil || plan.decision == nil {
		s.latest.action.Store(uint32(waiting))
		return
	}
	d := plan.decision
	for i := range plan.Pods {
		if plan.barred[i] {
			d.Candidates[i] = plan.Pods[i].Candidate
			continue
		}
		plan.Pods[i].measure(&d.Candidates[i])
	}
	v := &st.verdict
	earlyBand := v.Available >= rules.Floor
	victim, why := choose(d.Candidates, plan.barred, earlyBand, RankOptions{
		Shortage: rules.Amount - min(rules.Amount, v.Available), SmallGainLast: rules.SmallGainLast,
	})
	s.latest.noVictim.Store(uint32(why))
	if victim < 0 {
		return
	}
	plan.decision = nil
	d.At, d.Victim, d.Sample, d.Verdict, d.Rules, d.EarlyBand = m.At, victim, *m, *v, *rules, earlyBand
	s.latest.lastVictim.Store(m.At.UnixNano())
	out := s.orders
	if rules.Observe {
		out = s.observed
	}
	s.inflight = d
	s.core.met = 0
	select {
	case out <- d:
	default:
		// The killer thread hangs and its queue is full: the fallback may still
		// take it. If not, a later plan tries again.
		if !rules.Observe {
			s.watch(d, 2*killWatchdog)
		}
		if !d.kill.fallback.Load() {
			d.kill.advance(killAbandoned)
		}
	}
}

func (s *Sampler) publish(m *MemorySample, st *step) {
	l := &s.latest
	now := m.At.UnixNano()
	l.capacity.Store(m.Capacity)
	l.kernel.Store(m.Kernel)
	l.kubelet.Store(m.Kubelet)
	l.available.Store(st.verdict.Available)
	l.swapFree.Store(s.info.SwapFree)
	l.swapTotal.Store(s.info.SwapTotal)
	l.period.Store(int64(st.period))
	l.direct.Store(st.verdict.DirectReclaim)
	l.action.Store(uint32(st.action))
	if st.verdict.Met {
		if !l.met.Load() {
			l.metSince.Store(now)
		}
		l.lastMet.Store(now)
	} else {
		l.noVictim.Store(uint32(Chosen))
	}
	l.met.Store(st.verdict.Met)
	if !st.cleared {
		l.lastNotClear.Store(now)
	}
	l.at.Store(uint64(now))
	l.samples.Add(1)
}
