package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// Engine is what the service asks and tells.
type Engine interface {
	State() eviction.State
	Explain(decisions int) eviction.Explanation
	ReleaseByHand(name string) []holds.Record
	Arm() bool
	// Pause evicts nothing for d; 0 ends that. It returns until when.
	Pause(d time.Duration) time.Time
	Counts() eviction.Counts
}

// Options wire a Server.
type Options struct {
	Version string
	PID     int
	Engine  Engine
	// Proxy reports on the proxy; it must answer within the context.
	Proxy func(ctx context.Context) ProxyStatus
	// Config reports on the configuration in force; nil for none.
	Config func() ConfigStatus
	// PodFacts tells what is known of a pod that may be new to the node; nil:
	// nothing.
	PodFacts func(ctx context.Context, uid string) PodFacts
	// GC says what garbage collection would remove; nil: nothing is known.
	GC func(ctx context.Context) (gc.Plan, error)
	// Removals are the last passes of garbage collection, the newest first; nil:
	// there is none.
	Removals func() []gc.Run
	// Metrics says where metrics are served; nil: nowhere.
	Metrics func() MetricsStatus
	// Upgrade handles requests to hand over to a new process; nil: there are none.
	Upgrade http.Handler
	// Clock is time.Now when nil.
	Clock func() time.Time
	Log   logrus.FieldLogger
}

// Server answers the command line.
type Server struct {
	opt Options
}

// NewServer returns a Server.
func NewServer(opt Options) *Server {
	if opt.Clock == nil {
		opt.Clock = time.Now
	}
	if opt.Metrics == nil {
		opt.Metrics = func() MetricsStatus { return MetricsStatus{} }
	}
	return &Server{opt: opt}
}

// proxyPatience bounds the question to the proxy, so that status answers within
// the 2 s of design §12.
const proxyPatience = time.Second

// Serve answers on l until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("GET /v1/explain", s.explain)
	mux.HandleFunc("GET /v1/holds", s.holds)
	mux.HandleFunc("GET /v1/podfacts", s.podFacts)
	mux.HandleFunc("GET /v1/gc", s.gc)
	mux.HandleFunc("POST /v1/holds/release", s.release)
	mux.HandleFunc("POST /v1/arm", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, ArmResult{Changed: s.opt.Engine.Arm()})
	})
	mux.HandleFunc("POST /v1/pause", s.pause)
	if s.opt.Upgrade != nil {
		mux.Handle("POST /v1/upgrade", s.opt.Upgrade)
	}
	handleHealth(mux, s.opt.Engine, s.opt.Clock)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		_ = server.Close()
	}()
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return fmt.Errorf("admin service: %w", err)
}

func (s *Server) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.opt.Log.WithError(err).Debug("an answer was not delivered")
	}
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), proxyPatience)
	defer cancel()
	st := Status{Version: s.opt.Version, PID: s.opt.PID, Engine: s.opt.Engine.State(), Proxy: s.opt.Proxy(ctx), Metrics: s.opt.Metrics()}
	if s.opt.Config != nil {
		st.Config = s.opt.Config()
	}
	st.Problems = problems(&st)
	if e := &st.Engine; e.Signals == nil { // lists of JSON are empty, not null
		e.Signals, e.Sources, e.HoldStates = []eviction.SignalNow{}, []eviction.SourceNow{}, map[string]int{}
	}
	s.answer(w, st)
}

// podFacts tells the proxy what is known of the pod ?uid=.
func (s *Server) podFacts(w http.ResponseWriter, r *http.Request) {
	var facts PodFacts
	if uid := r.URL.Query().Get("uid"); uid != "" && s.opt.PodFacts != nil {
		facts = s.opt.PodFacts(r.Context(), uid)
	}
	s.answer(w, facts)
}

