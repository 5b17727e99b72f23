package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/kube/tell"
)

// TestCluster plays everything that happens on one node of a cluster, one after the
// other: memory is the machine's. While the first scenarios are played other pods
// come and go.
func TestCluster(t *testing.T) {
	soft := machineThreshold(t)
	s := newStage(t, stageOptions{prepare: ownDisk, kubelet: reportsPressure(soft)})
	s.beside = []*v1.Pod{s.create(neighbour("neighbour")), s.create(podOf("other", v1.RestartPolicyAlways, asking(workload("main", "beat"), 64*mi)))}
	for _, pod := range s.beside {
		s.awaitRunning(pod)
	}
	evicted := &evictions{whole: s}
	churn := s.comeAndGo()
	s.run("evicted", evicted.everyKind)
	s.run("soft", softEndsByKubelet)
	s.run("not told", heldWhileNotTold)
	s.run("without the evictor", nobodyIsEvictedByNobody)
	s.run("disk", volumeIsGivenBack)
	s.run("node pressure", func(s *stage) { kubeletReportsPressure(s, soft) })
	s.run("pods come and go", churn.judge)
	s.run("stays evicted", evicted.stay)
	// kubelet looks for its backstop every 10 s: others are played meanwhile.
	backstop := s.giveKubeletABackstop()
	s.run("restarts", evictedOverRestarts)
	s.run("backstop", backstop.isNotReached)
	s.run("API server away", toldAfterAnOutage)
	s.run("backstop afterwards", backstop.wasNotReached)
	s.run("agent", evictedWithoutTheProxy)
}

// withoutEviction is how long a control waits: an eviction takes less than 3 s, a
// disk's less than 15, but that is measured from the end of its filling.
const withoutEviction = 8 * time.Second

// stableFor is how long an evicted pod is watched at least.
const stableFor = time.Minute

// evictions are the pods of the first scenario, whose end is watched during others.
type evictions struct {
	whole *stage // in which the pods stay
	log   int64
	hogs  []*v1.Pod
}

// everyKind of pod ends as by kubelet's own eviction.
func (e *evictions) everyKind(s *stage) {
	e.log = s.logSize()
	s.evictor(policy{pods: s.podsThreshold()})
	for _, pod := range kindsOfHogs(soak(s.t) > 0, hog) {
		pod := e.whole.create(pod)
		s.awaitEvicted(pod, killed)
		e.hogs = append(e.hogs, pod)
	}
}

// stay: they are what they were, and whoever is beside them has noticed nothing.
func (e *evictions) stay(s *stage) {
	for _, pod := range e.hogs {
		since := s.pods.of(pod.UID).stableSince()
		if rest := stableFor - time.Since(since); rest > 0 {
			time.Sleep(rest) // what came before was short, or not run
		}
		if h := s.pods.of(pod.UID); h.stableSince() != since {
			s.t.Errorf("%s changed after its end: %s", pod.Name, jsonText(h[len(h)-1].pod.Status))
		}
		s.audit(pod, killed, e.log)
	}
	s.mustBeUntouched()
	met := s.nodeEvents("EvictionThresholdMet")
	for _, e := range met {
		if !strings.HasPrefix(e.Message, "Attempting to reclaim ") || e.Source.Component != "cri-evictd" {
			s.t.Errorf("event on the node: %s", jsonText(e))
		}
	}
	if len(met) == 0 || len(met) > 6 { // one for each evictor and signal, at most
		s.t.Errorf("%d events on the node", len(met))
	}
}

// kindsOfHogs are one of each: what kubelet would do after an end differs. Without
// all each restart policy is there once. hog makes them.
func kindsOfHogs(all bool, hog func(string, v1.RestartPolicy) *v1.Pod) []*v1.Pod {
	kinds := []*v1.Pod{hog("never", v1.RestartPolicyNever), withInit(hog("init", v1.RestartPolicyAlways)), ofJob(hog("job", v1.RestartPolicyOnFailure))}
	if all {
		kinds = append(kinds, hog("always", v1.RestartPolicyAlways), hog("onfailure", v1.RestartPolicyOnFailure))
	}
	return kinds
}

// withInit adds an init container that has done its work and a sidecar.
func withInit(pod *v1.Pod) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	sidecar := asking(workload("sidecar", "beat"), 16*mi)
	sidecar.RestartPolicy = &always
	pod.Spec.InitContainers = []v1.Container{workload("prepare", "alloc", "--total", "1Mi", "--hold=false"), sidecar}
	return pod
}

// ofJob makes it a pod as the Job controller does: with an owner, and a finalizer by
// which it counts its pods.
func ofJob(pod *v1.Pod) *v1.Pod {
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "work", UID: types.UID(lab.NewUID()), Controller: &yes, BlockOwnerDeletion: &yes}}
	pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
	pod.Labels = map[string]string{"batch.kubernetes.io/job-name": "work"}
	return pod
}

// The control: without the evictor nobody ends the hogs, and every assertion about
// evicted pods fails.
func nobodyIsEvictedByNobody(s *stage) {
	if err := s.evict.stop(); err != nil {
		s.t.Fatal(err)
	}
	pod, disk := s.create(hog("control", v1.RestartPolicyAlways)), s.create(filling("control-disk"))
	s.awaitPodsCrossing(s.podsThreshold())
	s.awaitDisk("fills", func(free uint64) bool { return free < diskThreshold })
	time.Sleep(withoutEviction)
	h := s.pods.of(pod.UID)
	for what, err := range map[string]error{
		"evicted": evicted(h, killed),
		"soft":    evicted(h, ending{exit: 0, noReason: true}),
		"disk":    evicted(s.pods.of(disk.UID), ofDisk),
		"events":  said(s.events(pod.UID), killed),
		"held":    held(h[len(h)-1].pod, s.events(pod.UID), 1),
	} {
		if err == nil {
			s.t.Errorf("%s: nothing is found wrong without the evictor", what)
		}
	}
	if free := s.diskFree(); free >= diskThreshold {
		s.t.Errorf("%d MiB of the disk are free without the evictor", free/mi)
	}
	s.mustBeUntouched(pod, disk)
}

// A hog that ends by itself at SIGTERM is not lost to a Job's count: kubelet takes
// the reason back, the condition stays.
func softEndsByKubelet(s *stage) {
	s.evictor(policy{settings: fmt.Sprintf("evictionSoft:\n  allocatableMemory.available: %q\nevictionSoftGracePeriod:\n  allocatableMemory.available: 1s\nevictionMaxPodGracePeriod: 30\n", quantity(s.podsThreshold()))})
	log := s.logSize()
	pod := hog("polite", v1.RestartPolicyAlways)
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/workload", "write", "--total", "4Ki", "--hold=false"}}}}
	pod = s.create(pod)
	want := ending{exit: 0, noReason: true}
	s.awaitEvicted(pod, want)
	s.awaitSettled() // the reason was set again, and taken back again
	s.audit(pod, want, log)
	s.mustBeUntouched()
	x, err := s.client().Explain(s.t.Context(), "default/polite")
	if err != nil || len(x.Decisions) == 0 {
		s.t.Fatalf("explain: %v, %s", err, jsonText(x.Decisions))
	}
	d := x.Decisions[len(x.Decisions)-1]
	if d.Soft == nil || !d.Soft.ByKubelet || len(d.Soft.Hooks) > 0 || d.Kill.Signalled != 0 {
		s.t.Errorf("it was not kubelet who ended it: %s", jsonText(d))
	}
	if d.Telling == nil || d.Telling.Outcome != tell.WithoutReason {
		s.t.Errorf("telling: %s", jsonText(d.Telling))
	}
}
