package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// measured is what one eviction was like. Durations count from the first sample
// below the threshold.
type measured struct {
	gone      time.Duration // its processes have ended
	failed    time.Duration // the API server has it as ended
	overshoot uint64        // bytes below the threshold, at most
	end       string        // phase, reason and restarts
	harmed    bool          // the pod beside it
}

// contender is who evicts.
type contender struct {
	name  string
	begin func(s *stage, threshold uint64)
}

// The tables of docs/kubelet-comparison.md: the same pods, evicted by kubelet itself
// and by us, by the same threshold.
func TestComparison(t *testing.T) {
	if soak(t) == 0 {
		t.Skip("in make comparison and make soak-cluster")
	}
	s := newStage(t, stageOptions{prepare: ownDisk, kubelet: map[string]any{"evictionHard": onlyMemory("0%"), "evictionPressureTransitionPeriod": "1s"}})
	s.run("memory", compareMemory)
	s.run("disk", compareDisk)
}

// compareMemory has kubelet with its notification by the kernel, which cgroup v2 has
// not, as well.
func compareMemory(s *stage) {
	kubelet := func(notify any) func(*stage, uint64) {
		return func(s *stage, threshold uint64) {
			s.restartKubelet(map[string]any{"evictionHard": onlyMemory(quantity(s.kubeletThreshold(threshold))), "kernelMemcgNotification": notify})
			time.Sleep(kubeletRounds)
		}
	}
	deaf := bigHog("deaf", v1.RestartPolicyAlways)
	deaf.Spec.Containers[0].Args = append(deaf.Spec.Containers[0].Args, "--ignore-term")
	rows := []comparison{
		{"1000 MiB/s, ends at SIGTERM, `Always`", bigHog("always", v1.RestartPolicyAlways), 5},
		{"the same, deaf to SIGTERM", deaf, 3},
		{"the same, a Job's with a sidecar, `OnFailure`", withInit(ofJob(bigHog("job", v1.RestartPolicyOnFailure))), 2},
	}
	s.compare("memory", rows, func(s *stage) (uint64, probe) {
		threshold := s.threshold()
		return threshold, memoryProbe(threshold)
	}, []contender{
		{"kubelet", kubelet(nil)},
		{"kubelet, `kernelMemcgNotification`", kubelet(true)},
		{"cri-evictd", func(s *stage, threshold uint64) {
			s.restartKubelet(map[string]any{"evictionHard": onlyMemory("0%"), "kernelMemcgNotification": nil})
			s.evictor(policy{hard: threshold})
		}},
	})
}

func compareDisk(s *stage) {
	rows := []comparison{{"300 MiB/s into an emptyDir", filling("filling"), 3}}
	s.compare("disk", rows, func(s *stage) (uint64, probe) {
		return diskThreshold, probe{read: s.freeOnDisk, threshold: diskThreshold}
	}, []contender{
		{"kubelet", func(s *stage, threshold uint64) {
			hard := onlyMemory("0%")
			hard["nodefs.available"] = quantity(threshold)
			s.restartKubelet(map[string]any{"evictionHard": hard})
		}},
		{"cri-evictd", func(s *stage, threshold uint64) {
			s.restartKubelet(map[string]any{"evictionHard": onlyMemory("0%")})
			s.evictor(policy{disk: diskPolicy(threshold)})
		}},
	})
}

// comparison is one row.
type comparison struct {
	what  string
	pod   *v1.Pod
	times int
}

// compare fills one table.
func (s *stage) compare(name string, rows []comparison, prepare func(*stage) (uint64, probe), who []contender) {
	s.t.Helper()
	cells := make([][]string, len(rows))
	for i, c := range who {
		if err := s.evict.stop(); err != nil {
			s.t.Fatal(err)
		}
		threshold, p := prepare(s)
		c.begin(s, threshold)
		for r, row := range rows {
			var all []measured
			for n := range row.times {
				pod := row.pod.DeepCopy()
				pod.Name = fmt.Sprintf("%s-%d-%d-%d", pod.Name, i, r, n)
				s.run(pod.Name, func(s *stage) {
					m, err := s.measure(pod, p)
					if err != nil {
						s.t.Errorf("%s: %v", c.name, err)
						return
					}
					s.t.Logf("%s: %+v", c.name, m)
					all = append(all, m)
				})
			}
			cells[r] = append(cells[r], summary(all))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| pod |")
	for _, c := range who {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(who)))
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s | %s |\n", row.what, strings.Join(cells[i], " | "))
	}
	s.t.Logf("\n%s", b.String())
	if file := os.Getenv("CRI_EVICTD_COMPARISON"); file != "" && !s.t.Failed() {
		if err := replaceTable(file, name, b.String()); err != nil {
			s.t.Error(err)
		}
	}
}

