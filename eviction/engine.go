package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// Holds is what the engine needs of the holds file.
type Holds interface {
	HoldWriter
	Records() []holds.Record
	Update(r holds.Record) error
	Put(r holds.Record) error
	Remove(id uint64) error
	// Repair puts the file back after somebody removed it, and says whether it
	// had to.
	Repair() (bool, error)
}

// Ledger is the durable memory. Its methods may be slow; none is called on the
// way to a kill.
type Ledger interface {
	Load() (records []holds.Record, bootID string, err error)
	SetBootID(id string) error
	AppendDecision(id uint64, json []byte) error
	Decisions(limit int) ([]json.RawMessage, error)
	SetRepeat(uid string, n uint32, last time.Time) error
	Repeats() (map[string]holds.Repeat, error)
	DeleteRepeat(uid string) error
}

// Copier copies the holds file to the ledger until ctx ends.
type Copier interface {
	Run(ctx context.Context)
	// Problem is why the last copy failed, nil when all is well.
	Problem() error
}

// Parts are what the engine works with.
type Parts struct {
	Store  *inventory.Store
	Syncer *inventory.Syncer
	Holds  Holds
	Ledger Ledger // nil: nothing is remembered over a power cut
	// Copier copies the holds file to the ledger; nil without one. It is
	// started after the holds were restored, because its first copy replaces
	// what the ledger has.
	Copier Copier
	// LedgerProblem says why there is no ledger.
	LedgerProblem error
	Runtime       Runtime
	Cgroups       Cgroups
	Thaw          func(path string) error
	Meminfo       MeminfoSource
	Scan          ScanSource // nil when the kernel has no pgscan_direct
	MinFree       uint64     // bytes
	BootID        string
	Clock         func() time.Time
	Log           logrus.FieldLogger
	// Armed remembers which threshold was seen clear; nil: every threshold is
	// acted on at once.
	Armed Armed
	// BetweenIntentAndKill is called by the killer thread; nil outside of tests
	// that break off there.
	BetweenIntentAndKill func()
}

// Engine runs both halves.
type Engine struct {
	set     atomic.Pointer[Settings]
	store   *inventory.Store
	syncer  *inventory.Syncer
	holds   Holds
	ledger  Ledger
	copier  Copier
	runtime Runtime
	cgroups Cgroups
	thaw    func(path string) error
	bootID  string
	clock   func() time.Time
	log     logrus.FieldLogger

	sampler  *Sampler
	killer   *killer
	planner  *planner
	orders   chan *Decision
	stuck    chan *Decision
	decided  chan *Decision
	observed chan *Decision
	replan   chan struct{}
	persist  chan Report
	history  history
	started  time.Time

	finishing sync.WaitGroup

	mu          sync.Mutex
	pending     map[string]string // UID → why its pod is barred: a kill in progress
	repeats     map[string]holds.Repeat
	lastRelease time.Time
	absent      map[string]time.Time
	unkillable  map[string]time.Time // UID → when its kill was given up
	ledgerError string
	holdsError  string
	realtime    []string
	saidNone    NoVictim

	armed      Armed
	armedSaved bool // the loop's own

	running atomic.Bool
}

