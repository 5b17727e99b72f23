package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// scene is a node with the default thresholds of memory and pods on it that keep within
// their requests and show that they live, in the test machine.
type scene struct {
	*node
	d          *daemon
	neighbours []*livePod
	oomBefore  string
	logBefore  string // the kernel's
}

// livePod is a pod whose output is kept.
type livePod struct {
	spec lab.PodSpec
	run  lab.Running
	log  string
}

// newScene is for the machine of `make test-vm` only.
func newScene(t *testing.T, v lab.Version) *scene {
	t.Helper()
	needMachine(t)
	s := &scene{node: newNode(t, v)}
	s.begin("")
	return s
}

// begin starts the daemon with what is set beside the defaults.
func (s *scene) begin(more string) {
	t := s.t
	t.Helper()
	timeline(t)
	swap := s.meminfo().SwapTotal
	switch want := os.Getenv("CRI_EVICTD_E2E_SWAP"); {
	case want == "yes" && swap == 0, want == "no" && swap > 0:
		t.Fatalf("CRI_EVICTD_E2E_SWAP=%s, and there are %d bytes of swap", want, swap)
	}
	s.oomBefore, s.logBefore = oomKills(t), kernelLog(t)
	s.d = s.start(binary(t, ""), nil, "serve", "--config", s.defaults("evictionHard:\n"+lab.DisksOff+more))
	s.d.waitReady()
	m := s.status().Engine.Memory
	t.Logf("machine: %d MiB, available %d (kernel) %d (kubelet), threshold %d, floor %d, swap %d",
		m.Capacity/mi, m.AvailableKernel/mi, m.AvailableKubelet/mi, m.Threshold/mi, m.Floor/mi, swap/mi)
	if m.Threshold == 0 || m.Threshold >= m.Capacity/2 {
		t.Fatalf("a default threshold of %d of %d bytes is not what this test is about", m.Threshold, m.Capacity)
	}
}

// in is the scene for a subtest.
func (s *scene) in(t *testing.T) *scene {
	n, d, sub := *s.node, *s.d, *s
	n.t, d.n, sub.node, sub.d = t, &n, &n, &d
	sub.oomBefore, sub.logBefore = oomKills(t), kernelLog(t)
	return &sub
}

// end removes a pod and what it has written.
func (s *scene) end(p *livePod, dir string) {
	s.t.Helper()
	s.remove(p.run)
	if dir != "" {
		if err := os.RemoveAll(dir); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *scene) status() admin.Status {
	s.t.Helper()
	return answer(s.d, (*admin.Client).Status)
}

// beating starts two neighbours that keep within their requests.
func (s *scene) beating() {
	s.t.Helper()
	for _, qos := range []string{"Guaranteed", "Burstable"} {
		s.neighbours = append(s.neighbours, s.live(s.pod("neighbour-"+strings.ToLower(qos), qos, 48*mi, "beat")))
	}
}

// live runs a pod and keeps its output.
func (s *scene) live(spec lab.PodSpec) *livePod {
	s.t.Helper()
	spec.LogDirectory = filepath.Join(s.dir, "logs", spec.Name)
	if err := os.MkdirAll(spec.LogDirectory, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return &livePod{spec: spec, run: s.run(s.d.cri, spec), log: filepath.Join(spec.LogDirectory, "main", "0.log")}
}

// lines counts what the pod has printed, of lines with this word.
func (p *livePod) lines(word string) int {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte(word))
}

// mustLive checks that the neighbours run, and go on doing so.
func (s *scene) mustLive() {
	s.t.Helper()
	for _, p := range s.neighbours {
		s.mustRun(p.spec.Name, p.run.ContainerIDs[0])
		before := p.lines("beat ")
		eventually(s.t, p.spec.Name+" beats on", 20*time.Second, func() bool { return p.lines("beat ") >= before+2 })
	}
}

// mustHaveSpared checks that the kernel ended nothing by itself: then we would
// have been too late.
func (s *scene) mustHaveSpared() {
	s.t.Helper()
	if after := oomKills(s.t); after != s.oomBefore {
		s.t.Errorf("the kernel's count of OOM kills went from %s to %s", s.oomBefore, after)
	}
	// Tests before this one may have let the kernel kill within a pod's own limit.
	for line := range strings.Lines(strings.TrimPrefix(kernelLog(s.t), s.logBefore)) {
		if strings.Contains(line, "Out of memory") || strings.Contains(line, "oom-kill:") {
			s.t.Errorf("the kernel's log: %s", line)
		}
	}
}

func kernelLog(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("dmesg").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// oomKills is the kernel's own count, of the machine and all cgroups.
func oomKills(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(n)
		}
	}
	t.Fatal("no oom_kill in /proc/vmstat")
	return ""
}

// quietly watches for a while that nothing is evicted and the neighbours live.
// busy, if not nil, says whether what the test is about has happened; time goes on
// until it has.
func (s *scene) quietly(busy func() bool, alive ...*livePod) {
	s.t.Helper()
	began, limit := time.Now(), here(s.t).quiet+4*time.Minute*here(s.t).slowness
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	least, met := ^uint64(0), 0
	for {
		<-tick.C
		m := s.status().Engine.Memory
		least = min(least, m.Available)
		if m.Met {
			met++
		}
		s.mustHaveKilledNobody()
		passed := time.Since(began)
		if s.t.Failed() || passed > here(s.t).quiet && (busy == nil || busy()) {
			break
		}
		if passed > limit {
			s.t.Errorf("what this test is about did not happen within %v", limit)
			break
		}
	}
	for _, p := range alive {
		s.mustRun(p.spec.Name, p.run.ContainerIDs[0])
	}
	s.mustLive()
	s.mustHaveKilledNobody()
	s.t.Logf("%v: least available %d MiB, below the threshold in %d looks; cri-evictd: %s",
		time.Since(began).Round(time.Second), least/mi, met, cpuTime(s.d.cmd.Process.Pid))
}

func (s *scene) mustHaveKilledNobody() {
	s.t.Helper()
	if got := s.d.evictions(); len(got) != 0 {
		s.t.Errorf("evicted: %v", got)
	}
	x := answer(s.d, func(c *admin.Client, ctx context.Context) (admin.Explanation, error) { return c.Explain(ctx, "") })
	for _, r := range x.Decisions {
		if r.Kill != nil || slices.Contains([]string{"evicted", "failed", "wouldEvict", "resumed"}, r.Outcome) {
			s.t.Errorf("a decision to kill: %s", jsonText(r))
		}
	}
}

// exited waits for a container's end and returns its status.
func (s *scene) exited(id string) *runtimeapi.ContainerStatus {
	s.t.Helper()
	var st *runtimeapi.ContainerStatus
	eventually(s.t, "end of the container", 60*time.Second, func() bool {
		r, err := s.direct.ContainerStatus(s.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		st = r.GetStatus()
		return err == nil && st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return st
}