// gc says what garbage collection would remove.
func (s *Server) gc(w http.ResponseWriter, r *http.Request) {
	if s.opt.GC == nil {
		http.Error(w, "there is no garbage collection here", http.StatusServiceUnavailable)
		return
	}
	plan, err := s.opt.GC(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.answer(w, plan)
}

// problems says in words what is wrong.
func problems(s *Status) []string {
	out := []string{}
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	e, p := &s.Engine, &s.Proxy
	add(e.Memory.Failing, "memory cannot be read: nothing is decided")
	add(!e.Memory.Failing && e.Memory.Samples == 0 && e.Memory.Threshold > 0, "no memory sample yet")
	inv := &e.Inventory
	add(!inv.Listed, "the runtime has not been listed yet: no pod is known, nothing is killed")
	add(inv.ListError != "", "%s", inv.ListError)
	add(inv.TreeError != "", "cgroup tree: %s", inv.TreeError)
	add(e.Memory.Threshold > 0 && e.Memory.Capacity > 0 && e.Memory.Threshold >= e.Memory.Capacity,
		"the memory.available threshold is not below the machine's memory: nothing is evicted")
	add(e.Waiting != "" && e.Memory.Met, "memory.available is below its threshold and nothing is evicted: %s", e.Waiting)
	for _, x := range e.Sources {
		add(!x.OK && !x.Absent && x.Error != "", "pod facts of %s cannot be read: %s", x.Name, x.Error)
	}
	add(len(e.ControlPlane) > 0, "%s: %s", eviction.ControlPlaneText, strings.Join(e.ControlPlane, ", "))
	if t := e.Telling; t != nil {
		add(t.Way == "none", "Kubernetes cannot be told of evictions: %s", t.Fallback)
		add(!t.Reachable && t.Queued > 0, "the API server does not answer, %d evictions are not told: %s", t.Queued, t.Problem)
		add(t.QueueProblem != "" && t.QueueProblem != e.LedgerError, "evictions that are not told would be lost by a restart: %s", t.QueueProblem)
	}
	add(e.LedgerError != "", "ledger: %s", e.LedgerError)
	add(e.HoldsError != "", "holds file: %s", e.HoldsError)
	for _, line := range s.Config.Failed {
		add(true, "the configuration was changed and not reloaded: %s", line)
	}
	add(p.Bypassed, "calls go past the proxy (cri-evictd bypass): the start of held pods is not refused, those that come up are stopped again")
	add(!p.Reachable, "no proxy (%s): holds are not enforced, pods may be started again", p.Error)
	add(p.UpstreamError != "", "runtime: %s", p.UpstreamError)
	add(p.HoldsProblem != "", "holds file: %s", p.HoldsProblem)
	add(p.Panics > 0, "the proxy caught %d panics; see its log", p.Panics)
	return out
}

// pause stops evictions for ?for=DURATION; 0 ends a pause.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || d < 0 || d > LongestPause {
		http.Error(w, fmt.Sprintf("for must be a duration from 0s to %s", LongestPause), http.StatusBadRequest)
		return
	}
	s.answer(w, PauseResult{PausedUntil: s.opt.Engine.Pause(d).UTC()})
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	const decisions = 20
	x := s.opt.Engine.Explain(1000)
	out := Explanation{Explanation: x}
	for _, h := range x.Holds {
		out.Holds = append(out.Holds, holdOf(h))
	}
	name := r.URL.Query().Get("pod")
	if name == "" {
		out.Decisions = out.Decisions[:min(decisions, len(out.Decisions))]
		if s.opt.Removals != nil {
			out.Removals = slices.DeleteFunc(s.opt.Removals(), func(r gc.Run) bool { return r.Why == gc.ForPressure })
		}
		s.answer(w, nonNil(out))
		return
	}
	if !out.narrow(name) {
		http.Error(w, fmt.Sprintf("no pod %q is known, running, held or in the history; name it namespace/name or by its UID", name), http.StatusNotFound)
		return
	}
	out.Decisions = out.Decisions[:min(decisions, len(out.Decisions))]
	s.answer(w, nonNil(out))
}

// narrow keeps what is about one pod; false when nothing is.
func (x *Explanation) narrow(name string) bool {
	is := func(r inventory.Ref) bool { return r.UID == name || r.String() == name }
	other := func(r inventory.Ref) bool { return !is(r) }
	x.Candidates = slices.DeleteFunc(x.Candidates, func(c eviction.CandidateReport) bool { return other(c.Ref) })
	for i := range x.Slow {
		s := &x.Slow[i]
		s.Candidates = slices.DeleteFunc(s.Candidates, func(c eviction.CandidateReport) bool { return other(c.Ref) })
	}
	x.Holds = slices.DeleteFunc(x.Holds, func(h Hold) bool { return other(h.Pod) })
	x.Decisions = slices.DeleteFunc(x.Decisions, func(d eviction.Report) bool {
		return !slices.ContainsFunc(d.Candidates, func(c eviction.CandidateReport) bool { return is(c.Ref) }) &&
			(d.Victim == nil || other(*d.Victim))
	})
	x.NotAdmitted = slices.DeleteFunc(slices.Clone(x.NotAdmitted), func(n eviction.NotAdmitted) bool { return other(n.Pod) })
	switch {
	case len(x.NotAdmitted) > 0:
		x.Pod = &x.NotAdmitted[0].Pod
	case len(x.Candidates) > 0:
		x.Pod = &x.Candidates[0].Ref
	case len(x.Holds) > 0:
		x.Pod = &x.Holds[0].Pod
	default:
		for _, d := range x.Decisions {
			if d.Victim != nil && is(*d.Victim) {
				x.Pod = d.Victim
			}
			for _, c := range d.Candidates {
				if is(c.Ref) {
					x.Pod = &c.Ref
				}
			}
		}
	}
	return x.Pod != nil
}

// nonNil makes lists of JSON that are empty instead of null.
func nonNil(x Explanation) Explanation {
	if x.Signals == nil {
		x.Signals = []eviction.SignalNow{}
	}
	if x.Candidates == nil {
		x.Candidates = []eviction.CandidateReport{}
	}
	if x.Decisions == nil {
		x.Decisions = []eviction.Report{}
	}
	if x.Holds == nil {
		x.Holds = []Hold{}
	}
	return x
}

func (s *Server) holds(w http.ResponseWriter, _ *http.Request) {
	out := Holds{Holds: []Hold{}}
	for _, r := range s.opt.Engine.Explain(0).Holds {
		out.Holds = append(out.Holds, holdOf(r))
	}
	s.answer(w, out)
}

// release ends the holds of ?pod=NAME, or all with ?all=true.
func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	name, all := strings.TrimSpace(r.URL.Query().Get("pod")), r.URL.Query().Get("all") == "true"
	if (name == "") != all {
		http.Error(w, "name one pod, or ask for all", http.StatusBadRequest)
		return
	}
	released := s.opt.Engine.ReleaseByHand(name)
	if len(released) == 0 && !all {
		http.Error(w, fmt.Sprintf("pod %q is not held", name), http.StatusNotFound)
		return
	}
	out := Holds{Holds: []Hold{}}
	for _, rec := range released {
		out.Holds = append(out.Holds, holdOf(rec))
	}
	s.answer(w, out)
}
