package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/golden"
	"github.com/cri-evictd/cri-evictd/inventory"
)

const mi = 1 << 20

func pressed() eviction.MemoryReport {
	return eviction.MemoryReport{
		Capacity: 16 << 30, Available: 430 * mi, AvailableKernel: 430 * mi, AvailableKubelet: 500 * mi, MinFree: 66 * mi, From: "verified",
		Threshold: 500 * mi, Floor: 100 * mi, Met: true, EarlyBand: true,
	}
}

// signalsNow are signals with one of everything.
func signalsNow() []eviction.SignalNow {
	m, in := pressed(), 90*time.Second
	return []eviction.SignalNow{
		{
			Signal: eviction.MemoryAvailable, Known: true, Capacity: m.Capacity, Available: m.Available, AvailableKernel: m.AvailableKernel,
			AvailableKubelet: m.AvailableKubelet, Floor: m.Floor, From: m.From, NotActing: "mode is observe", Breaker: eviction.Cascade.Reason(), BreakerUntil: time.Now().Add(59*time.Second + 100*time.Millisecond),
			Thresholds: []eviction.ThresholdNow{
				{Kind: eviction.KindHard, Amount: m.Threshold, MinReclaim: 100 * mi, Met: true, MetSince: time.Now()},
				{Kind: eviction.KindSoft, Amount: 1 << 30, Grace: 90 * time.Second},
			},
		},
		{
			Signal: eviction.AllocatableMemoryAvailable, Known: true, Capacity: 15 << 30, Available: 2 << 30, AvailableKernel: 2 << 30, AvailableKubelet: 1900 * mi,
			Floor: m.Floor, From: m.From, Unarmed: true, TimeToThreshold: &in, Thresholds: []eviction.ThresholdNow{{Kind: eviction.KindHard, Amount: 500 * mi}},
		},
		{Signal: eviction.ImageFsAvailable, Absent: true},
		{Signal: eviction.NodeFsAvailable, Thresholds: []eviction.ThresholdNow{{Kind: eviction.KindHard, Amount: 5 << 30}}},
	}
}

// explained is an answer of explain with one of everything.
func explained() admin.Explanation {
	hog := inventory.Ref{Namespace: "default", Name: "hog", UID: burstableUID}
	meek := inventory.Ref{Namespace: "default", Name: "meek", UID: "u2"}
	candidates := []eviction.CandidateReport{
		{
			Ref: hog, Rank: 1, KubeletRank: 2, QoS: inventory.Value[string]{Value: "Burstable", Source: inventory.FromCgroup, Exact: true},
			Priority: inventory.Value[int32]{Value: -5, Source: inventory.FromAnnotation, Exact: true},
			Request:  inventory.Value[int64]{Value: 100 * mi, Source: inventory.FromCRI, Slack: 16 * mi}, Usage: 900 * mi, UsageKnown: true, OverRequest: true,
		},
		{
			Ref: meek, Rank: 2, KubeletRank: 1, Priority: inventory.Value[int32]{Source: inventory.FromDefault}, Request: inventory.Value[int64]{Source: inventory.FromDefault},
			NoDirect: `cgroup "/kubepods" is not this pod's alone`,
		},
		{
			Ref: inventory.Ref{Namespace: "kube-system", Name: "dns", UID: "u3"}, Rank: 3, QoS: inventory.Value[string]{Value: "Guaranteed", Source: inventory.FromCgroup, Exact: true},
			Priority: inventory.Value[int32]{Source: inventory.FromDefault}, Request: inventory.Value[int64]{Value: 70 * mi, Source: inventory.FromCRI, Exact: true},
			Usage: 60 * mi, UsageKnown: true, Barred: "protected: namespace kube-system",
		},
	}
	return admin.Explanation{
		Explanation: eviction.Explanation{
			Mode: "enforce", Memory: eviction.MemoryNow{MemoryReport: pressed()}, Signals: signalsNow(), Candidates: candidates, Next: &hog,
			Decisions: []eviction.Report{{
				ID: 7, Time: time.Date(2026, 11, 29, 18, 30, 0, 0, time.UTC), Outcome: eviction.OutcomeFailed, Summary: "hog was to be evicted", Memory: pressed(),
				Victim: &hog, Candidates: candidates,
				Kill: &eviction.KillReport{Intent: 41 * time.Microsecond, Sent: 62 * time.Microsecond, Settled: 90 * time.Second, Tries: 5, CRIError: "runtime is away"},
			}, {
				ID: 6, Time: time.Date(2026, 11, 29, 18, 29, 0, 0, time.UTC), Signal: eviction.AllocatableMemoryAvailable, Outcome: eviction.OutcomeEvicted, Summary: "meek was evicted", Memory: pressed(), Victim: &meek,
				Kill:    &eviction.KillReport{Direct: true, Intent: 41 * time.Microsecond, Sent: 62 * time.Microsecond, Settled: 12345 * time.Microsecond, Tries: 1},
				Telling: &eviction.Telling{Way: "status", Outcome: "told", Requests: 1, Asked: time.Date(2026, 11, 29, 18, 29, 0, 0, time.UTC), Event: true},
			}},
		},
		Holds: []admin.Hold{
			{ID: 7, State: "killed", Pod: hog, BackOff: 10 * time.Second, Usage: 900 * mi, Decided: time.Now()},
			{ID: 6, State: "intent", Pod: meek, Decided: time.Now()},
			{ID: 5, State: "released", Pod: meek, Decided: time.Now(), ReleasedAt: time.Now(), ReleaseReason: "by-hand"},
		},
	}
}

