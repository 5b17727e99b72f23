package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// softConfig is a soft threshold that margin bytes cross, and a hard one that
// nothing here reaches.
func (n *node) softConfig(threshold uint64, grace string) string {
	return fmt.Sprintf(`evictionSoft:
  memory.available: %q
evictionSoftGracePeriod:
  memory.available: %s
evictionMaxPodGracePeriod: 60
`, quantity(threshold), grace)
}

// restful waits until memory of the test before has come back. A soft threshold has
// to stay met; for a hard one a moment is enough.
func (n *node) restful() *node {
	n.t.Helper()
	last := n.meminfo().MemAvailable
	eventually(n.t, "memory at rest", time.Minute, func() bool {
		time.Sleep(2 * time.Second)
		now := n.meminfo().MemAvailable
		still := now < last+32*mi
		last = now
		return still
	})
	return n
}

// softHog is a hog with this grace period and a preStop hook that leaves a file in
// the folder returned.
func (n *node) softHog(name string, grace int, more ...string) (lab.PodSpec, string) {
	n.t.Helper()
	dir := filepath.Join(n.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	spec := n.pod(name, "BestEffort", 0, n.hogArgs(more...)...)
	spec.Containers[0].Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: dir}}
	spec.Containers[0].Annotations = map[string]string{
		"io.kubernetes.pod.terminationGracePeriod": fmt.Sprint(grace),
		"io.kubernetes.container.preStopHandler":   `{"exec":{"command":["/workload","write","--dir","/data","--total","4Ki","--hold=false"]}}`,
	}
	return spec, dir
}

// ended waits until the runtime sees the container's end.
func (n *node) ended(id string) *runtimeapi.ContainerStatus {
	n.t.Helper()
	var s *runtimeapi.ContainerStatus
	eventually(n.t, "end of the container", 90*time.Second, func() bool {
		r, err := n.direct.ContainerStatus(n.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		s = r.GetStatus()
		return err == nil && s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return s
}

// A soft eviction is polite, on a real runtime: the preStop hook runs in the
// container, and SIGTERM ends it with its own exit code.
func TestSoftEvictionIsPolite(t *testing.T) {
	n := newNode(t, lab.Current).restful()
	d := n.serve("64Mi", n.softConfig(n.threshold(), "1s"))
	neighbour := n.run(d.cri, n.pod("neighbour", "Burstable", 128*mi, "beat"))

	spec, hooked := n.softHog("polite", 30)
	hog := n.run(d.cri, spec)
	hold := d.waitKilled(spec.UID)
	if s := n.ended(hog.ContainerIDs[0]); s.GetExitCode() != 0 {
		t.Errorf("exit code %d of a pod that ends well at SIGTERM, want 0", s.GetExitCode())
	}
	mustHaveFiles(t, hooked, "its preStop hook has run")
	if r := d.decisionAbout(spec.UID); r.Signal != "memory.available" || r.Soft == nil || r.Kill.Signalled != 0 {
		t.Errorf("decision: %s", jsonText(r))
	}
	if hold.Signal != "memory.available" {
		t.Errorf("hold: %s", jsonText(hold))
	}
	mustBeRefused(t, d, spec)
	n.mustRun("the neighbour", neighbour.ContainerIDs[0])
	if got := d.evictions(); len(got) != 1 || got["polite"] != 1 {
		t.Errorf("evicted %v, want the hog alone, once", got)
	}
}

// Whoever does not listen is killed when the grace is over, and not before.
func TestSoftEvictionEnds(t *testing.T) {
	n := newNode(t, lab.Current).restful()
	d := n.serve("64Mi", n.softConfig(n.threshold(), "1s"))
	neighbour := n.run(d.cri, n.pod("neighbour", "Burstable", 128*mi, "beat"))

	const grace = 4
	spec, hooked := n.softHog("rude", grace, "--ignore-term")
	hog := n.run(d.cri, spec)
	hold := d.waitKilled(spec.UID)
	s := n.ended(hog.ContainerIDs[0])
	if s.GetExitCode() != 137 {
		t.Errorf("exit code %d of a pod that does not listen, want 137", s.GetExitCode())
	}
	if took := time.Unix(0, s.GetFinishedAt()).Sub(hold.Decided); took < grace*time.Second-500*time.Millisecond {
		t.Errorf("killed %v after the decision, its grace was %d s", took, grace)
	}
	mustHaveFiles(t, hooked, "its preStop hook has run")
	n.mustRun("the neighbour", neighbour.ContainerIDs[0])
}

func mustHaveFiles(t *testing.T, dir, what string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Errorf("%s: %d files, %v", what, len(entries), err)
	}
}

// Under memory pressure new BestEffort pods are kept out, of a real runtime too:
// everything else, and everything that is there, goes on.
func TestAdmissionUnderPressure(t *testing.T) {
	n := newNode(t, lab.Current).restful()
	// Before its grace is over a soft threshold is pressure all the same.
	d := n.serve("64Mi", n.softConfig(n.threshold()+uint64(n.margin()/2), "30m"))
	old := n.pod("old", "BestEffort", 0, "beat")
	there := n.run(d.cri, old)
	ballast := []lab.Running{n.ballast(d.cri), n.ballast(d.cri)}

	fresh := func() lab.PodSpec { return n.pod("fresh", "BestEffort", 0, "beat") }
	var refused error
	eventually(t, "a BestEffort pod is refused", 60*time.Second, func() bool {
		spec := fresh()
		r, err := lab.RunPod(patience(t), d.cri, spec)
		if err == nil {
			n.remove(r)
		}
		refused = err
		return err != nil
	})
	if status.Code(refused) != codes.ResourceExhausted {
		t.Errorf("refused with %v, want ResourceExhausted", refused)
	}
	burstable := n.run(d.cri, n.pod("burstable", "Burstable", 64*mi, "beat"))
	n.mustRun("a new Burstable pod", burstable.ContainerIDs[0])
	n.remove(there)
	restarted := n.run(d.cri, again(old)) // kubelet's next sandbox of a pod that was there before
	n.mustRun("a pod from before the pressure", restarted.ContainerIDs[0])
	if got := d.evictions(); len(got) != 0 {
		t.Errorf("evicted %v", got)
	}

	for _, r := range ballast {
		n.remove(r)
	}
	eventually(t, "a BestEffort pod is let in after the pressure", 60*time.Second, func() bool {
		time.Sleep(time.Second) // kubelet does not try faster
		_, err := lab.RunPod(patience(t), d.cri, fresh())
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		return err == nil
	})
}
