package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// RunPodSandbox is under way (the runtime hangs) when its UID becomes held: it
// cannot be refused any more, so what it started is stopped again.
func TestSandboxUnderWayWhenItsPodIsHeld(t *testing.T) {
	n := newNode(t, lab.Current)
	d := n.serve(quantity(n.threshold()), "")
	hogSpec := n.pod("hog", "BestEffort", 0, n.hogArgs()...)
	n.run(d.cri, hogSpec)

	if err := syscall.Kill(n.ctd.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	type outcome struct {
		r   lab.Running
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		spec := again(hogSpec)
		spec.Containers = nil
		r, err := lab.RunPod(ctx, d.cri, spec)
		done <- outcome{r, err}
	}()
	hold := d.waitKilled(hogSpec.UID) // by its cgroup, the runtime hanging
	if err := syscall.Kill(n.ctd.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil {
		t.Fatalf("the call that was under way failed: %v", got.err)
	}
	eventually(t, "the sandbox that came up is stopped again", 60*time.Second, func() bool {
		r, err := n.direct.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: got.r.SandboxID})
		return err == nil && r.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	})
	if hs := d.holds(hogSpec.UID); len(hs) != 1 || hs[0].ID != hold.ID || hs[0].State != "killed" {
		t.Errorf("holds: %s", jsonText(hs))
	}
	mustBeRefused(t, d, hogSpec)
}

// People debug nodes with crictl, through the same socket.
func TestCrictlThroughTheProxy(t *testing.T) {
	n := newNode(t, lab.Current)
	d := n.serve("100Mi", "")
	web := n.run(d.cri, n.pod("web", "Burstable", 64*mi, "beat"))
	tools, err := lab.Ensure(patience(t), testWriter{t}, lab.Current)
	if err != nil {
		t.Fatal(err)
	}
	crictl := func(args ...string) string {
		t.Helper()
		endpoint := "unix://" + filepath.Join(n.dir, "cri.sock")
		cmd := exec.Command(tools.Crictl, append([]string{"-r", endpoint, "-i", endpoint, "-t", "30s"}, args...)...)
		var stderr strings.Builder // it warns there of what it guesses
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("crictl %v: %v\n%s%s", args, err, out, stderr.String())
		}
		return string(out)
	}
	if out := crictl("version"); !strings.Contains(out, "containerd") {
		t.Errorf("version: %s", out)
	}
	if out := crictl("ps"); !strings.Contains(out, "main") || !strings.Contains(out, "Running") {
		t.Errorf("ps: %s", out)
	}
	var inspected struct {
		Status struct {
			State string `json:"state"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(crictl("inspect", web.ContainerIDs[0])), &inspected); err != nil || inspected.Status.State != "CONTAINER_RUNNING" {
		t.Errorf("inspect: %v, %+v", err, inspected)
	}
	crictl("stopp", web.SandboxID)
	crictl("rmp", web.SandboxID)
	mustKnowNothing(t, d)
}

// mustKnowNothing waits until no pod runs any more, as far as the daemon knows.
func mustKnowNothing(t *testing.T, d *daemon) {
	t.Helper()
	eventually(t, "the inventory is empty", 30*time.Second, func() bool {
		s, err := d.admin().Status(t.Context())
		return err == nil && s.Engine.Pods == 0
	})
}

// The halves as two processes do the same as serve does in one.
func TestHalvesInTwoProcesses(t *testing.T) {
	n := newNode(t, lab.Current)
	path := n.config(quantity(n.threshold()), "")
	p := n.start(binary(t, ""), nil, "proxy", "--config", path)
	e := n.start(binary(t, ""), nil, "evict", "--config", path)
	e.waitReady()
	hogSpec := n.pod("hog", "BestEffort", 0, n.hogArgs()...)
	n.run(p.cri, hogSpec)
	e.waitKilled(hogSpec.UID)
	mustBeRefused(t, p, hogSpec)
	e.kill9()
	mustBeRefused(t, p, hogSpec) // the hold outlives the evictor
	p.kill9()
	p = n.start(binary(t, ""), nil, "proxy", "--config", path)
	eventually(t, "the new proxy serves", 30*time.Second, func() bool {
		_, err := p.cri.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err == nil
	})
	mustBeRefused(t, p, hogSpec) // and the proxy
}
