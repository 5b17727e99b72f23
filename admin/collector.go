package admin

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

// collector makes metrics of snapshots, at each scrape. What is measured knows
// nothing of it.
type collector struct {
	opt      MetricsOptions
	families map[string]family
	methods  map[string]bool // those that get a label of their own
	codes    map[string]bool

	mu    sync.Mutex
	proxy ProxyStatus // the last that was got, at proxyAt
	at    time.Time
}

type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func newCollector(opt MetricsOptions) *collector {
	c := &collector{opt: opt, families: map[string]family{}, methods: cri.Methods(), codes: map[string]bool{}}
	for _, f := range Families() {
		kind := prometheus.GaugeValue
		if f.Type == counter {
			kind = prometheus.CounterValue
		}
		c.families[f.Name] = family{prometheus.NewDesc(metricPrefix+f.Name, f.Help, f.Labels, nil), kind}
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		c.codes[code.String()] = true
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	out := sink{ch: ch, families: c.families}
	state, counts := c.opt.Engine.State(), c.opt.Engine.Counts()
	out.put("build_info", 1, c.opt.Version, runtime.Version())
	out.put("start_time_seconds", seconds(state.Started))
	out.put("enforcing", truth(state.Mode == "enforce"))
	out.put("paused", truth(!state.PausedUntil.IsZero()))
	out.put("condition", truth(state.Conditions.MemoryPressure), "MemoryPressure")
	out.put("condition", truth(state.Conditions.DiskPressure), "DiskPressure")
	out.put("condition", truth(state.Conditions.PIDPressure), "PIDPressure")
	out.put("pods_not_admitted", float64(len(state.NotAdmitted)))
	out.put("degraded_parts", float64(len(state.Degraded)))
	out.put("pods", float64(state.Pods))
	out.signals(&state, &counts)
	out.decisions(&state, &counts)
	out.sampler(&state.Memory)
	for _, w := range state.Wakeups {
		out.put("wakeup_source_in_use", truth(w.InUse), w.Source)
		out.put("wakeups_total", float64(w.Woken), w.Source)
	}
	out.telling(state.Telling)
	out.sources(state.Sources)
	if c.opt.GC != nil {
		counts := c.opt.GC()
		out.garbage(&counts)
	}
	c.collectProxy(&out)
}

// sink takes what is collected.
type sink struct {
	ch       chan<- prometheus.Metric
	families map[string]family
}

func (o *sink) put(name string, v float64, labels ...string) {
	f, ok := o.families[name]
	if !ok {
		err := fmt.Errorf("no metric %q in Families", name)
		o.ch <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	m, err := prometheus.NewConstMetric(f.desc, f.kind, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	o.ch <- m
}

func (o *sink) durations(name string, d *eviction.Durations, labels ...string) {
	buckets := make(map[float64]uint64, len(d.Bounds))
	for i, b := range d.Bounds {
		buckets[b] = d.Buckets[i]
	}
	f := o.families[name]
	m, err := prometheus.NewConstHistogram(f.desc, d.Count, d.Sum.Seconds(), buckets, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	o.ch <- m
}

func (o *sink) signals(s *eviction.State, n *eviction.Counts) {
	for i := range s.Signals {
		x := &s.Signals[i]
		name := string(x.Signal)
		met := false
		unit := unitSuffix(x.Unit)
		for _, t := range x.Thresholds {
			o.put("signal_threshold_"+unit, float64(t.Amount), name, t.Kind)
			o.put("signal_met", truth(t.Met), name, t.Kind)
			met = met || t.Met && t.Kind == eviction.KindHard
		}
		if x.Signal.Memory() {
			o.put("signal_floor_bytes", float64(x.Floor), name)
		}
		for _, b := range breakers() {
			o.put("signal_breaker_open", truth(x.Breaker == b), name, b)
		}
		o.put("signal_armed", truth(!x.Unarmed), name)
		if !x.Known {
			continue // a number that is not known is not 0
		}
		o.put("signal_capacity_"+unit, float64(x.Capacity), name)
		o.put("signal_available_"+unit, float64(x.Available), name, "compared")
		if !x.Signal.Memory() {
			continue // one reading only, and no rate
		}
		o.put("signal_available_bytes", float64(x.AvailableKernel), name, "kernel")
		o.put("signal_available_bytes", float64(x.AvailableKubelet), name, "kubelet")
		left := math.Inf(1)
		switch {
		case met:
			left = 0
		case x.TimeToThreshold != nil:
			left = x.TimeToThreshold.Seconds()
		}
		o.put("signal_time_to_threshold_seconds", left, name)
	}
	for _, b := range n.Breaches {
		o.put("signal_breaches_total", float64(b.Count), string(b.Signal))
	}
}

// unitSuffix ends the names of the metrics of a signal in this unit.
func unitSuffix(u eviction.Unit) string {
	if u == eviction.Inodes || u == eviction.Tasks {
		return "items"
	}
	return "bytes"
}

// breakers are those a signal may have.
func breakers() []string {
	return []string{eviction.Cascade.Reason(), eviction.OutsidePressure.Reason(), eviction.BudgetSpent.Reason()}
}

func (o *sink) decisions(s *eviction.State, n *eviction.Counts) {
	for _, d := range n.Decisions {
		o.put("decisions_total", float64(d.Count), string(d.Signal), d.Kind, d.Outcome, d.Reason)
	}
	for _, k := range n.Kills {
		way, result := "runtime", "givenUp"
		if k.Direct {
			way = "cgroup"
		}
		if k.Dead {
			result = "dead"
		}
		o.put("kills_total", float64(k.Count), string(k.Signal), k.Kind, way, result)
	}
	o.put("kills_in_progress", float64(n.InProgress))
	for i := range n.Stages {
		st := &n.Stages[i]
		o.durations("kill_stage_duration_seconds", &st.Durations, string(st.Signal), st.Kind, st.Stage)
	}
	o.put("kill_retries_total", float64(n.Retries))
	o.put("kill_fallbacks_total", float64(n.Fallbacks))
	for _, k := range n.KillErrors {
		o.put("kill_errors_total", float64(k.Count), k.Reason)
	}
	for _, state := range []string{"intent", "killed", "released"} {
		o.put("holds", float64(s.HoldStates[state]), state)
	}
	for _, r := range n.Releases {
		o.put("holds_released_total", float64(r.Count), r.Reason)
	}
}

func (o *sink) sampler(m *eviction.MemoryNow) {
	o.put("sampler_samples_total", float64(m.Samples))
	o.put("sampler_failures_total", float64(m.Failures))
	o.put("sampler_period_seconds", m.Period.Seconds())
}

func (o *sink) telling(t *eviction.TellingNow) {
	if t == nil {
		return
	}
	o.put("telling_queue", float64(t.Queued), "queued")
	o.put("telling_queue", float64(t.Verifying), "verifying")
	o.put("telling_oldest_seconds", t.OldestAge.Seconds())
	o.put("telling_up", truth(t.Reachable))
	for _, way := range []string{"status", "evict", "delete", "none"} {
		o.put("telling_way", truth(t.Way == way), way)
	}
	for _, n := range t.Told {
		o.put("told_total", float64(n.Count), n.Way, n.Outcome)
	}
	o.put("telling_requests_total", float64(t.Patches), "pod")
	o.put("telling_requests_total", float64(t.Events), "event")
}

func (o *sink) sources(list []eviction.SourceNow) {
	for _, x := range list {
		if x.Absent && x.At.IsZero() {
			continue // nothing that could be up
		}
		o.put("source_up", truth(x.OK), x.Name)
		if !x.At.IsZero() {
			o.put("source_age_seconds", x.Age.Seconds(), x.Name)
		}
	}
}

func (o *sink) garbage(n *gc.Counts) {
	for _, r := range n.Removed {
		name := "gc_removed_total"
		if r.Failed {
			name = "gc_failures_total"
		}
		o.put(name, float64(r.Count), r.Kind, r.Why)
	}
	o.put("gc_gave_up_total", float64(n.GaveUp))
	o.put("gc_images", float64(n.Unused), "unused")
	o.put("gc_images", float64(n.Needed), "needed")
}

// collectProxy asks the proxy. While it does not answer, what it said last
// stands, with its age.
func (c *collector) collectProxy(o *sink) {
	ctx, cancel := context.WithTimeout(context.Background(), proxyPatience)
	defer cancel()
	p := c.opt.Proxy(ctx)
	now := c.opt.Clock()
	up := p.Reachable
	c.mu.Lock()
	if up {
		c.proxy, c.at = p, now
	}
	p, at := c.proxy, c.at
	c.mu.Unlock()

	o.put("proxy_up", truth(up))
	o.put("source_up", truth(up), "proxy")
	if at.IsZero() {
		return
	}
	o.put("source_age_seconds", max(0, now.Sub(at)).Seconds(), "proxy")
	for call, n := range c.fold(p.Methods) {
		o.put("proxy_calls_total", float64(n), call.service, call.method, call.code)
	}
	o.put("proxy_calls_in_flight", float64(p.InFlight))
	for state := connectivity.Idle; state <= connectivity.Shutdown; state++ {
		o.put("proxy_upstream_state", truth(up && p.UpstreamState == state.String()), state.String())
	}
	o.put("proxy_refused_total", float64(p.Refused), "held")
	for _, condition := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		o.put("proxy_refused_total", float64(p.NotAdmitted[condition]), condition)
	}
	o.put("proxy_admission_undecided_total", float64(p.Undecided))
	o.put("proxy_held_meanwhile_total", float64(p.HeldMeanwhile))
	o.put("proxy_decorated_total", float64(p.Decorated))
	o.put("proxy_undecodable_total", float64(p.Undecodable))
	o.put("proxy_panics_total", float64(p.Panics))
	o.put("proxy_events_dropped_total", float64(p.EventsDropped))
	o.put("proxy_holds_readable", truth(p.HoldsProblem == ""))
}

type callLabels struct{ service, method, code string }

// fold adds up the calls. The names of methods come from callers and the codes
// from runtimes: whatever is not in the compiled API is one label.
func (c *collector) fold(counts []MethodCount) map[callLabels]uint64 {
	out := map[callLabels]uint64{}
	for _, n := range counts {
		l := callLabels{"other", "other", n.Code}
		if c.methods[n.Method] {
			// known ones are /service/method
			l.service, l.method, _ = strings.Cut(n.Method[1:], "/")
		}
		if !c.codes[n.Code] {
			l.code = "other"
		}
		out[l] += n.Count
	}
	return out
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
