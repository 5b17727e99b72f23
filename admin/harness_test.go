package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/golden"
	"github.com/cri-evictd/cri-evictd/inventory"
)

var _ = golden.Flag()

// moment is the only time these tests know.
var moment = time.Date(2026, 11, 29, 18, 30, 0, 123456789, time.UTC)

var (
	hog  = inventory.Ref{Namespace: "default", Name: "hog", UID: "11111111-2222-3333-4444-555555555555"}
	meek = inventory.Ref{Namespace: "default", Name: "meek", UID: "22222222-2222-3333-4444-555555555555"}
	past = inventory.Ref{Namespace: "other", Name: "past", UID: "33333333-2222-3333-4444-555555555555"}
)

// fixed is an Engine with one of everything.
type fixed struct {
	state   eviction.State
	explain eviction.Explanation
	held    []holds.Record
	counts  eviction.Counts
	armed   atomic.Bool
	pauses  []time.Duration
}

// Pause ends d after the moment.
func (f *fixed) Pause(d time.Duration) time.Time {
	f.pauses = append(f.pauses, d)
	if d == 0 {
		return time.Time{}
	}
	return moment.Add(d)
}

func (f *fixed) Arm() bool { return f.armed.CompareAndSwap(false, true) }

func (f *fixed) State() eviction.State { return f.state }

func (f *fixed) Counts() eviction.Counts { return f.counts }

func (f *fixed) Explain(decisions int) eviction.Explanation {
	x := f.explain
	x.Decisions = append([]eviction.Report(nil), x.Decisions[:min(decisions, len(x.Decisions))]...)
	x.Candidates = append([]eviction.CandidateReport(nil), x.Candidates...)
	x.Holds = append([]holds.Record(nil), f.held...)
	return x
}

func (f *fixed) ReleaseByHand(name string) []holds.Record {
	var out []holds.Record
	for i := range f.held {
		r := &f.held[i]
		if name != "" && name != r.UID && name != r.Namespace+"/"+r.Name || !r.Holds() {
			continue
		}
		r.State, r.ReleasedAt, r.ReleaseReason = holds.Released, moment, "by-hand"
		out = append(out, *r)
	}
	return out
}

func memory() eviction.MemoryReport {
	return eviction.MemoryReport{
		Capacity: 16 << 30, Available: 400 << 20, AvailableKernel: 400 << 20, AvailableKubelet: 430 << 20, MinFree: 64 << 20, From: "verified",
		Threshold: 500 << 20, Floor: 100 << 20, Met: true, EarlyBand: true, SwapTotal: 1 << 30, SwapFree: 1 << 29,
	}
}

func candidate(r inventory.Ref, rank int) eviction.CandidateReport {
	return eviction.CandidateReport{
		Ref: r, Rank: rank, QoS: inventory.Value[string]{Value: "Burstable", Source: inventory.FromCgroup, Exact: true},
		Priority: inventory.Value[int32]{Source: inventory.FromDefault}, Request: inventory.Value[int64]{Value: 100 << 20, Source: inventory.FromCRI, Slack: 16 << 20},
		Usage: 900 << 20, UsageKnown: true, Gain: 850 << 20, OverRequest: true, Cgroup: "/kubepods/burstable/pod" + r.UID,
	}
}

