package tell

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// awayFirst and awayLongest bound the wait after a request without an answer;
	// it doubles and is shortened by up to a half at random.
	awayFirst   = time.Second
	awayLongest = 30 * time.Second
	// reconnectAfter is from when on the kubeconfig is read again while nothing
	// answers.
	reconnectAfter = time.Minute
	// probeEvery is when the permission is asked for again.
	probeEvery = 10 * time.Minute
	// probeSpacing is the least time between two probes that refusals call for.
	probeSpacing = time.Minute

	// eventBurst and eventEvery limit the events on pods.
	eventBurst = 25
	eventEvery = time.Second
)

// Options of a Teller.
type Options struct {
	// Mode is ByStatus, ByEvict or ByDelete.
	Mode string
	Node string // this node's name
	// Connect makes a client from the kubeconfig. It is called again when nothing
	// answers or the credentials are not taken: the file may have new ones.
	Connect func() (API, error)
	// Queue keeps what is not told over a restart; nil: nothing does.
	Queue Queue
	// BootID tells this boot from others; empty when that cannot be told.
	BootID string
	Clock  func() time.Time
	Log    logrus.FieldLogger
}

// Teller is an eviction.Teller.
type Teller struct {
	opt    Options
	keeper *keeper
	wake   chan struct{}

	mu       sync.Mutex
	entries  map[uint64]*entry
	node     map[v1.ResourceName]*nodeEvent
	counts   map[[2]string]uint64 // by way and outcome
	way      string
	fallback string
	suspect  bool // what way says may be true no more
	server   string
	reach    bool
	since    time.Time // reach became what it is
	problem  string
	patches  uint64
	events   uint64

	// Run's own.
	api       API
	connected time.Time
	probed    time.Time
	awayUntil time.Time
	wait      time.Duration
	limit     *rate.Limiter
}

var _ eviction.Teller = (*Teller)(nil)

// New returns a teller with what the queue has; Run does the work.
func New(opt Options) *Teller {
	t := &Teller{
		opt: opt, keeper: newKeeper(opt.Queue), wake: make(chan struct{}, 1),
		node: map[v1.ResourceName]*nodeEvent{}, counts: map[[2]string]uint64{},
		wait: awayFirst, limit: rate.NewLimiter(rate.Every(eventEvery), eventBurst),
	}
	for _, way := range waysFrom(opt.Mode) {
		for _, outcome := range Outcomes() {
			t.counts[[2]string{way, outcome}] = 0
		}
	}
	t.entries = t.keeper.load()
	now := opt.Clock()
	for id, e := range t.entries {
		if e.Outcome == "" && e.Boot != opt.BootID {
			// The pod of another boot runs again, or is gone.
			t.settle(e, Withdrawn, now)
			t.keeper.put(id, e)
		}
	}
	return t
}

// Evicted implements eviction.Teller.
func (t *Teller) Evicted(n eviction.Notice) {
	t.mu.Lock()
	if old, ok := t.entries[n.ID]; ok && old.Notice.Pod.UID == n.Pod.UID {
		t.mu.Unlock()
		return
	}
	now := t.opt.Clock()
	e := &entry{Notice: n, Boot: t.opt.BootID}
	if n.Static {
		t.settle(e, Static, now)
	}
	t.entries[n.ID] = e
	t.keeper.put(n.ID, e)
	dropped, forgotten := surplus(t.entries)
	for _, id := range dropped {
		x := t.entries[id]
		if x.Outcome == "" {
			t.settle(x, Dropped, now)
		}
		x.Event = true
		t.keeper.put(id, x)
	}
	for _, id := range forgotten {
		delete(t.entries, id)
		t.keeper.put(id, nil)
	}
	t.mu.Unlock()
	t.notify()
}

// Withdraw implements eviction.Teller.
func (t *Teller) Withdraw(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[id]; ok && e.Outcome == "" {
		t.settle(e, Withdrawn, t.opt.Clock())
		t.keeper.put(id, e)
	}
}

// ThresholdMet implements eviction.Teller.
func (t *Teller) ThresholdMet(s eviction.Signal) {
	t.mu.Lock()
	r := resourceOf(s)
	if t.node[r] == nil {
		t.node[r] = &nodeEvent{}
	}
	t.node[r].happened(t.opt.Clock())
	t.mu.Unlock()
	t.notify()
}

// Working implements eviction.Teller.
func (t *Teller) Working() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reach && t.way != "" && t.way != None
}

// Ending implements eviction.Teller.
func (t *Teller) Ending(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[id]
	return ok && e.Taken
}

// Telling implements eviction.Teller.
func (t *Teller) Telling(id uint64) (eviction.Telling, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[id]
	if !ok {
		return eviction.Telling{}, false
	}
	return eviction.Telling{Way: e.Way, Outcome: e.Outcome, Requests: e.Tries, Asked: e.Asked, Done: e.Done, Event: e.Event}, true
}

