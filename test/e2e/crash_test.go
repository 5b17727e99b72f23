package e2e

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// bugs.md B42: killed 50 ms after a kill, the daemon comes back with the hold
// standing and takes no second victim for the same breach.
func TestKill9AfterTheKill(t *testing.T) {
	n := newNode(t, lab.Current)
	hard := quantity(n.threshold())
	d := n.serve(hard, "")
	ballast := n.ballast(d.cri)
	second := n.run(d.cri, n.pod("second", "Burstable", 64*mi, "alloc", "--total", "64Mi", "--rate", "1000Mi"))
	hogSpec := n.pod("hog", "Burstable", 64*mi, n.hogArgs()...)
	n.run(d.cri, hogSpec)

	eventually(t, "hold of the hog", 60*time.Second, func() bool { return len(holdsFile(t, n, hogSpec.UID)) > 0 })
	time.Sleep(50 * time.Millisecond) // the moment the case asks for
	d.kill9()
	n.mustRun("the second pod while the daemon is down", second.ContainerIDs[0])

	d = n.serve(hard, "")
	d.waitKilled(hogSpec.UID)
	mustBeRefused(t, d, hogSpec)
	time.Sleep(3 * time.Second) // a second victim would have been taken by now
	if got := d.evictions(); len(got) != 1 || got["hog"] != 1 {
		t.Errorf("evicted %v, want the hog alone, once", got)
	}
	n.mustRun("the second pod", second.ContainerIDs[0])
	n.mustRun("the ballast", ballast.ContainerIDs[0])
}

// Killed between intent and kill, the daemon comes back and finishes what it
// began, because the breach stands; the hold never lapses.
func TestKill9BetweenIntentAndKill(t *testing.T) {
	n := newNode(t, lab.Current)
	hard := quantity(n.threshold())
	d := n.start(binary(t, "evictdfault"), []string{"EVICTD_FAULT=between-intent-and-kill"}, "serve", "--config", n.config(hard, ""))
	d.waitReady()
	neighbour := n.run(d.cri, n.pod("neighbour", "Burstable", 128*mi, "beat"))
	hogSpec := n.pod("hog", "Burstable", 64*mi, n.hogArgs()...)
	hog := n.run(d.cri, hogSpec)
	select {
	case <-d.done:
	case <-time.After(60 * time.Second):
		t.Fatal("the daemon was not ended between intent and kill")
	}
	hs := holdsFile(t, n, hogSpec.UID)
	if len(hs) != 1 || hs[0].State.String() != "intent" {
		t.Fatalf("holds file after the crash: %+v, want one intent", hs)
	}
	n.mustRun("the hog, which nobody killed", hog.ContainerIDs[0])
	n.mustRun("the neighbour", neighbour.ContainerIDs[0])

	d = n.serve(hard, "")
	hold := d.waitKilled(hogSpec.UID)
	if hold.ID != hs[0].ID {
		t.Errorf("decision %d instead of the interrupted %d", hold.ID, hs[0].ID)
	}
	mustBeRefused(t, d, hogSpec)
	if got := d.evictions(); len(got) != 1 || got["hog"] != 1 {
		t.Errorf("evicted %v, want the hog alone, once", got)
	}
	n.mustRun("the neighbour", neighbour.ContainerIDs[0])
}

// Interrupted between intent and kill with the breach gone at the restart: the
// intent is dropped and the pod lives.
func TestIntentIsDroppedWhenTheBreachIsGone(t *testing.T) {
	n := newNode(t, lab.Current)
	d := n.start(binary(t, "evictdfault"), []string{"EVICTD_FAULT=between-intent-and-kill"}, "serve", "--config", n.config(quantity(n.threshold()), ""))
	d.waitReady()
	hogSpec := n.pod("hog", "Burstable", 64*mi, n.hogArgs()...)
	hog := n.run(d.cri, hogSpec)
	<-d.done
	d = n.serve("100Mi", "") // nowhere near
	eventually(t, "the intent is dropped", 30*time.Second, func() bool {
		hs := d.holds(hogSpec.UID)
		return len(hs) == 1 && hs[0].State == "released" && hs[0].ReleaseReason == "breach-gone"
	})
	n.mustRun("the hog", hog.ContainerIDs[0])
}

// containerd killed under pressure: the kill goes through the cgroup, calls get
// Unavailable at once, and afterwards the inventory equals a fresh list.
func TestContainerdDeadUnderPressure(t *testing.T) {
	n := newNode(t, lab.Current)
	d := n.serve(quantity(n.threshold()), "")
	neighbour := n.run(d.cri, n.pod("neighbour", "Burstable", 128*mi, "beat"))
	hogSpec := n.pod("hog", "Burstable", 64*mi, n.hogArgs()...)
	hog := n.run(d.cri, hogSpec)
	if err := n.ctd.Kill(); err != nil {
		t.Fatal(err)
	}
	mustBeUnavailable(t, d)
	hold := d.waitKilled(hogSpec.UID)
	if hold.State != "killed" {
		t.Errorf("hold: %s", jsonText(hold))
	}
	mustBeUnavailable(t, d)
	if err := n.ctd.Restart(patience(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "calls flow again", 30*time.Second, func() bool {
		_, err := d.cri.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err == nil
	})
	mustBeRefused(t, d, hogSpec)
	n.mustRun("the neighbour", neighbour.ContainerIDs[0])
	eventually(t, "the hog's sandbox is stopped once the runtime is back", 60*time.Second, func() bool {
		r, err := n.direct.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: hog.SandboxID})
		return err == nil && r.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	})
	mustEqualFreshList(t, n, d)
}
