package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const (
	churnInCI = 2 * time.Minute
	churners  = 2
)

// churning is pods coming and going, and what the node is like meanwhile.
type churning struct {
	s      *stage
	begun  time.Time
	since  metav1.Time // the node is ready
	log    int64
	pods   atomic.Int64
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// comeAndGo lets pods come and go until end, or the end of the test, and looks each
// second whether the node is well.
func (s *stage) comeAndGo() *churning {
	s.t.Helper()
	eventually(s.t, "the node is ready", time.Minute, func() error { return nodeWell(s.node()) })
	ctx, cancel := context.WithCancel(context.Background())
	c := &churning{s: s, begun: time.Now(), since: condition(s.node(), v1.NodeReady).LastTransitionTime, log: s.logSize(), cancel: cancel}
	for i := range churners {
		c.wg.Go(func() { c.note(s.churn(ctx, i, &c.pods)) })
	}
	c.wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			c.note(s.kubeletWell(ctx))
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	s.t.Cleanup(c.stop)
	return c
}

func (c *churning) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *churning) stop() {
	c.cancel()
	c.wg.Wait()
}

// end ends it, for the test of s, and returns what kubelet logged that is not about
// the pods of a scenario, by kind.
func (c *churning) end(s *stage, length time.Duration) map[string]int {
	s.t.Helper()
	time.Sleep(length - time.Since(c.begun))
	c.stop()
	for _, err := range c.errs {
		s.t.Error(err)
	}
	n := s.node()
	if err := nodeWell(n); err != nil {
		s.t.Error(err)
	}
	if now := condition(n, v1.NodeReady); !now.LastTransitionTime.Equal(&c.since) {
		s.t.Errorf("the node was not ready all the time: %s", jsonText(now))
	}
	took := time.Since(c.begun)
	s.t.Logf("%d pods in %v", c.pods.Load(), took.Round(time.Second))
	if least := int64(took / (10 * time.Second)); c.pods.Load() < least {
		s.t.Errorf("%d pods came and went, want at least %d", c.pods.Load(), least)
	}
	return kinds(slices.DeleteFunc(s.logged(c.log), line.ofScenario))
}

// judge: kubelet is as well through the proxy as on the runtime itself. What it logs
// of pods that scenarios evict is looked at there.
func (c *churning) judge(s *stage) {
	known := usual()
	s.unknown(c.end(s, churnInCI), known)
	length := soak(s.t)
	if length == 0 {
		return
	}
	s.restartKubelet(map[string]any{"containerRuntimeEndpoint": "unix://" + s.ctd.Socket})
	direct := s.comeAndGo().end(s, length)
	s.t.Logf("directly, kinds of errors:\n%s", strings.Join(slices.Sorted(maps.Keys(direct)), "\n"))
	maps.Copy(known, direct)
	s.restartKubelet(map[string]any{"containerRuntimeEndpoint": "unix://" + s.socket()})
	s.evictor(policy{pods: s.podsThreshold()})
	before := s.decisions()
	s.unknown(s.comeAndGo().end(s, length), known)
	if after := s.decisions(); after != before {
		s.t.Errorf("%d decisions while nothing was short", after-before)
	}
}

func (s *stage) unknown(seen, known map[string]int) {
	s.t.Helper()
	for kind, n := range seen {
		if kind[0] == 'E' && known[kind] == 0 {
			s.t.Errorf("kubelet logs what it does not on the runtime itself, %d times: %s", n, kind)
		}
	}
}

func (s *stage) decisions() int {
	s.t.Helper()
	st, err := s.client().Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return st.Engine.Decisions
}

func nodeWell(n *v1.Node) error {
	if c := condition(n, v1.NodeReady); c.Status != v1.ConditionTrue {
		return fmt.Errorf("the node is not ready: %s", jsonText(c))
	}
	return nil
}

