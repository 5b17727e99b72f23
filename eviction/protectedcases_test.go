package eviction

import (
	"strings"
	"testing"
	"time"
)

// bugs.md B27: the largest is static and critical, the next is critical: the
// ordinary pod goes, and that nobody else can be taken is said once.
func TestCaseB27(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		static := r.add(testPod{uid: "static-critical", usage: 9 * gi, static: true, priority: 2_000_001_000})
		calico := r.add(testPod{uid: "calico", usage: gi, priority: 2_000_000_000})
		r.add(testPod{uid: "fluentd", usage: 600 * mi})
		r.node.setAvailable(4 * gi)
		defer r.evicted("fluentd")()
		for range 120 {
			r.node.setAvailable(60 * mi)
			pass(time.Second)
		}
		if killsOf(static)+killsOf(calico) != 0 {
			t.Error("a protected pod was killed")
		}
		r.wantOutcomes("evicted fluentd", "noVictim -")
		said := 0
		for _, l := range r.lines.all() {
			if strings.Contains(l, "nothing is evicted") {
				said++
			}
		}
		if said != 1 {
			t.Errorf("said %d times in two minutes", said)
		}
	})
}

// bugs.md B28: the static pod alone is the hog: it is said, and nobody is killed.
func TestCaseB28(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		proxy := r.add(testPod{uid: "kube-proxy", usage: 6 * gi, static: true})
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		r.node.setAvailable(60 * mi)
		pass(time.Minute)
		if killsOf(proxy)+pidfdsOf(proxy) != 0 {
			t.Error("a static pod was killed")
		}
		r.wantOutcomes("noVictim -")
	})
}