func TestOutputForPeople(t *testing.T) {
	x := explained()
	onePod := explained()
	onePod.Pod, onePod.Candidates, onePod.Holds = onePod.Next, onePod.Candidates[:1], onePod.Holds[:1]
	nothing := admin.Explanation{Explanation: eviction.Explanation{NoNext: "no pod is known"}}
	hog := inventory.Ref{Namespace: "default", Name: "hog", UID: burstableUID}
	bad := admin.Status{
		Version: "v1", PID: 42, Engine: eviction.State{Mode: "observe", Started: time.Now(), Pods: 3, Held: 1,
			Memory:  eviction.MemoryNow{MemoryReport: pressed(), MetSince: time.Now(), Age: 3 * time.Millisecond, Period: 2 * time.Millisecond, Samples: 7, Failures: 1},
			Signals: signalsNow(), Sources: []eviction.SourceNow{
				{Name: eviction.SourceMemory, OK: true, At: time.Now(), Age: 3 * time.Millisecond},
				{Name: eviction.SourceInventory, At: time.Now(), Age: 90 * time.Second}, {Name: eviction.SourceKubelet},
			},
			LastDecision: &eviction.Report{ID: 7, Time: time.Now(), Outcome: eviction.OutcomeEvicted, Summary: "evicted " + hog.String()}},
		Metrics:  admin.MetricsStatus{Address: "127.0.0.1:10271", Error: "listen tcp 127.0.0.1:10271: bind: address already in use"},
		Problems: []string{"no proxy (x): holds are not enforced, pods may be started again", "ledger: disk full"},
	}
	waits := []eviction.NotAdmitted{{
		Pod: inventory.Ref{Namespace: "default", Name: "new", UID: "u9"}, Condition: "MemoryPressure", Times: 3,
		First: time.Date(2026, 11, 29, 18, 30, 0, 0, time.UTC), Last: time.Now(),
	}}
	waiting := admin.Explanation{Explanation: eviction.Explanation{Memory: eviction.MemoryNow{MemoryReport: pressed()}, NotAdmitted: waits}, Pod: &waits[0].Pod}
	paused := admin.Status{
		Version: "v1", PID: 42, Engine: eviction.State{Mode: "paused", Started: time.Now(), Pods: 3, PausedUntil: time.Date(2026, 11, 29, 19, 0, 0, 0, time.UTC),
			Memory: eviction.MemoryNow{MemoryReport: pressed(), MetSince: time.Now()}, NotAdmitted: waits},
		Proxy: admin.ProxyStatus{Reachable: true, Listen: "unix:///c.sock", Upstream: "unix:///r.sock", UpstreamState: "READY", Runtime: "fake v1.0.0"},
	}
	for name, print := range map[string]func(io.Writer){
		"explain-waiting.txt": func(w io.Writer) { printExplanation(w, &waiting) },
		"status-paused.txt":   func(w io.Writer) { printStatus(w, &paused) },
		"explain.txt":         func(w io.Writer) { printExplanation(w, &x) },
		"explain-pod.txt":     func(w io.Writer) { printExplanation(w, &onePod) },
		"explain-nothing.txt": func(w io.Writer) { printExplanation(w, &nothing) },
		"holds.txt":           func(w io.Writer) { printHolds(w, x.Holds) },
		"holds-none.txt":      func(w io.Writer) { printHolds(w, nil) },
		"status-metrics.txt": func(w io.Writer) {
			printStatus(w, &admin.Status{Metrics: admin.MetricsStatus{Address: "127.0.0.1:10271"}})
		},
		"status-problems.txt": func(w io.Writer) { printStatus(w, &bad) },
	} {
		var out bytes.Buffer
		print(&out)
		golden.Check(t, name, []byte(withoutTimes(out.String())))
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 1: "1", 1023: "1023", 1 << 20: "1Mi", 1<<20 + 1: "1Mi", 1 << 30: "1Gi", 16393244 << 10: "16009Mi", 1<<63 - 1: "8796093022207Mi"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	if got := ago(time.Time{}); got != "-" {
		t.Errorf("no time: %q", got)
	}
	if got := ago(time.Now().Add(-90 * time.Second)); got != "1m30s ago" {
		t.Errorf("%q", got)
	}
}

func TestSourcesText(t *testing.T) {
	got := sourcesText([]eviction.SourceNow{
		{Name: eviction.SourceMemory, OK: true, At: time.Now(), Age: 3456 * time.Microsecond},
		{Name: eviction.SourceInventory, At: time.Now(), Age: 90400 * time.Millisecond}, {Name: eviction.SourceKubelet},
	})
	if want := "memory 3ms, inventory 1m30s (failing), kubeletConfig never"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
