package tell

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/kube/tell"
)

func TestOnARealAPIServer(t *testing.T) {
	p := startPlane(t)
	t.Run("a node tells of its pods", func(t *testing.T) { nodeTells(t, p) })
	t.Run("rights that are missing", func(t *testing.T) { missingRights(t, p) })
	t.Run("evict and delete", func(t *testing.T) { evictAndDelete(t, p) })
	t.Run("the API server is away", func(t *testing.T) { outage(t, p) })
}

// The whole of kubelet's own eviction with nothing but the node's identity; what
// is undone is repeated; another pod of the name is left alone.
func nodeTells(t *testing.T, p *plane) {
	hog, undone, reborn, foreign := p.run(t, nodeName, "hog"), p.run(t, nodeName, "undone"), p.run(t, nodeName, "reborn"), p.run(t, otherNode, "foreign")
	p.do(t, http.MethodDelete, podsPath+"/reborn?gracePeriodSeconds=0", nil, nil)
	second := p.run(t, nodeName, "reborn")
	if second.UID == reborn.UID {
		t.Fatal("the second pod has the UID of the first")
	}
	ours := start(t, p.nodeKubeconfig(t, nodeName), tell.ByStatus, t.TempDir())
	ours.until(t, "the probe", ours.Working)
	if s := ours.State(); s.Way != tell.ByStatus || s.Fallback != "" {
		t.Fatalf("a node may set the status of its pods: %+v", s)
	}
	if got := p.pod(t, "hog"); got.Status.Phase != v1.PodRunning || len(got.Annotations) > 0 {
		t.Fatalf("the probe changed a pod: %+v", got)
	}
	for i, pod := range []*v1.Pod{hog, undone, reborn, foreign} {
		ours.Evicted(evicted(uint64(i+1), pod))
	}
	ours.ThresholdMet(eviction.MemoryAvailable)
	ours.until(t, "the patches", func() bool { return ours.State().Patches >= 2 })
	p.running(t, "undone") // as kubelet's status manager does
	ours.until(t, "the end", func() bool { return ours.outcomes()["status told"] == 2 })

	if got, want := ours.outcomes(), map[string]uint64{"status told": 2, "status gone": 1}; !maps.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
	const message = "The node was low on resource: memory. Threshold quantity: 500Mi, available: 400Mi. Container main was using 900Mi, request is 0, has larger consumption of memory. "
	for name, try := range map[string]string{"hog": " try 1", "undone": " try 2"} {
		got := p.pod(t, name)
		if s := got.Status; s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.Message != message || !strings.HasSuffix(got.Annotations[tell.EvictedAnnotation], try) {
			t.Errorf("%s: %+v %v", name, s, got.Annotations)
		}
		found := false
		for _, c := range got.Status.Conditions {
			found = found || c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == "TerminationByKubelet" && c.Message == message
		}
		if !found {
			t.Errorf("%s: conditions %+v", name, got.Status.Conditions)
		}
	}
	for _, name := range []string{"reborn", "foreign"} {
		if got := p.pod(t, name); got.Status.Phase != v1.PodRunning || len(got.Annotations) > 0 {
			t.Errorf("%s was touched: %+v", name, got)
		}
	}
	events := p.eventsAbout(t, "Pod", "hog")
	if len(events) != 1 || events[0].Reason != "Evicted" || events[0].Message != message || events[0].Annotations["offending_containers"] != "main" || events[0].InvolvedObject.UID != hog.UID {
		t.Errorf("events %+v", events)
	}
	events = p.eventsAbout(t, "Node", nodeName)
	if len(events) != 1 || events[0].Reason != "EvictionThresholdMet" || events[0].Message != "Attempting to reclaim memory" {
		t.Errorf("events on the node %+v", events)
	}
	for _, name := range []string{"hog", "undone", "reborn", "foreign"} {
		p.do(t, http.MethodDelete, podsPath+"/"+name+"?gracePeriodSeconds=0", nil, nil)
	}
}