func newFixed() *fixed {
	report := eviction.Report{
		ID: 7, Time: moment, Signal: eviction.MemoryAvailable, Outcome: eviction.OutcomeEvicted, Mode: "enforce", Summary: "evicted default/hog",
		Memory: memory(), Victim: &hog, Candidates: []eviction.CandidateReport{candidate(hog, 1), candidate(meek, 2)},
		Kill: &eviction.KillReport{Direct: true, Intent: 40 * time.Microsecond, Sent: 60 * time.Microsecond, Settled: 12 * time.Millisecond, Signalled: -1, Tries: 1},
	}
	old := report
	old.ID, old.Victim, old.Candidates, old.Kill, old.Summary = 6, &past, []eviction.CandidateReport{candidate(past, 1)}, nil, "evicted other/past"
	now := eviction.MemoryNow{
		MemoryReport: memory(), Time: moment, Age: 3 * time.Millisecond, Period: 2 * time.Millisecond, Samples: 12345, MetSince: moment,
	}
	return &fixed{
		state: eviction.State{
			Mode: "enforce", Started: moment, Memory: now, Pods: 2, Held: 1, Inventory: inventory.SyncState{Listed: true, ListedAt: moment},
			Decisions: 2, LastDecision: &report, Degraded: []string{"sampler: SCHED_FIFO refused"},
			Wakeups:    []eviction.WakeupState{{Source: "pressure", InUse: true, Detail: "some 150ms of 1s", Woken: 12}, {Source: "usage"}},
			Conditions: eviction.ConditionsNow{MemoryPressure: true, Since: moment}, NotAdmitted: []eviction.NotAdmitted{{}},
			Signals: signalsNow(), Sources: sourcesNow(), HoldStates: map[string]int{"intent": 1, "killed": 2},
			Telling: &eviction.TellingNow{
				Mode: "status", Way: "evict", Fallback: "status is refused: forbidden", Server: "https://10.0.0.1:6443", Node: "n1", Since: moment,
				Reachable: true, Queued: 2, Verifying: 1, OldestAge: time.Minute, Patches: 5, Events: 4,
				Told: []eviction.ToldCount{{Way: "evict", Outcome: "gone", Count: 3}, {Way: "status", Outcome: "told", Count: 7}},
			},
		},
		counts: countsNow(),
		explain: eviction.Explanation{
			Mode: "enforce", Memory: now, Signals: signalsNow(), Candidates: []eviction.CandidateReport{candidate(meek, 1)}, Next: &meek, Decisions: []eviction.Report{report, old},
		},
		held: []holds.Record{{
			ID: 7, State: holds.Killed, UID: hog.UID, Namespace: hog.Namespace, Name: hog.Name, SandboxID: "s1", Cgroup: "/kubepods/burstable/pod" + hog.UID,
			Signal: "memory.available", Threshold: 500 << 20, Available: 400 << 20, AvailableKubelet: 430 << 20, Usage: 900 << 20, Request: 100 << 20,
			Priority: -5, Repeat: 2, Decided: moment, KilledAt: moment,
		}},
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ad")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func goodProxy(context.Context) ProxyStatus {
	return ProxyStatus{
		Reachable: true, Listen: "unix:///run/cri-evictd/cri.sock", Upstream: "unix:///run/containerd/containerd.sock", UpstreamState: "READY",
		Runtime: "containerd v2.4.2", Calls: 4711, InFlight: 5, NotAdmitted: map[string]uint64{"MemoryPressure": 8}, Undecided: 9, Refused: 3, HeldMeanwhile: 1, Decorated: 2, Undecodable: 6, EventsDropped: 1,
		Methods: []MethodCount{
			{Method: "/runtime.v1.RuntimeService/Version", Code: "OK", Count: 4000},
			{Method: "/runtime.v1.RuntimeService/RunPodSandbox", Code: "ResourceExhausted", Count: 3},
			{Method: "/runtime.v1alpha2.ImageService/PullImage", Code: "Code(4711)", Count: 700},
			{Method: "/some.caller/Invented", Code: "Unimplemented", Count: 7},
			{Method: "Invented too", Code: "Unimplemented", Count: 1},
		},
	}
}

// serve runs the service on a real socket until the test ends.
func serve(t *testing.T, e Engine, proxy func(context.Context) ProxyStatus) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "admin.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(Options{Version: "v1", PID: 42, Engine: e, Proxy: proxy, Log: quiet(), Clock: func() time.Time { return moment }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return path
}

func client(path string) *Client { return NewClient(cri.Endpoint{Path: path}) }

// raw makes one request and returns the status and the indented body.
func raw(t *testing.T, socket, method, path string) (int, []byte) {
	t.Helper()
	c := client(socket)
	req, err := http.NewRequestWithContext(t.Context(), method, "http://admin"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, b
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return resp.StatusCode, out.Bytes()
}
