package e2e

import (
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// Memory really ends: a hog without limits takes all there is, with the default
// thresholds. It dies by our hand and nobody else does, neither by ours nor by the
// kernel's.
func TestVMExhaustion(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version lab.Version
		qos     string
		request int64
		rate    string
	}{
		{"burstable hog", lab.Current, "Burstable", 32 * mi, "200Mi"},
		{"best-effort hog, as fast as it goes", lab.Debian, "BestEffort", 0, "2Gi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t, tt.version)
			s.beating()
			hogSpec := s.pod("hog", tt.qos, tt.request, "alloc", "--total", "64Gi", "--rate", tt.rate)
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
		})
	}
}