// New wires an engine; Run does the work.
func New(set Settings, p Parts) (*Engine, error) {
	if p.Meminfo == nil || p.Store == nil || p.Syncer == nil || p.Holds == nil || p.Runtime == nil || p.Cgroups == nil || p.Clock == nil || p.Log == nil {
		return nil, errors.New("eviction: a part is missing")
	}
	e := &Engine{
		store: p.Store, syncer: p.Syncer, holds: p.Holds, ledger: p.Ledger, copier: p.Copier, runtime: p.Runtime,
		cgroups: p.Cgroups, thaw: p.Thaw, bootID: p.BootID, clock: p.Clock, log: p.Log,
		planner:    newPlanner(p.Cgroups, set.Protection, p.Log),
		orders:     make(chan *Decision, 4),
		stuck:      make(chan *Decision, 4),
		decided:    make(chan *Decision, 64),
		observed:   make(chan *Decision, 4),
		replan:     make(chan struct{}, 1),
		persist:    make(chan Report, 256),
		pending:    map[string]string{},
		repeats:    map[string]holds.Repeat{},
		unkillable: map[string]time.Time{},
		absent:     map[string]time.Time{},
		started:    p.Clock(),
	}
	e.set.Store(&set)
	if p.LedgerProblem != nil {
		e.ledgerError = p.LedgerProblem.Error()
	}
	e.sampler = newSampler(p.Meminfo, p.Scan, p.MinFree, p.Clock, e.orders, e.observed, e.stuck)
	e.sampler.rules.Store(&set.Rules)
	e.armed = p.Armed
	e.sampler.armed.Store(p.Armed == nil || set.Rules.Observe || e.armedBefore())
	e.killer = &killer{holds: p.Holds, clock: p.Clock, done: e.decided, between: p.BetweenIntentAndKill}
	return e, nil
}

// Run restores what a previous process left, starts both halves and returns
// when ctx has ended and everything has stopped. Kills under way keep their
// holds; the next start resumes them.
func (e *Engine) Run(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("eviction: already running")
	}
	w, err := newWaker()
	if err != nil {
		return err
	}
	defer w.close()
	resume := e.restore(ctx)

	var slow, fast sync.WaitGroup
	slow.Go(func() { e.syncer.Run(ctx) })
	slow.Go(func() { e.keepLedger(ctx) })
	if e.copier != nil {
		slow.Go(func() { e.copier.Run(ctx) })
	}
	for _, d := range resume {
		e.start(ctx, d, OutcomeResumed)
	}
	e.publishPlan()

	stop := make(chan struct{})
	var samplerDone sync.WaitGroup
	samplerDone.Go(func() { e.sample(w, stop) })
	fast.Go(func() {
		e.degraded("killer", enterRealtime())
		e.killer.run(e.orders)
	})
	fast.Go(func() {
		e.degraded("fallback killer", enterRealtime())
		e.killer.takeOver(e.stuck)
	})
	slow.Go(func() { e.loop(ctx) })

	<-ctx.Done()
	close(stop)
	w.wake()
	samplerDone.Wait()
	close(e.orders)
	close(e.stuck)
	fast.Wait()
	slow.Wait()
	e.finishing.Wait()
	e.planner.closeAll()
	return nil
}

// sample is the fast half's loop.
func (e *Engine) sample(w *waker, stop <-chan struct{}) {
	e.degraded("sampler", enterRealtime())
	for {
		select {
		case <-stop:
			return
		default:
		}
		w.wait(e.sampler.tick())
	}
}

// degraded notes, once, that a part runs with less than it asked for.
func (e *Engine) degraded(part string, err error) {
	if err == nil {
		return
	}
	text := fmt.Sprintf("%s: %v", part, err)
	e.mu.Lock()
	e.realtime = append(e.realtime, text)
	e.mu.Unlock()
	e.log.Warn(text)
}

// planSpacing is the least distance of two plans that only changes of the
// inventory call for: with 500 pods a plan costs some milliseconds.
const planSpacing = 100 * time.Millisecond

// loop is the slow half: plans, decisions, releases.
func (e *Engine) loop(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	// Changes come in bursts when pods do; one plan takes in all of 100 ms.
	changed := time.NewTimer(0)
	defer changed.Stop()
	var planned time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-e.decided:
			e.start(ctx, d, OutcomeEvicted)
			e.publishPlan()
		case d := <-e.observed:
			e.observe(d)
			e.publishPlan()
		case <-e.syncer.Changed():
			e.enforce(ctx)
			changed.Reset(max(0, planSpacing-e.clock().Sub(planned)))
		case <-changed.C:
			planned = e.clock()
			e.publishPlan()
		case <-e.replan:
			e.publishPlan()
		case <-tick.C:
			e.repairHolds()
			e.saveArmed()
			e.refreshInventory()
			e.enforce(ctx)
			e.releaseDue()
			e.sayWhenNobody()
			e.publishPlan()
		}
	}
}