// replaceTable writes a table between its marks in a page.
func replaceTable(file, name, table string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no marks for %s", file, name)
	}
	return os.WriteFile(file, []byte(before+begin+table+end+after), 0o644)
}

// measure creates a pod and waits until it has ended in the API, by whatever, and
// what it took is free again.
func (s *stage) measure(pod *v1.Pod, p probe) (measured, error) {
	s.t.Helper()
	beside := s.create(neighbour("beside-" + pod.Name))
	s.awaitRunning(beside)
	g := s.watch(p)
	defer g.stop()
	pod = s.create(pod)
	err := await(2*time.Minute, func() error {
		last, _ := s.pods.last(pod.UID)
		if p := last.Status.Phase; p != v1.PodFailed && p != v1.PodSucceeded {
			return fmt.Errorf("phase %q", p)
		}
		for _, c := range allContainers(last) {
			if c.State.Terminated == nil {
				return errors.New("a container has not ended")
			}
		}
		return nil
	})
	if err != nil {
		return measured{}, err
	}
	time.Sleep(2 * time.Second) // whatever else is written about it
	last, _ := s.pods.last(pod.UID)
	seen := g.stop()
	if seen.crossed.IsZero() {
		return measured{}, errors.New("the threshold was not crossed")
	}
	m := measured{failed: s.pods.of(pod.UID).firstEnded().Sub(seen.crossed), overshoot: p.threshold - min(p.threshold, seen.lowest)}
	restarts := int32(0)
	for _, c := range allContainers(last) {
		restarts += c.RestartCount
		id := c.ContainerID[strings.LastIndex(c.ContainerID, "/")+1:]
		if r, err := s.direct.ContainerStatus(s.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id}); err == nil {
			m.gone = max(m.gone, time.Unix(0, r.GetStatus().GetFinishedAt()).Sub(seen.crossed))
		}
	}
	m.end = fmt.Sprintf("%s, %s", last.Status.Phase, cmp.Or(last.Status.Reason, "no reason"))
	if restarts > 0 {
		m.end += fmt.Sprintf(", %d restarts", restarts)
	}
	m.harmed = untouched(s.pods.of(beside.UID)) != nil
	return m, await(time.Minute, func() error {
		if now, err := p.read(); err != nil || now < p.threshold {
			return errors.Join(err, fmt.Errorf("%d MiB are free, threshold %d", now/mi, p.threshold/mi))
		}
		return nil
	})
}

// firstEnded is when the API server had the pod as ended.
func (h history) firstEnded() time.Time {
	for _, m := range h {
		if p := m.pod.Status.Phase; p == v1.PodFailed || p == v1.PodSucceeded {
			return m.at
		}
	}
	return time.Time{}
}

// summary are medians with the worst, and the ends that there were.
func summary(all []measured) string {
	if len(all) == 0 {
		return "not evicted"
	}
	of := func(what func(measured) int64) string {
		var v []int64
		for _, m := range all {
			v = append(v, what(m))
		}
		slices.Sort(v)
		return fmt.Sprintf("%d (at most %d)", v[len(v)/2], v[len(v)-1])
	}
	harmed := 0
	var ends []string
	for _, m := range all {
		if m.harmed {
			harmed++
		}
		if !slices.Contains(ends, m.end) {
			ends = append(ends, m.end)
		}
	}
	text := fmt.Sprintf("gone after %s ms, told after %s ms; %s MiB past; %s", of(func(m measured) int64 { return m.gone.Milliseconds() }),
		of(func(m measured) int64 { return m.failed.Milliseconds() }), of(func(m measured) int64 { return int64(m.overshoot / mi) }), strings.Join(ends, " or "))
	if harmed > 0 {
		text += fmt.Sprintf("; a neighbour harmed %d of %d times", harmed, len(all))
	}
	return text
}