func (t *Teller) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// settle ends the telling of an entry; mu is held, or nobody else has t.
func (t *Teller) settle(e *entry, outcome string, now time.Time) {
	e.end(outcome, now)
	way := e.Way
	if way == "" {
		way = t.way
	}
	if way == "" {
		way = t.opt.Mode
	}
	t.counts[[2]string{way, outcome}]++
	log := t.opt.Log.WithFields(logrus.Fields{
		"decision": e.Notice.ID, "pod": e.Notice.Pod.String(), "uid": e.Notice.Pod.UID, "way": way, "outcome": outcome, "tries": e.Tries,
	})
	switch outcome {
	case Refused, Expired, Dropped:
		log.Error("Kubernetes could not be told of an eviction")
	case Withdrawn:
		log.Warn("Kubernetes is not told of an eviction any more: the pod may run again")
	default:
		log.Info("Kubernetes knows of the eviction")
	}
}

// Run tells until ctx ends. What is left then is in the queue.
func (t *Teller) Run(ctx context.Context) {
	var keeping sync.WaitGroup
	keeping.Go(func() { t.keeper.run(ctx) })
	defer keeping.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
		}
		for ctx.Err() == nil {
			wait := t.step(ctx)
			if wait > 0 {
				timer.Reset(wait)
				break
			}
		}
	}
}

// idle is the longest wait of Run.
const idle = time.Minute

// step does the one thing that is due, and returns 0, or says how long nothing
// is.
func (t *Teller) step(ctx context.Context) time.Duration {
	now := t.opt.Clock()
	t.expire(now)
	if wait := t.awayUntil.Sub(now); wait > 0 {
		return wait
	}
	if t.api == nil {
		if !t.connect(now) {
			return 0
		}
	}
	if t.needsProbe(now) {
		t.probe(ctx, now)
		return 0
	}
	if e, ok := t.next(now); ok {
		t.handle(ctx, e)
		return 0
	}
	if e, ok := t.nextEvent(now); ok {
		t.sendEvent(ctx, e)
		return 0
	}
	if r, e, ok := t.nextNodeEvent(now); ok {
		t.sendNodeEvent(ctx, r, e)
		return 0
	}
	if !t.reachable() {
		t.probe(ctx, now)
		return 0
	}
	return t.nothingDue(now)
}

func (t *Teller) reachable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reach
}

func (t *Teller) connect(now time.Time) bool {
	api, err := t.opt.Connect()
	if err != nil {
		t.away(err)
		return false
	}
	t.api, t.connected = api, now
	t.mu.Lock()
	t.server = api.Server()
	t.mu.Unlock()
	return true
}

// away notes that nothing can be asked for a while.
func (t *Teller) away(err error) {
	now := t.opt.Clock()
	if sortOut(err) == unknownUser || now.Sub(t.connected) >= reconnectAfter {
		t.api = nil
	}
	t.awayUntil = now.Add(t.wait/2 + rand.N(t.wait/2))
	t.wait = min(2*t.wait, awayLongest)
	t.mu.Lock()
	news := t.reach || t.since.IsZero()
	t.problem = err.Error()
	if news {
		t.reach, t.since = false, now.UTC()
	}
	t.mu.Unlock()
	if news {
		t.opt.Log.WithError(err).Warn("the API server cannot be told of evictions now; they are queued, and pods are evicted and held as before")
	}
}

// back notes that the API server answered.
func (t *Teller) back() {
	t.wait = awayFirst
	t.mu.Lock()
	news := !t.reach
	if news {
		t.reach, t.since = true, t.opt.Clock().UTC()
	}
	t.problem = ""
	t.mu.Unlock()
	if news {
		t.opt.Log.WithField("server", t.api.Server()).Info("the API server answers")
	}
}

func (t *Teller) needsProbe(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.probed.IsZero() || now.Sub(t.probed) >= probeEvery || t.suspect && now.Sub(t.probed) >= probeSpacing
}

// probe finds out which way is permitted.
func (t *Teller) probe(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	way, fallback, err := Probe(ctx, t.api, t.opt.Mode, t.opt.Node, now)
	if err != nil {
		t.away(err)
		return
	}
	t.back()
	t.probed = now
	t.mu.Lock()
	news := t.way != way || t.fallback != fallback
	t.way, t.fallback, t.suspect = way, fallback, false
	t.mu.Unlock()
	log := t.opt.Log.WithFields(logrus.Fields{"node": t.opt.Node, "mode": t.opt.Mode, "way": way})
	switch {
	case !news:
	case way == None:
		log.Error("Kubernetes cannot be told of evictions: " + fallback)
	case fallback != "":
		log.Warn("Kubernetes is told of evictions, and not all is permitted: " + fallback)
	default:
		log.Info("Kubernetes is told of evictions")
	}
}
