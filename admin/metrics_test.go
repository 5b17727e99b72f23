package admin

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"net/http/httptest"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/golden"
)

func metricsOf(e Engine, proxy func(context.Context) ProxyStatus) MetricsOptions {
	return MetricsOptions{Version: "v1", Engine: e, Proxy: proxy, GC: garbageNow, Clock: func() time.Time { return moment }, Log: quiet()}
}

// exposed is what the collector says, as text. The registry is a pedantic one:
// it fails when what is collected is not what was described.
func exposed(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("%d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// Names, types, labels and help are what others' dashboards and alarms are
// built on.
func TestMetricsGolden(t *testing.T) {
	text := exposed(t, newCollector(metricsOf(newFixed(), goodProxy)))
	golden.Check(t, "metrics.txt", []byte(strings.ReplaceAll(text, runtime.Version(), "go1.x")))
	for _, f := range Families() {
		if !strings.Contains(text, "\n# TYPE "+metricPrefix+f.Name+" "+f.Type+"\n") && !strings.HasPrefix(text, "# HELP "+metricPrefix+f.Name) {
			t.Errorf("no %s %s is collected, or the fixture has none", f.Type, f.Name)
		}
	}
}

func TestMetricsLint(t *testing.T) {
	text := exposed(t, newCollector(metricsOf(newFixed(), goodProxy)))
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsPageIsCurrent(t *testing.T) {
	var b strings.Builder
	WriteMetricsPage(&b)
	golden.Check(t, "../../docs/metrics.md", []byte(b.String()))
}

// design §12: no pod names as labels.
func TestNoPodInMetrics(t *testing.T) {
	text := exposed(t, newCollector(metricsOf(newFixed(), goodProxy)))
	for _, pod := range []string{hog.Name + `"`, hog.UID, meek.Name, meek.UID, past.UID, `namespace=`} {
		if strings.Contains(text, pod) {
			t.Errorf("%q is in the metrics", pod)
		}
	}
}

// Whatever callers call and runtimes answer, the number of series is bounded.
func TestUnknownMethodsAndCodesAreOneLabel(t *testing.T) {
	proxy := func(context.Context) ProxyStatus {
		p := ProxyStatus{Reachable: true}
		for i := range 256 {
			for code := range 20 {
				p.Methods = append(p.Methods, MethodCount{Method: fmt.Sprintf("/invented.%d/Method", i), Code: fmt.Sprintf("Code(%d)", 100+code), Count: 1})
			}
		}
		return p
	}
	text := exposed(t, newCollector(metricsOf(newFixed(), proxy)))
	if n := strings.Count(text, "\n"+metricPrefix+"proxy_calls_total{"); n != 1 {
		t.Errorf("%d series of calls", n)
	}
	if want := metricPrefix + `proxy_calls_total{code="other",method="other",service="other"} 5120`; !strings.Contains(text, want) {
		t.Errorf("no %s in\n%s", want, text)
	}
}

// A number that is not known is not zero.
func TestMetricsBeforeTheFirstSample(t *testing.T) {
	f := &fixed{state: eviction.State{
		Mode:    "observe",
		Signals: []eviction.SignalNow{{Signal: eviction.MemoryAvailable, Thresholds: []eviction.ThresholdNow{{Kind: eviction.KindHard, Amount: 1 << 20}}}},
		Sources: []eviction.SourceNow{{Name: eviction.SourceMemory}},
	}}
	text := exposed(t, newCollector(metricsOf(f, func(context.Context) ProxyStatus { return ProxyStatus{Error: "no socket"} })))
	for _, name := range []string{"signal_available_bytes", "signal_capacity_bytes", "signal_time_to_threshold_seconds", "source_age_seconds", "proxy_calls_total", "proxy_refused_total"} {
		if strings.Contains(text, metricPrefix+name) {
			t.Errorf("%s although nothing is known", name)
		}
	}
	for _, line := range []string{
		`enforcing 0`, `source_up{source="memory"} 0`, `source_up{source="proxy"} 0`, `proxy_up 0`,
		`signal_threshold_bytes{kind="hard",signal="memory.available"} 1.048576e+06`,
	} {
		if !strings.Contains(text, "\n"+metricPrefix+line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

// A proxy that went away leaves its last counts, which age.
func TestProxyGone(t *testing.T) {
	now := moment
	up := true
	opt := metricsOf(newFixed(), func(ctx context.Context) ProxyStatus {
		if up {
			return goodProxy(ctx)
		}
		return ProxyStatus{Error: "no socket"}
	})
	opt.Clock = func() time.Time { return now }
	c := newCollector(opt)
	exposed(t, c)
	up, now = false, moment.Add(42*time.Second)
	text := exposed(t, c)
	for _, line := range []string{
		`proxy_up 0`, `source_up{source="proxy"} 0`, `source_age_seconds{source="proxy"} 42`, `proxy_refused_total{reason="held"} 3`, `proxy_upstream_state{state="READY"} 0`,
	} {
		if !strings.Contains(text, "\n"+metricPrefix+line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func TestMetThresholdIsNoTimeAway(t *testing.T) {
	text := exposed(t, newCollector(metricsOf(newFixed(), goodProxy)))
	f := newFixed()
	f.state.Signals[1].TimeToThreshold = nil
	calm := exposed(t, newCollector(metricsOf(f, goodProxy)))
	const name = metricPrefix + "signal_time_to_threshold_seconds"
	for _, tt := range []struct{ text, line string }{
		{text, name + `{signal="memory.available"} 0`}, {text, name + `{signal="allocatableMemory.available"} 90`},
		{calm, name + `{signal="allocatableMemory.available"} +Inf`},
	} {
		if !strings.Contains(tt.text, tt.line+"\n") {
			t.Errorf("no %s", tt.line)
		}
	}
}

// A metric that nobody declared is an error of the scrape, not a silent one.
func TestUndeclaredMetric(t *testing.T) {
	ch := make(chan prometheus.Metric, 2)
	s := sink{ch: ch, families: newCollector(metricsOf(newFixed(), goodProxy)).families}
	s.put("nonsense", 1)
	s.put("pods", 1, "label too many")
	for range 2 {
		if err := (<-ch).Write(nil); err == nil || bytes.Contains([]byte(err.Error()), []byte("nil pointer")) {
			t.Errorf("%v", err)
		}
	}
}