// The probe finds out by dry runs what an identity may do, and changes nothing.
func missingRights(t *testing.T, p *plane) {
	p.run(t, nodeName, "bystander")
	base := []map[string]any{rule("get list", "pods"), rule("create patch", "events")}
	for user, tt := range map[string]struct {
		kubeconfig string
		way, why   string
	}{
		"evicter":    {p.userKubeconfig(t, "evicter", append(base, rule("create", "pods/eviction"))...), tell.ByEvict, "status is refused"},
		"deleter":    {p.userKubeconfig(t, "deleter", append(base, rule("delete", "pods"))...), tell.ByDelete, "evict is refused"},
		"reader":     {p.userKubeconfig(t, "reader", base...), tell.None, "delete is refused"},
		"patcher":    {p.userKubeconfig(t, "patcher", rule("patch", "pods/status")), tell.ByStatus, "is nodeName right?"},
		"other node": {p.nodeKubeconfig(t, otherNode), tell.ByStatus, "is nodeName right?"},
	} {
		api, err := tell.Connect(tt.kubeconfig, "test")
		if err != nil {
			t.Fatal(err)
		}
		way, fallback, err := tell.Probe(t.Context(), api, tell.ByStatus, nodeName, time.Now())
		if err != nil || way != tt.way || !strings.Contains(fallback, tt.why) {
			t.Errorf("%s: %q, %q, %v; want %q because %q", user, way, fallback, err, tt.way, tt.why)
		}
	}
	if got := p.pod(t, "bystander"); got.Status.Phase != v1.PodRunning || got.DeletionTimestamp != nil || len(got.Status.Conditions) > 0 {
		t.Errorf("a probe left traces: %+v", got)
	}
	p.do(t, http.MethodDelete, podsPath+"/bystander?gracePeriodSeconds=0", nil, nil)
}

// The two other ways, each with the UID as a precondition; one because the first
// is not permitted.
func evictAndDelete(t *testing.T, p *plane) {
	byEvict, byDelete, reborn := p.run(t, nodeName, "evicted"), p.run(t, nodeName, "deleted"), p.run(t, nodeName, "other")
	reborn.UID = "00000000-0000-0000-0000-000000000001"
	fallen := start(t, p.userKubeconfig(t, "fallen", rule("get list", "pods"), rule("create patch", "events"), rule("create", "pods/eviction")), tell.ByStatus, t.TempDir())
	deleting := start(t, p.nodeKubeconfig(t, nodeName), tell.ByDelete, t.TempDir())
	fallen.Evicted(evicted(1, byEvict))
	fallen.Evicted(evicted(2, reborn))
	deleting.Evicted(evicted(1, byDelete))
	deleting.Evicted(evicted(2, reborn))
	fallen.until(t, "the eviction", func() bool {
		return maps.Equal(fallen.outcomes(), map[string]uint64{"evict deleting": 1, "evict gone": 1})
	})
	deleting.until(t, "the deletion", func() bool {
		return maps.Equal(deleting.outcomes(), map[string]uint64{"delete deleting": 1, "delete gone": 1})
	})
	for name, reason := range map[string]string{"evicted": "EvictionByEvictionAPI", "deleted": "TerminationByKubelet"} {
		got := p.pod(t, name)
		if got.DeletionTimestamp == nil || len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Type != v1.DisruptionTarget || got.Status.Conditions[0].Reason != reason {
			t.Errorf("%s: deletion %v, %+v", name, got.DeletionTimestamp, got.Status.Conditions)
		}
	}
	if got := p.pod(t, "other"); got.DeletionTimestamp != nil {
		t.Error("another pod of the name was deleted")
	}
	for _, name := range []string{"evicted", "deleted", "other"} {
		p.do(t, http.MethodDelete, podsPath+"/"+name+"?gracePeriodSeconds=0", nil, nil)
	}
}

// The API server is down during the eviction and over a restart of ours: told
// once.
func outage(t *testing.T, p *plane) {
	pod := p.run(t, nodeName, "late")
	kubeconfig, dir := p.nodeKubeconfig(t, nodeName), t.TempDir()
	first := start(t, kubeconfig, tell.ByStatus, dir)
	first.until(t, "the probe", first.Working)
	if err := p.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	n := evicted(1, pod)
	first.Evicted(n)
	first.until(t, "the outage", func() bool { s := first.State(); return !s.Reachable && s.Queued == 1 })
	first.stop()
	second := start(t, kubeconfig, tell.ByStatus, dir)
	second.Evicted(n) // its hold stands
	second.until(t, "the queue", func() bool { s := second.State(); return s.Problem != "" && s.Queued == 1 })
	if err := p.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.until(t, "the telling", func() bool { return second.outcomes()["status told"] == 1 })
	if s := second.State(); s.Patches != 1 || s.Events != 1 {
		t.Errorf("%+v", s)
	}
	second.stop()
	told := p.pod(t, "late")
	third := start(t, kubeconfig, tell.ByStatus, dir)
	third.Evicted(n)
	third.until(t, "the probe", third.Working)
	if got := p.pod(t, "late"); got.ResourceVersion != told.ResourceVersion || got.Status.Reason != "Evicted" || !strings.HasSuffix(got.Annotations[tell.EvictedAnnotation], "try 1") {
		t.Errorf("told again: %+v", got)
	}
	if s := third.State(); s.Patches != 0 || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
	if events := p.eventsAbout(t, "Pod", "late"); len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}
