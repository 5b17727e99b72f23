package e2e

import (
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// Memory really ends: a hog without limits takes all there is, with the default
// thresholds. It dies by our hand and nobody else does, neither by ours nor by the
// kernel's.
func TestVMExhaustion(t *testing.T) {
	exhaustion(t, lab.Current, "Burstable", 32*mi, "200Mi")
}

// The same as fast as the machine can, by a pod that asked for nothing, on the
// oldest runtime.
func TestVMExhaustionFast(t *testing.T) {
	exhaustion(t, lab.Debian, "BestEffort", 0, "2Gi")
}

func exhaustion(t *testing.T, v lab.Version, qos string, request int64, rate string) {
	s := newScene(t, v)
	s.beating()
	hogSpec := s.pod("hog", qos, request, "alloc", "--total", "64Gi", "--rate", rate)
	s.run(s.d.cri, hogSpec)

	hold := s.d.waitKilled(hogSpec.UID)
	if hold.Signal != "memory.available" || hold.Available >= hold.Threshold {
		t.Errorf("the numbers of the hold make no sense: %s", jsonText(hold))
	}
	s.mustLive()
	s.mustHaveSpared()
	if got := s.d.evictions(); len(got) != 1 || got["hog"] != 1 {
		t.Errorf("evicted %v, want the hog alone, once", got)
	}
	r := s.d.decisionAbout(hogSpec.UID)
	t.Logf("evicted with %d MiB available, the hog using %d MiB; SIGKILL after %v, settled after %v; swap free %d of %d MiB",
		hold.Available/mi, hold.Usage/mi, r.Kill.Sent, r.Kill.Settled, r.Memory.SwapFree/mi, r.Memory.SwapTotal/mi)
	mustBeRefused(t, s.d, hogSpec)
}
