package e2e

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// decisionAbout waits for the finished decision about a pod.
func (d *daemon) decisionAbout(uid string) eviction.Report {
	d.n.t.Helper()
	var found eviction.Report
	eventually(d.n.t, "a recorded decision", 30*time.Second, func() bool {
		x, err := d.admin().Explain(d.n.t.Context(), uid)
		if err != nil {
			return false
		}
		for _, r := range x.Decisions {
			if r.Victim != nil && r.Victim.UID == uid && r.Kill != nil {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

// A pod that ignores SIGTERM dies all the same, and at once: the kill is
// SIGKILL to its cgroup.
func TestIgnoringSIGTERMHelpsNobody(t *testing.T) {
	n := newNode(t, lab.Current)
	d := n.serve(quantity(n.threshold()), "")
	hogSpec := n.pod("hog", "BestEffort", 0, n.hogArgs("--ignore-term")...)
	hog := n.run(d.cri, hogSpec)
	d.waitKilled(hogSpec.UID)
	r := d.decisionAbout(hogSpec.UID)
	if !r.Kill.Direct || r.Kill.Settled > 30*time.Second {
		t.Errorf("kill: %s", jsonText(r.Kill))
	}
	eventually(t, "the runtime sees exit code 137", 30*time.Second, func() bool {
		s, err := n.direct.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: hog.ContainerIDs[0]})
		return err == nil && s.GetStatus().GetExitCode() == 137
	})
}

type foreignParent struct {
	name      string
	parent    func(uid string) string
	neighbour bool // has the same parent
}

// foreignParents are cgroup parents that a runtime takes and that are not what
// kubelet gives a pod.
func foreignParents(where surroundings) []foreignParent {
	// Burstable, where the neighbour's oom_score_adj tells its request.
	shared := lab.NewUID()
	if where.systemd { // runc takes slices only
		return []foreignParent{
			{"kubepods itself", func(string) string { return "kubepods.slice" }, true},
			{"shared by two pods", func(string) string { return lab.QoSSlice("Burstable", shared) }, true},
		}
	}
	parents := []foreignParent{
		{"kubepods itself", func(string) string { return "/kubepods" }, true},
		{"none, as crictl's pods have", func(string) string { return "" }, false},
		{"shared by two pods", func(string) string { return lab.QoSParent("Burstable", shared) }, true},
	}
	if !where.own {
		// On pure v2 the cgroupfs driver puts such a pod below containerd's own
		// cgroup, where nobody looks for pods.
		parents = append(parents, foreignParent{"a slice", func(uid string) string { return lab.QoSSlice("Burstable", uid) }, false})
	}
	return parents
}

// Cgroup parents that are not the pod's alone: never a direct kill, and the hog
// goes all the same, through the runtime.
func TestForeignCgroupParentIsNeverKilledDirectly(t *testing.T) {
	for _, tt := range foreignParents(here(t)) {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, lab.Current)
			d := n.serve(quantity(n.threshold()), "")
			// Inside its request: where the runtime takes seconds to stop the hog, a
			// second victim may be due, which is not what this is about.
			neighbourSpec := n.pod("neighbour", "Burstable", 128*mi, "beat")
			hogSpec := n.pod("hog", "BestEffort", 0, n.hogArgs()...)
			hogSpec.CgroupParent = tt.parent(hogSpec.UID)
			if tt.neighbour {
				neighbourSpec.CgroupParent = hogSpec.CgroupParent
			}
			neighbour := n.run(d.cri, neighbourSpec)
			n.run(d.cri, hogSpec)
			d.waitKilled(hogSpec.UID)
			r := d.decisionAbout(hogSpec.UID)
			if r.Kill.Direct {
				t.Errorf("cgroup %q was killed directly", hogSpec.CgroupParent)
			}
			n.mustRun("the neighbour", neighbour.ContainerIDs[0])
			mustBeRefused(t, d, hogSpec)
			if got := d.evictions(); len(got) != 1 || got["hog"] != 1 {
				t.Errorf("evicted %v, want the hog alone, once", got)
			}
		})
	}
}

// Somebody else stops the sandbox, or removes the container, while the decision
// falls: the outcome is recorded and nobody else suffers.
func TestSomebodyElseStopsThePodMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		name string
		stop func(n *node, hog lab.Running) error
	}{
		{"sandbox stopped", func(n *node, hog lab.Running) error {
			_, err := n.direct.StopPodSandbox(patience(n.t), &runtimeapi.StopPodSandboxRequest{PodSandboxId: hog.SandboxID})
			return err
		}},
		{"container removed", func(n *node, hog lab.Running) error {
			_, err := n.direct.StopContainer(patience(n.t), &runtimeapi.StopContainerRequest{ContainerId: hog.ContainerIDs[0]})
			if err == nil {
				_, err = n.direct.RemoveContainer(patience(n.t), &runtimeapi.RemoveContainerRequest{ContainerId: hog.ContainerIDs[0]})
			}
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, lab.Current)
			d := n.serve(quantity(n.threshold()), "")
			neighbour := n.run(d.cri, n.pod("neighbour", "BestEffort", 0, "beat"))
			hogSpec := n.pod("hog", "BestEffort", 0, n.hogArgs()...)
			hog := n.run(d.cri, hogSpec)
			eventually(t, "the threshold is met", 60*time.Second, func() bool {
				s, err := d.admin().Status(t.Context())
				return err == nil && (s.Engine.Memory.Met || s.Engine.Decisions > 0)
			})
			if err := tt.stop(n, hog); err != nil {
				t.Fatal(err)
			}
			eventually(t, "no kill is left in the air", 90*time.Second, func() bool {
				for _, h := range d.holds(hogSpec.UID) {
					if h.State == "intent" {
						return false
					}
				}
				s, err := d.admin().Status(t.Context())
				return err == nil && !s.Engine.Memory.Met
			})
			n.mustRun("the neighbour", neighbour.ContainerIDs[0])
			for pod, times := range d.evictions() {
				if pod != "hog" || times != 1 {
					t.Errorf("%s was evicted %d times", pod, times)
				}
			}
		})
	}
}

// Observe decides and explains, and touches nothing.
func TestObserveTouchesNothing(t *testing.T) {
	n := newNode(t, lab.Current)
	d := n.serve(quantity(n.threshold()), "mode: observe\n")
	hogSpec := n.pod("hog", "BestEffort", 0, n.hogArgs()...)
	hog := n.run(d.cri, hogSpec)
	var x admin.Explanation
	eventually(t, "a decision of observe", 60*time.Second, func() bool {
		var err error
		x, err = d.admin().Explain(t.Context(), hogSpec.UID)
		return err == nil && len(x.Decisions) > 0 && x.Decisions[0].Outcome == "wouldEvict"
	})
	if x.Decisions[0].Victim == nil || x.Decisions[0].Victim.Name != "hog" {
		t.Errorf("would evict %s", jsonText(x.Decisions[0].Victim))
	}
	time.Sleep(time.Second)
	n.mustRun("the hog", hog.ContainerIDs[0])
	if hs := d.holds(hogSpec.UID); len(hs) != 0 {
		t.Errorf("observe wrote holds: %s", jsonText(hs))
	}
}
