package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

func TestProtection(t *testing.T) {
	all := Protection{Static: true, Namespaces: []string{"kube-system", "infra"}, Labels: map[string]string{"keep": "yes"}, Trusted: []string{"trusted"}}
	pod := func(namespace string, priority int32, labels, annotations map[string]string) *inventory.Pod {
		return &inventory.Pod{
			Ref: inventory.Ref{Namespace: namespace, Name: "p", UID: "u"}, Labels: labels, Annotations: annotations,
			Priority: inventory.Value[int32]{Value: priority},
		}
	}
	keep := map[string]string{"keep": "yes"}
	source := func(s string) map[string]string { return map[string]string{"kubernetes.io/config.source": s} }
	for _, tt := range []struct {
		name    string
		protect Protection
		pod     *inventory.Pod
		want    string
	}{
		{"an ordinary pod", all, pod("default", 0, nil, source("api")), ""},
		{"static from a file", all, pod("default", 0, nil, source("file")), "protected: static pod"},
		{"static from HTTP", all, pod("default", 0, nil, source("http")), "protected: static pod"},
		{"a mirror", all, pod("default", 0, nil, map[string]string{"kubernetes.io/config.mirror": "x"}), "protected: static pod"},
		{"protectStatic off", Protection{}, pod("default", 0, nil, source("file")), ""},
		{"system-cluster-critical", Protection{}, pod("default", 2_000_000_000, nil, nil), "protected: critical priority"},
		{"the highest user priority", all, pod("default", 1_999_999_999, nil, nil), ""},
		{"kube-system", all, pod("kube-system", 0, nil, nil), "protected: namespace kube-system"},
		{"a namespace that only looks like it", all, pod("kube-system-2", 0, nil, nil), ""},
		{"label in a trusted namespace", all, pod("trusted", 0, keep, nil), "protected: label keep=yes"},
		{"label with another value", all, pod("trusted", 0, map[string]string{"keep": "no"}, nil), ""},
		{"promise 7: label elsewhere buys nothing", all, pod("default", 0, keep, nil), ""},
		{"trusted without a label", all, pod("trusted", 0, nil, nil), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.protect.bars(tt.pod, doubts{}); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// Each kind of protected pod is the largest user by far; the ordinary pod goes.
func TestProtectedPodsAreNeverVictims(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pod    testPod
		cgroup func(c *fakeCgroup)
		barred string
	}{
		{"bugs.md B27, B28: static", testPod{static: true}, nil, "static pod"},
		{"critical priority", testPod{priority: 2_000_001_000}, nil, "critical priority"},
		{"kube-system", testPod{namespace: "kube-system"}, nil, "namespace kube-system"},
		{"label in a trusted namespace", testPod{namespace: "trusted", labels: map[string]string{"keep": "yes"}}, nil, "label keep=yes"},
		{"a shim in its cgroup", testPod{}, func(c *fakeCgroup) { c.foreign = []string{"containerd-shim (pid 9)"} }, "its cgroup holds containerd-shim (pid 9)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				tt.pod.uid, tt.pod.usage = "critical", 6*gi
				protected := r.add(tt.pod)
				if tt.cgroup != nil {
					protected.change(tt.cgroup)
				}
				r.add(testPod{uid: "fluentd", usage: 300 * mi})
				defer r.evicted("fluentd")()
				r.wantOutcomes("evicted fluentd")
				for range 20 { // the pressure stays, nobody is left to take
					r.node.setAvailable(50 * mi)
					pass(time.Second)
				}
				if killsOf(protected)+pidfdsOf(protected) != 0 || slices.Contains(r.runtime.stopped(), "sandbox s-critical") {
					t.Error("a protected pod was killed")
				}
				r.wantOutcomes("evicted fluentd", "noVictim -")
				if n := strings.Count(strings.Join(r.lines.all(), "\n"), "nothing is evicted"); n != 1 {
					t.Errorf("said %d times that nothing is evicted, want one line and not one per tick", n)
				}
				cands := r.eng.History(1)[0].Candidates
				if len(cands) == 0 || !strings.Contains(cands[0].Barred, tt.barred) {
					t.Errorf("candidates %+v, want the reason %q", cands, tt.barred)
				}
			})
		})
	}
}

// Labels of tenants' namespaces protect nobody.
func TestTenantsCannotBuyImmunity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{namespace: "tenant", uid: "hog", usage: 4 * gi, labels: map[string]string{"keep": "yes"}})
		r.add(testPod{uid: "small", usage: 300 * mi})
		defer r.evicted("hog")()
		r.wantOutcomes("evicted hog")
	})
}

// Each breach is reported once, a new one anew.
func TestNoVictimIsReportedOncePerBreach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "static-hog", usage: 6 * gi, static: true})
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		for range 2 {
			r.node.setAvailable(50 * mi)
			pass(30 * time.Second)
			r.node.setAvailable(8 * gi)
			pass(5 * time.Second)
		}
		r.wantOutcomes("noVictim -", "noVictim -")
		rep := r.eng.History(1)[0]
		if rep.Summary != "every pod is protected, held or already dying" || rep.Memory.Available != 50*mi || rep.Memory.Threshold != 500*mi {
			t.Errorf("report %+v", rep)
		}
		if killsOf(c) != 0 || len(r.writer.Records()) != 0 {
			t.Error("killed or held")
		}
	})
}

// In the early band a node packed with pods inside their requests sees no kill;
// below the floor it does.
func TestEarlyBandSparesPodsInsideTheirRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "inside", usage: 3 * gi, request: 4 * gi})
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(120 * mi)
		pass(10 * time.Second)
		r.wantOutcomes("noVictim -")
		if got := r.eng.State().Waiting; !strings.Contains(got, "inside its request") {
			t.Errorf("waiting: %q", got)
		}
		r.node.setAvailable(90 * mi)
		pass(time.Second)
		r.wantOutcomes("noVictim -", "evicted inside")
	})
}