// start bars the victim from further plans and follows its kill.
func (e *Engine) start(ctx context.Context, d *Decision, outcome string) {
	uid := d.pod().UID
	e.mu.Lock()
	e.pending[uid] = "its kill is in progress"
	e.mu.Unlock()
	e.finishing.Go(func() {
		e.finish(ctx, d, outcome)
		if outcome == OutcomeResumed {
			d.pod().close()
		}
		e.mu.Lock()
		delete(e.pending, uid)
		e.mu.Unlock()
		e.wantPlan()
	})
}

// observe reports what would have been done.
func (e *Engine) observe(d *Decision) {
	d.ID = e.holds.NextID()
	report := e.report(d, OutcomeWouldEvict)
	e.log.WithFields(logrus.Fields{"decision": d.ID, "pod": d.pod().String(), "uid": d.pod().UID}).
		Warn("would evict (mode observe): " + report.Summary)
	e.keep(report)
}

func (e *Engine) wantPlan() {
	select {
	case e.replan <- struct{}{}:
	default:
	}
}

// repairHolds puts the holds file back when a clean-up of the run directory took
// it, and keeps a slot ready for the killer.
func (e *Engine) repairHolds() {
	repaired, err := e.holds.Repair()
	if repaired {
		e.log.Warn("the holds file was removed or replaced by somebody; it was put back")
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	e.mu.Lock()
	changed := e.holdsError != text
	e.holdsError = text
	e.mu.Unlock()
	if changed && err != nil {
		e.log.WithError(err).Error("the holds file cannot be kept: evicted pods may be started again")
	}
	if err := e.killer.reserve(); err != nil && !changed {
		e.log.WithError(err).Error("no place for a hold: evicted pods may be started again")
	}
}

// refreshInventory asks for a new list when a decision may be near and the last
// one is older than 10 s (design §6).
func (e *Engine) refreshInventory() {
	const oldest = 10 * time.Second
	near := e.sampler.latest.available.Load()/nearMultiple < e.settings().Rules.Amount
	if near && e.clock().Sub(e.store.Snapshot().ListedAt) > oldest {
		e.syncer.MarkDirty()
	}
}

// unkillableFor is how long a pod whose kill was given up is passed over, so
// that it does not cost each further victim 2 s.
const unkillableFor = 5 * time.Minute

// publishPlan gives the fast half a fresh plan.
func (e *Engine) publishPlan() {
	in := planInput{
		now: e.clock(), snapshot: e.store.Snapshot(), alarm: e.sampler.latest.met.Load(),
		held: map[string]string{}, keepOpen: map[string]bool{}, repeats: map[string]uint32{},
	}
	for _, r := range e.holds.Records() {
		if r.Holds() {
			in.held[r.UID] = fmt.Sprintf("held: evicted by decision %d", r.ID)
			// An intent is a kill that the slow half may not know of yet.
			in.keepOpen[r.UID] = r.State == holds.Intent
		}
	}
	e.mu.Lock()
	for uid, why := range e.pending {
		in.held[uid], in.keepOpen[uid] = why, true
	}
	for uid, at := range e.unkillable {
		if in.now.Sub(at) >= unkillableFor {
			delete(e.unkillable, uid)
		} else if in.held[uid] == "" {
			in.held[uid] = "it could not be killed a moment ago"
		}
	}
	for uid, r := range e.repeats {
		if in.now.Sub(r.Last) < repeatForgotten {
			in.repeats[uid] = r.Count
		}
	}
	e.mu.Unlock()
	if st := e.syncer.State(); !st.Listed {
		// Nothing is judged by an inventory that was never read (bugs.md B89).
		in.snapshot = &inventory.Snapshot{}
	}
	e.sampler.plan.Store(e.planner.build(in))
}

// observedFor is how long a breach is not reported again in mode observe.
const observedFor = time.Minute

var _ MeminfoSource = (*cgroupfs.MeminfoReader)(nil)
