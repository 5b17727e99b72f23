package eviction

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", path, got)
	}
}

// node of the golden files: one victim, one pod that is spared, one protected,
// one held by decision 1.
func goldenRig(t *testing.T) (r *rig, stop func()) {
	t.Helper()
	r = newRig(t)
	r.set.Rules.MinReclaim = 100 * mi
	r.node.swapTotal, r.node.swapFree = 8*gi, 7*gi
	r.cgroups.volumes["22222222-2222-3333-4444-555555555555"] = 40 * mi
	r.add(testPod{namespace: "shop", name: "cart", uid: "11111111-2222-3333-4444-555555555555", request: 256 * mi, usage: 1300 * mi})
	c := r.add(testPod{namespace: "shop", name: "till", uid: "22222222-2222-3333-4444-555555555555", request: gi, usage: 900 * mi, priority: 100})
	c.inactive = 100 * mi
	r.add(testPod{namespace: "kube-system", name: "etcd", uid: "0123456789abcdef0123456789abcdef", usage: 700 * mi, static: true, parent: "/kubepods/besteffort/pod0123456789abcdef0123456789abcdef"})
	r.add(testPod{namespace: "shop", name: "shared", uid: "33333333-2222-3333-4444-555555555555", usage: 2 * gi, parent: "/kubepods"})
	r.cgroups.make("/kubepods/c-33333333-2222-3333-4444-555555555555", 50*mi)
	r.node.setAvailable(8 * gi)
	stop = r.start()
	pass(2*time.Second + 3*time.Millisecond)
	r.node.setAvailable(430 * mi)
	pass(2 * time.Second)
	return r, stop
}

// Promise 8: every input of a decision is in its report.
func TestReportGolden(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, stop := goldenRig(t)
		defer stop()
		reports := r.eng.History(10)
		if len(reports) != 1 {
			t.Fatalf("%d decisions", len(reports))
		}
		golden(t, "report.golden.json", reports[0])
	})
}

func TestStateGolden(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, stop := goldenRig(t)
		defer stop()
		s := r.eng.State()
		s.LastDecision = nil // has a file of its own
		golden(t, "state.golden.json", s)
	})
}

func TestExplainGolden(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, stop := goldenRig(t)
		defer stop()
		golden(t, "explain.golden.json", r.eng.Explain(0))
	})
}

// A report that was written can be read again, as the ledger does.
func TestReportRoundTrip(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "report.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.golden.json", r)
}

func TestExplainWithoutBreach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "over", usage: 2 * gi, request: gi})
		r.add(testPod{uid: "inside", usage: 3 * gi, request: 4 * gi})
		x := r.build().Explain(5)
		if x.Next != nil || x.NoNext != "no pod is known" {
			t.Errorf("before any plan: next %v, %q", x.Next, x.NoNext)
		}
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		x = r.eng.Explain(5)
		if x.Next == nil || x.Next.UID != "over" || x.NoNext != "" || len(x.Candidates) != 2 || x.Candidates[0].UID != "over" {
			t.Errorf("next %v, %q, candidates %+v", x.Next, x.NoNext, x.Candidates)
		}
		if x.Memory.Met || !strings.HasPrefix(x.Mode, "enforce") || len(x.Decisions) != 0 {
			t.Errorf("%+v", x)
		}
		if n := len(r.eng.History(10)); n != 0 {
			t.Errorf("explaining made %d decisions", n)
		}
	})
}