// kubeletWell looks at kubelet's own health and at the age of its last relist.
func (s *stage) kubeletWell(ctx context.Context) error {
	if _, err := s.kubelet.Get(ctx, "/healthz"); err != nil {
		return unlessEnded(ctx, err)
	}
	const late = 15 * time.Second // kubelet itself says so after 3 min
	seen, err := s.kubeletMetric(ctx, "kubelet_pleg_last_seen_seconds")
	if err != nil {
		return unlessEnded(ctx, err)
	}
	if age := time.Since(time.Unix(int64(seen), 0)); age > late {
		return fmt.Errorf("PLEG was last seen %v ago", age)
	}
	return nil
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// churn creates pods and deletes them, one after the other, until ctx ends.
func (s *stage) churn(ctx context.Context, worker int, done *atomic.Int64) error {
	for i := 0; ctx.Err() == nil; i++ {
		c := workload("main", "beat")
		if i%2 == 0 {
			c = v1.Container{Name: "main", Image: lab.PauseImage, ImagePullPolicy: v1.PullNever}
		}
		pod := podOf(fmt.Sprintf("%s%d-%d", churnPrefix, worker, i), v1.RestartPolicyAlways, asking(c, 64*mi))
		if i%3 == 0 && soak(s.t) > 0 { // none while there is pressure
			pod.Spec.Containers[0].Resources = v1.ResourceRequirements{}
		}
		if err := s.liveOnce(pod); err != nil {
			return fmt.Errorf("%s: %w", pod.Name, err)
		}
		done.Add(1)
	}
	return nil
}

// liveOnce is the whole life of a pod.
func (s *stage) liveOnce(pod *v1.Pod) error {
	ctx, cancel := patience()
	defer cancel()
	var made v1.Pod
	if err := s.plane.Do(ctx, http.MethodPost, podsPath, pod, &made); err != nil {
		return err
	}
	running := await(time.Minute, func() error {
		if last, _ := s.pods.last(made.UID); last.Status.Phase != v1.PodRunning {
			return fmt.Errorf("phase %q", last.Status.Phase)
		}
		return nil
	})
	if err := s.plane.Do(ctx, http.MethodDelete, podsPath+"/"+pod.Name+"?gracePeriodSeconds=1", nil, nil); err != nil {
		return errors.Join(running, err)
	}
	return errors.Join(running, await(time.Minute, func() error {
		if !s.pods.gone(made.UID) {
			return errors.New("it was deleted and is still there")
		}
		return nil
	}))
}

// The assertions about the log can tell two errors apart, and take the same error
// about two pods for one.
func TestKindsOfLines(t *testing.T) {
	lines := parseLog([]byte(`E1130 04:25:10.123456   12345 remote_runtime.go:222] "RunPodSandbox from runtime service failed" err="rpc error: code = ResourceExhausted desc = pod default/a (uid 3c4a1f5e-0f3e-4c60-9d53-111111111111) was evicted"
W1130 04:25:11.123456   12345 kubelet.go:1] "something" pod="default/b"
E1130 04:26:10.000001   12345 remote_runtime.go:300] "RunPodSandbox from runtime service failed" err="rpc error: code = ResourceExhausted desc = pod default/a (uid 3c4a1f5e-0f3e-4c60-9d53-222222222222) was evicted" extra="x"
E1130 04:26:10.000001   12345 remote_runtime.go:300] "RunPodSandbox from runtime service failed" err="rpc error: code = Unavailable desc = gone"
I1130 04:26:10.000001   12345 remote_runtime.go:300] "Fine"
a line that klog did not write
`))
	if len(lines) != 5 || lines[1].level != 'W' || lines[1].file != "kubelet.go" {
		t.Fatalf("lines: %+v", lines)
	}
	if got := kinds(lines); len(got) != 4 || got[lines[0].kind()] != 2 {
		t.Errorf("kinds: %v", got)
	}
	pod := podOf("a", v1.RestartPolicyAlways)
	pod.UID = "3c4a1f5e-0f3e-4c60-9d53-222222222222"
	other := append(lines, line{level: 'E', file: "kubelet.go", text: `"Failed" pod="default/a" err="rpc error: code = Unavailable"`})
	if got := beyondRefusal(other, pod); len(got) != 1 || got[0].file != "kubelet.go" {
		t.Errorf("beyond the refusal: %+v", got)
	}
}
