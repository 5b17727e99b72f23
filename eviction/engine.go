package eviction

import (
	"context"
	"encoding/json"
	"errors"
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
	// SetConditions publishes the node's conditions for the proxy's admission.
	SetConditions(c holds.Conditions) error
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
	// Saved is when the ledger last had everything; zero for never.
	Saved() time.Time
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
	// RootMemory is for memoryAvailableFrom: kubelet; nil where the kernel has no
	// such numbers, and /proc/meminfo has to do.
	RootMemory RootSource
	// RootCheck is the same for the slow half, which compares it with what is
	// computed; nil: nothing is compared.
	RootCheck RootSource
	// OpenPods opens the cgroup of all pods; nil: there is no
	// allocatableMemory.available.
	OpenPods func() (PodsMemory, error)
	// TopLevel lists the cgroups below the root, the biggest first; it is asked
	// when the memory is not the pods'. nil: it cannot be said who has it.
	TopLevel func() []Consumer
	Scan     ScanSource // nil when the kernel has no pgscan_direct
	MinFree  uint64     // bytes
	BootID   string
	Clock    func() time.Time
	Log      logrus.FieldLogger
	// Armed remembers which threshold was seen clear; nil: every threshold is
	// acted on at once.
	Armed Armed
	// Wakeups are the kernel's events that shorten the sampler's wait; nil: it
	// samples by the clock alone.
	Wakeups KernelEvents
	// Hooks is for preStop hooks and the pods' own grace; nil: there are no hooks
	// and every pod gets evictionMaxPodGracePeriod.
	Hooks Hooks
	// Terminating says whether kubelet is known to be ending a pod, so that it
	// runs the preStop hooks; nil: that is not known of any.
	Terminating func(uid string) bool
	// Gone says whether a pod is known to have ended for good; nil: that is not
	// known of any, and goneAfter has to pass.
	Gone func(uid string) bool
	// FactSources are the sources of pod facts, best first; nil for none.
	FactSources func() []SourceNow
	// Wait is how the sampler waits for its next sample; nil: in the kernel. With
	// it Run makes no thread a real-time one and takes no wake-ups from the kernel:
	// for virtual time (testing/synctest), which does not pass while somebody waits
	// in the kernel.
	Wait func(time.Duration)
	// Teller tells Kubernetes of evictions; nil: nobody does.
	Teller Teller
	// Slow is for disk, inodes and PIDs; what is nil in it is not read or not done.
	Slow SlowParts
	// Enforced says whether a proxy keeps held pods from starting; nil: it does.
	// Where none does, the pod of an eviction starts again unless kubelet hears of it
	// at once.
	Enforced func() bool
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
	topLevel func() []Consumer
	cross    crossCheck
	killer   *killer
	wakeups  *wakeups // nil without events
	planner  *planner
	orders   chan *Decision
	stuck    chan *Decision
	decided  chan *Decision
	observed chan *Decision
	replan   chan struct{}
	breached chan struct{}
	persist  chan Report
	history  history
	counters *counters
	started  time.Time

	finishing sync.WaitGroup

	hooks       Hooks
	terminating func(uid string) bool
	gone        func(uid string) bool
	factSources func() []SourceNow
	teller      Teller
	enforced    func() bool
	soft        softHalf
	slow        *slowReader
	// slowEpisodes count the breaches of hard slow thresholds; the map is made once.
	slowEpisodes map[Signal]*episodes

	mu          sync.Mutex
	pending     map[string]string // UID → why its pod is barred: a kill in progress
	repeats     map[string]holds.Repeat
	lastRelease time.Time
	absent      map[string]time.Time
	unkillable  map[string]time.Time // UID → when its kill was given up
	ledgerError string
	holdsError  string
	realtime    []string
	saidNone    [hardSignals]saidNone

	spacing    spacing
	armed      Armed
	armedSaved map[Signal]uint64 // the loop's own
	// armedBefore is what was remembered at the start. Slow thresholds are not
	// known before their signal was read once.
	armedBefore map[Signal]uint64

	// waiting are the new pods the proxy did not admit.
	waiting waitingPods

	// change guards what set is made of.
	change      sync.Mutex
	configured  Settings
	pausedUntil time.Time

	// wait is Parts.Wait.
	wait func(time.Duration)

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
		breached:   make(chan struct{}, 1),
		persist:    make(chan Report, 256),
		counters:   newCounters(watched(&set)...),
		pending:    map[string]string{},
		repeats:    map[string]holds.Repeat{},
		unkillable: map[string]time.Time{},
		absent:     map[string]time.Time{},
		started:    p.Clock(),
		hooks:      p.Hooks, terminating: p.Terminating, teller: p.Teller, enforced: p.Enforced, gone: p.Gone, factSources: p.FactSources, soft: newSoftHalf(),
	}
	e.configured = set
	if p.LedgerProblem != nil {
		e.ledgerError = p.LedgerProblem.Error()
	}
	e.sampler = newSampler(p.Meminfo, p.Scan, p.MinFree, p.Clock, e.orders, e.observed, e.stuck)
	e.sampler.root = p.RootMemory
	e.planner.pods.open = p.OpenPods
	e.topLevel = p.TopLevel
	e.wait = p.Wait
	e.cross.root = p.RootCheck
	for _, h := range e.sampler.hards() {
		h.breached = e.breached
	}
	e.slow = newSlowReader(p.Slow, p.Clock, e.slowValues, e.breached)
	e.slowEpisodes = newSlowEpisodes()
	e.apply()
	e.armed = p.Armed
	e.armAtStart()
	if p.Wakeups != nil && p.Wait == nil {
		e.wakeups = newWakeups(p.Wakeups, p.Log)
	}
	e.killer = &killer{holds: p.Holds, clock: p.Clock, done: e.decided, between: p.BetweenIntentAndKill}
	return e, nil
}

var _ MeminfoSource = (*cgroupfs.MeminfoReader)(nil)
