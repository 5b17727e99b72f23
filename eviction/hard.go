package eviction

import (
	"sync/atomic"
	"time"
)

// hard is one hard memory threshold in the fast half. rules, armed and latest
// are shared with the slow half, the rest is the sampler's own.
type hard struct {
	signal Signal
	rules  atomic.Pointer[Rules]
	// A threshold that was met when it was loaded is not acted on until it was
	// seen clear once.
	armed arming

	core    core
	breaker breaker
	// observedAt is when a decision was last only reported.
	observedAt time.Time

	latest latest
	// breached is signalled when the threshold begins to be met; nobody waits.
	breached chan<- struct{}
}

// latest is what the slow half may know of the last sample of a signal. Times are
// stamps, 0 for never.
type latest struct {
	stamps
	at, capacity, kernel, kubelet, available    atomic.Uint64 // at: 0 = there is no number
	swapFree, swapTotal                         atomic.Uint64
	coming                                      atomic.Uint64 // bytes that kills that are over will still give back
	samples, failures                           atomic.Uint64
	period                                      atomic.Int64 // ns
	lastMet, lastNotClear, metSince, lastVictim atomic.Int64
	met                                         atomic.Bool
	direct                                      atomic.Bool
	noVictim                                    atomic.Uint32
	action                                      atomic.Uint32
	failing                                     atomic.Bool
	extremes                                    extremes // of available
	// absent: the kernel has no such number, which is no failure.
	absent atomic.Bool
	// breaker is the NoVictim of the breaker that is open until breakerUntil;
	// Chosen when none is.
	breaker      atomic.Uint32
	breakerUntil atomic.Int64
	// hugePools is what is set aside for huge pages, in bytes.
	hugePools atomic.Uint64
	// checked is kubelet's reading from its own sources, taken at checkedAt (0:
	// not known) by the slow half.
	checked   atomic.Uint64
	checkedAt atomic.Int64
	// timeTo is how long the threshold is away at the present rate, in ns; -1
	// while available is not shrinking.
	timeTo   atomic.Int64
	episodes episodes
}

// nobody notes why nobody is taken, Chosen when somebody is.
func (l *latest) nobody(why NoVictim) {
	l.noVictim.Store(uint32(why))
	l.episodes.note(why)
}

// amount is the threshold in bytes, 0 when it is off.
func (h *hard) amount() uint64 {
	if r := h.rules.Load(); r != nil {
		return r.Amount
	}
	return 0
}

// noSample notes that there is no number: what memory did meanwhile is unknown,
// neither short nor clear.
func (h *hard) noSample(now time.Time) {
	h.latest.failures.Add(1)
	h.latest.failing.Store(true)
	h.latest.lastNotClear.Store(h.latest.of(now))
	h.core.met = 0
}

// none notes that the kernel has no such number. Nothing is concluded from that.
func (h *hard) none() {
	l := &h.latest
	h.core.met = 0
	l.at.Store(0)
	l.met.Store(false)
	l.failing.Store(false)
	l.absent.Store(true)
	l.noVictim.Store(uint32(Chosen))
}

func (h *hard) publish(m *MemorySample, st *step) {
	l := &h.latest
	now := l.of(m.At)
	l.failing.Store(false)
	l.absent.Store(false)
	l.capacity.Store(m.Capacity)
	l.kernel.Store(m.Kernel)
	l.kubelet.Store(m.Kubelet)
	l.available.Store(st.verdict.Available)
	l.extremes.note(st.verdict.Available)
	l.swapFree.Store(m.SwapFree)
	l.swapTotal.Store(m.SwapTotal)
	l.coming.Store(st.coming)
	l.period.Store(int64(st.period))
	l.direct.Store(st.verdict.DirectReclaim)
	l.action.Store(uint32(st.action))
	l.timeTo.Store(-1)
	if d, ok := h.core.pace.timeTo(st.verdict.Available, h.core.rules.Amount); ok {
		l.timeTo.Store(int64(d))
	}
	l.episodes.sample(st.verdict.Met)
	if st.verdict.Met && !h.armed.armed(&h.core.rules) {
		l.episodes.note(Unarmed)
	}
	began := st.verdict.Met && !l.met.Load()
	if st.verdict.Met {
		if began {
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
	h.publishBreaker(m.At)
	l.at.Store(uint64(now))
	l.samples.Add(1)
	if began {
		select {
		case h.breached <- struct{}{}:
		default:
		}
	}
}

func (h *hard) publishBreaker(now time.Time) {
	until, why := h.breaker.state(now)
	h.latest.breaker.Store(uint32(why))
	if why == Chosen {
		h.latest.breakerUntil.Store(0)
	} else {
		h.latest.breakerUntil.Store(h.latest.of(until))
	}
}

// notNow notes why nobody is taken.
func (h *hard) notNow(now time.Time, why NoVictim) {
	h.latest.nobody(why)
	h.latest.action.Store(uint32(waiting))
	h.publishBreaker(now)
}
