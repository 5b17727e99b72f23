package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// Before a soft eviction the kernel is asked to take memory back (memory.reclaim,
// v2), and where that is enough nobody goes. By kubelet's reading page cache in
// use counts as used: a pod that reads one file again and again is enough.
func TestVMReclaimInsteadOfASoftEviction(t *testing.T) {
	needMachine(t)
	s := &scene{node: newNode(t, lab.Current)}
	const size = 256 * mi
	spec, dir := s.withFolder(s.pod("reader", "BestEffort", 0, "flood", "--file", "/data/f", "--total", mib(size), "--passes", "4"), "reader")
	spec.LogDirectory = dir
	s.d = &daemon{n: s.node, cri: s.direct} // the reader is there before the daemon
	reader := s.live(spec)
	eventually(t, "the file is in use", 120*time.Second, func() bool { return reader.lines("flood: pass 4") > 0 })

	// Measured with the daemon running, and less than one chunk of 64 MiB above what
	// is available: one round is enough.
	s.begin("memoryAvailableFrom: kubelet\n")
	s.defaults(fmt.Sprintf(`memoryAvailableFrom: kubelet
evictionHard:
%sevictionSoft:
  memory.available: %q
evictionSoftGracePeriod:
  memory.available: 2s
`, lab.DisksOff, quantity(s.status().Engine.Memory.AvailableKubelet+24*mi)))
	if err := s.d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the soft threshold is in force", 30*time.Second, func() bool {
		// Met when loaded: not acted on until somebody says so.
		return answer(s.d, (*admin.Client).Arm).Changed
	})

	var report string
	eventually(t, "memory taken back instead of a soft eviction", 60*time.Second, func() bool {
		x := answer(s.d, func(c *admin.Client, ctx context.Context) (admin.Explanation, error) { return c.Explain(ctx, "") })
		for _, r := range x.Decisions {
			if r.Soft != nil && r.Soft.Reclaim != nil {
				report = r.Outcome
				if r.Soft.Reclaim.Returned < 64*mi {
					t.Errorf("taken back: %s", jsonText(r.Soft.Reclaim))
				}
				t.Logf("decision: %s", jsonText(r))
			}
		}
		return report != ""
	})
	if report != "reclaimed" {
		t.Errorf("outcome %q, want reclaimed", report)
	}
	s.mustHaveKilledNobody()
	s.mustRun("the reader", reader.run.ContainerIDs[0])
	s.mustHaveSpared()
}
