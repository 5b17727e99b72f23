package main

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	const race = "[k8s.io] NRI plugin synchronization should receive information about all containers without the race condition during initialization"
	const lost = "spec discrepancy: containerd lost 5 container(s) created concurrently"
	direct := []result{
		{Name: "a", State: passed}, {Name: "b", State: passed}, {Name: "c", State: passed}, {Name: "d", State: passed},
		{Name: "e", State: skipped, Reason: "no AppArmor"}, {Name: "f", State: "failed", Reason: "digest"}, {Name: "g", State: "failed"},
		{Name: race, State: passed}, {Name: race + " #2", State: passed},
	}
	proxied := []result{
		{Name: "a", State: passed}, {Name: "b", State: skipped, Reason: "field is missing"}, {Name: "c", State: "failed", Reason: "broken"},
		{Name: "e", State: skipped, Reason: "no AppArmor"}, {Name: "f", State: passed}, {Name: "g", State: "failed"},
		{Name: race, State: skipped, Reason: lost}, {Name: race + " #2", State: skipped, Reason: lost}, {Name: "h", State: "failed"},
	}
	want := []struct {
		d                 difference
		regression, flaky bool
	}{
		{difference{"b", passed, skipped, "field is missing"}, true, false},
		{difference{"c", passed, "failed", "broken"}, true, false},
		{difference{"d", passed, absent, ""}, true, false},
		{difference{"f", "failed", passed, "digest"}, false, false},
		{difference{race, passed, skipped, lost}, true, true},
		{difference{race + " #2", passed, skipped, lost}, true, false},
		{difference{"h", absent, "failed", ""}, false, false},
	}
	got := compare(direct, proxied)
	if len(got) != len(want) {
		t.Fatalf("differences: %+v", got)
	}
	for i, w := range want {
		if got[i] != w.d || got[i].regression() != w.regression || got[i].flaky() != w.flaky {
			t.Errorf("got %+v (regression %t, flaky %t), want %+v", got[i], got[i].regression(), got[i].flaky(), w)
		}
	}
}

// TestFlaky: only the known way of a known spec is one that is run again.
func TestFlaky(t *testing.T) {
	for name, how := range knownFlaky() {
		if d := (difference{name, passed, skipped, "it says: " + how + " 3"}); !d.flaky() {
			t.Errorf("not taken for flaky: %+v", d)
		}
		for _, d := range []difference{{name, passed, "failed", how}, {name, passed, absent, ""}, {name, passed, skipped, "NRI is off"}} {
			if d.flaky() || !d.regression() {
				t.Errorf("not a plain regression: %+v", d)
			}
		}
	}
}

func TestReadReport(t *testing.T) {
	spec := func(kind, text, state, message string) string {
		return `{"ContainerHierarchyTexts":["[k8s.io] X","y"],"LeafNodeType":"` + kind + `","LeafNodeText":"` + text +
			`","State":"` + state + `","Failure":{"Message":"` + message + `"}}`
	}
	report := func(specs ...string) string { return `[{"SpecReports":[` + strings.Join(specs, ",") + `]}]` }
	tests := []struct {
		name, in string
		want     []result
		err      string
	}{
		{"states", report(spec("BeforeSuite", "", "passed", ""), spec("It", "one", "passed", ""), spec("It", "two", "skipped", "no\\n  field"),
			spec("It", "three", "failed", "boom"), spec("It", "bench", "skipped", ""), spec("It", "one", "panicked", "p")), []result{
			{"[k8s.io] X y one", passed, ""}, {"[k8s.io] X y two", skipped, "no field"},
			{"[k8s.io] X y three", "failed", "boom"}, {"[k8s.io] X y one #2", "panicked", "p"},
		}, ""},
		{"set-up failed", report(spec("BeforeSuite", "", "failed", "no runtime"), spec("It", "one", "passed", "")), nil, "BeforeSuite failed: no runtime"},
		{"nothing ran", report(spec("It", "bench", "skipped", "")), nil, "no spec"},
		{"cut off", `[{"SpecReports":[`, nil, "critest's report"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readReport(strings.NewReader(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v", got)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("got %+v, want %+v", got[i], tt.want[i])
				}
			}
		})
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add(`[{"SpecReports":[{"LeafNodeType":"It","LeafNodeText":"a","State":"passed"}]}]`)
	f.Add(`[{"SpecReports":[{"LeafNodeType":"It","LeafNodeText":"a","State":"skipped","Failure":{"Message":"b"}}]}]`)
	f.Add(`[]`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, in string) {
		got, err := readReport(strings.NewReader(in))
		if (err == nil) != (len(got) > 0) {
			t.Fatalf("%d specs and error %v", len(got), err)
		}
		names := map[string]bool{}
		for _, r := range got {
			if names[r.Name] && !strings.Contains(r.Name, "#") {
				t.Fatalf("name %q twice", r.Name)
			}
			names[r.Name] = true
		}
	})
}
