package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// reportsPressure are the settings of docs/node.md for kubelet, with its own
// threshold of memory.available where pressure is reported.
func reportsPressure(soft uint64) map[string]any {
	return map[string]any{
		"evictionHard":                     onlyMemory("100Mi"),
		"evictionSoft":                     map[string]string{"memory.available": quantity(soft)},
		"evictionSoftGracePeriod":          map[string]string{"memory.available": "87600h"},
		"evictionPressureTransitionPeriod": "1s",
	}
}

// onlyMemory is kubelet's evictionHard with one signal and all others off.
func onlyMemory(amount string) map[string]string {
	return map[string]string{"memory.available": amount, "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"}
}

// With the settings of docs/node.md kubelet reports the pressure that we act on, by
// which nodes are tainted and new pods are kept away, and evicts nobody. soft is the
// threshold that kubelet has.
func kubeletReportsPressure(s *stage, soft uint64) {
	threshold := s.ourThreshold(soft)
	s.evictor(policy{hard: threshold})
	half := int64(available(s.meminfo())-threshold+margin/4) / 2
	full := []*v1.Pod{s.create(ballast("ballast-1", half)), s.create(ballast("ballast-2", half))} // inside their requests: no victims
	s.awaitCrossing(threshold)
	begun := time.Now()
	s.awaitPressure(v1.ConditionTrue)
	s.t.Logf("MemoryPressure %v after the threshold was crossed", time.Since(begun).Round(100*time.Millisecond))

	refused := s.create(podOf("besteffort", v1.RestartPolicyAlways, workload("main", "beat")))
	eventually(s.t, "a new BestEffort pod is rejected", 30*time.Second, func() error {
		last, _ := s.pods.last(refused.UID)
		if st := last.Status; st.Phase != v1.PodFailed || st.Reason != "Evicted" || !strings.Contains(st.Message, "[MemoryPressure]") {
			return errors.New(jsonText(st))
		}
		return nil
	})
	admitted := s.create(podOf("burstable", v1.RestartPolicyAlways, asking(workload("main", "beat"), 64*mi)))
	s.awaitRunning(admitted)
	for _, pod := range full {
		s.delete(pod)
	}
	s.awaitPressure(v1.ConditionFalse)
	s.mustBeUntouched(admitted)
	if n := s.metric("kubelet_evictions"); n != 0 {
		s.t.Errorf("kubelet evicted %v pods", n)
	}
}

func (s *stage) awaitPressure(want v1.ConditionStatus) {
	s.t.Helper()
	reason := map[v1.ConditionStatus]string{v1.ConditionTrue: "KubeletHasInsufficientMemory", v1.ConditionFalse: "KubeletHasSufficientMemory"}[want]
	eventually(s.t, "MemoryPressure is "+string(want), time.Minute, func() error {
		if c := condition(s.node(), v1.NodeMemoryPressure); c.Status != want || c.Reason != reason {
			return fmt.Errorf("%s", jsonText(c))
		}
		return nil
	})
}

// kubeletThreshold is where kubelet's own reading will be when ours is at the
// threshold: the two differ by page cache in use.
func (s *stage) kubeletThreshold(threshold uint64) uint64 {
	m := s.meminfo()
	return m.KubeletAvailable() - (available(m) - threshold)
}

// ourThreshold is where our reading is when kubelet's is at its threshold: the two
// differ by page cache in use, and so from one time to another.
func (s *stage) ourThreshold(kubelets uint64) uint64 {
	s.t.Helper()
	m := s.meminfo()
	if m.KubeletAvailable() < kubelets+margin/2 {
		s.t.Fatalf("%d MiB are available to kubelet, too near to its threshold of %d", m.KubeletAvailable()/mi, kubelets/mi)
	}
	return available(m) - (m.KubeletAvailable() - kubelets)
}

// backstopBelow is how far kubelet's own hard threshold lies below ours, at least
// (design §7).
const backstopBelow = 100 * mi

// backstop is a kubelet with a hard threshold of its own just below ours, and the
// kernel's notification on.
type backstop struct {
	whole    *stage
	kubelets uint64 // threshold
	next     *v1.Pod
	evicted  time.Time // of our last victim
}

// kubeletRounds are two of kubelet's: it looks every 10 s, and arms its
// notification in its first.
const kubeletRounds = 12 * time.Second

func (s *stage) giveKubeletABackstop() *backstop {
	s.t.Helper()
	s.threshold() // memory has come back
	b := &backstop{whole: s, kubelets: s.kubeletsReading() - margin - backstopBelow}
	s.restartKubelet(map[string]any{
		"evictionHard": onlyMemory(quantity(b.kubelets)), "evictionSoft": nil, "evictionSoftGracePeriod": nil, "kernelMemcgNotification": true,
	})
	return b
}

// kubeletsReading is what is available as kubelet itself says.
func (s *stage) kubeletsReading() uint64 {
	s.t.Helper()
	b, err := s.kubelet.Get(s.t.Context(), "/stats/summary")
	if err != nil {
		s.t.Fatal(err)
	}
	var summary struct {
		Node struct {
			Memory struct{ AvailableBytes uint64 }
		}
	}
	if err := json.Unmarshal(b, &summary); err != nil || summary.Node.Memory.AvailableBytes < 2*margin {
		s.t.Fatalf("%v: kubelet's summary: %+v", err, summary)
	}
	return summary.Node.Memory.AvailableBytes
}

// isNotReached: by the same reading we are done before it is, and while the memory of
// our victim is still coming back kubelet does not take a neighbour for it.
func (b *backstop) isNotReached(s *stage) {
	s.evictor(policy{hard: b.kubelets + backstopBelow, settings: "memoryAvailableFrom: kubelet\n"})
	// It is over its request, and so the next that kubelet would take.
	b.next = b.whole.create(podOf("greedy", v1.RestartPolicyAlways, asking(workload("main", "alloc", "--total", "128Mi", "--rate", "500Mi"), 16*mi)))
	s.awaitRunning(b.next)
	time.Sleep(kubeletRounds - time.Since(*s.kubeletSince))
	for i := range times(s.t, 20) {
		s.awaitEvicted(s.create(bigHog(fmt.Sprint("big-", i), v1.RestartPolicyAlways)), killed)
		b.evicted = time.Now()
	}
	b.nobodyElse(s)
}

func (b *backstop) nobodyElse(s *stage) {
	s.t.Helper()
	s.mustBeUntouched(b.next)
	if n := s.metric("kubelet_evictions"); n != 0 {
		s.t.Errorf("kubelet evicted %v pods", n)
	}
}

// wasNotReached: nor is anybody taken later. The control: without the evictor kubelet
// acts.
func (b *backstop) wasNotReached(s *stage) {
	if b.next == nil {
		b.isNotReached(s) // it is run alone
	}
	time.Sleep(kubeletRounds - time.Since(b.evicted))
	b.nobodyElse(s)
	if err := s.evict.stop(); err != nil {
		s.t.Fatal(err)
	}
	s.create(bigHog("control", v1.RestartPolicyAlways))
	eventually(s.t, "without the evictor kubelet acts", time.Minute, func() error {
		if n := s.metric("kubelet_evictions"); n == 0 {
			return errors.New("kubelet evicted nobody")
		}
		return nil
	})
}
