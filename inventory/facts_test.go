package inventory

import (
	"math/rand/v2"
	"testing"
)

// kubeletScore is kubelet's formula for a Burstable container
// (Kubernetes 1.37, pkg/kubelet/qos/policy.go GetContainerOOMScoreAdjust).
func kubeletScore(request, capacity int64) int64 {
	adj := 1000 - (1000*request)/capacity
	if adj < 3 {
		return 3
	}
	if adj == 1000 {
		return 999
	}
	return adj
}

func TestRequestFromOOMScoreAdjInvertsKubelet(t *testing.T) {
	check := func(request, capacity int64) {
		t.Helper()
		adj := kubeletScore(request, capacity)
		value, slack := requestFromOOMScoreAdj(adj, uint64(capacity))
		if slack < 0 || request > value || request < value-slack {
			t.Errorf("request %d of %d has score %d, which is read as %d − %d", request, capacity, adj, value, slack)
		}
		// Between the clamps the estimate is as good as the score allows.
		if adj > 3 && adj < 999 && slack > capacity/1000+2 {
			t.Errorf("score %d of %d: slack %d", adj, capacity, slack)
		}
	}
	capacities := []int64{1, 2, 999, 1000, 1001, 4096, 1<<30 + 1, 16393244 << 10, 256 << 30, 6 << 40}
	for _, capacity := range capacities {
		for _, request := range []int64{0, 1, capacity / 1000, capacity/1000 + 1, 2 * capacity / 1000, capacity / 2, 996 * capacity / 1000, 997 * capacity / 1000, 998 * capacity / 1000, 999 * capacity / 1000, capacity - 1, capacity} {
			if request <= capacity && request >= 0 {
				check(request, capacity)
			}
		}
		for k := int64(0); k <= 1000; k++ { // both sides of every step
			for _, d := range []int64{-1, 0, 1} {
				if r := capacity/1000*k + capacity%1000*k/1000 + d; r >= 0 && r <= capacity {
					check(r, capacity)
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		capacity := 1 + random.Int64N(1<<random.IntN(44))
		check(random.Int64N(capacity+1), capacity)
	}
}

func TestRequestFromOOMScoreAdjOutsideKubeletsRange(t *testing.T) {
	const total = 1 << 34
	for _, tt := range []struct{ adj, request, slack int64 }{
		{1000, 0, 0}, {2000, 0, 0},
		{2, total, total}, {0, total, total}, {-997, total, total}, {-1 << 63, total, total},
	} {
		if r, s := requestFromOOMScoreAdj(tt.adj, total); r != tt.request || s != tt.slack {
			t.Errorf("%d: %d − %d, want %d − %d", tt.adj, r, s, tt.request, tt.slack)
		}
	}
	if r, s := requestFromOOMScoreAdj(500, 0); r != 0 || s != 0 {
		t.Errorf("no memory at all: %d − %d", r, s)
	}
	if r, s := requestFromOOMScoreAdj(500, ^uint64(0)); r <= 0 || s <= 0 || r < s {
		t.Errorf("absurd memory: %d − %d", r, s)
	}
}

func FuzzRequestFromOOMScoreAdj(f *testing.F) {
	f.Add(int64(500), uint64(16<<30))
	f.Add(int64(3), uint64(1))
	f.Add(int64(-1000), ^uint64(0))
	f.Fuzz(func(t *testing.T, adj int64, total uint64) {
		r, s := requestFromOOMScoreAdj(adj, total)
		if r < 0 || s < 0 || s > r || uint64(r) > total {
			t.Errorf("%d of %d: %d − %d", adj, total, r, s)
		}
	})
}

func num(n int64) *int64 { return &n }

// podOf is the start of a pod in this cgroup.
func podOf(parent, namespace string, annotations map[string]string) Event {
	e := withUID("s1", dashedUID, parent)
	e.Pod.Namespace = namespace
	e.Annotations = annotations
	return e
}

// storeWith is the pod after its start and the creation of its containers.
func storeWith(opt Options, e Event, containers ...Container) *Pod {
	s := NewStore(opt)
	s.Apply(e)
	for i, c := range containers {
		c.ID, c.SandboxID, c.Created = string(rune('a'+i)), "s1", at(i)
		s.Apply(Event{Type: ContainerCreated, Time: at(2), Container: c})
	}
	p, _ := s.Snapshot().Pod(dashedUID)
	return p
}

const (
	burstableParent  = "/kubepods/burstable/pod" + dashedUID
	bestEffortParent = "/kubepods/besteffort/pod" + dashedUID
	guaranteedParent = "/kubepods/pod" + dashedUID
)

func TestRequest(t *testing.T) {
	const mi = 1 << 20
	const total = 1000 * mi
	c := func(adj, limit *int64) Container {
		return Container{Running: true, OOMScoreAdj: adj, MemoryLimit: limit}
	}
	ended := func(adj, limit int64) Container { return Container{OOMScoreAdj: &adj, MemoryLimit: &limit} }
	unknown := Value[int64]{Source: FromDefault}
	for _, tt := range []struct {
		name       string
		parent     string
		containers []Container
		want       Value[int64]
	}{
		{"BestEffort", bestEffortParent, []Container{c(num(1000), num(0))}, Value[int64]{Source: FromCRI, Exact: true}},
		{"BestEffort, nothing known of its containers", bestEffortParent, []Container{c(nil, nil)}, Value[int64]{Source: FromCRI, Exact: true}},
		{"Guaranteed", guaranteedParent, []Container{c(num(-997), num(100*mi)), c(num(-997), num(50*mi))}, Value[int64]{Value: 150 * mi, Source: FromCRI, Exact: true}},
		{"Guaranteed with an init container that has ended", guaranteedParent, []Container{ended(-997, 900*mi), c(num(-997), num(50*mi))}, Value[int64]{Value: 50 * mi, Source: FromCRI, Exact: true}},
		{"Guaranteed, one limit unknown", guaranteedParent, []Container{c(num(-997), num(100*mi)), c(nil, nil)}, unknown},
		{"Guaranteed at pod level", guaranteedParent, []Container{c(num(-997), num(0))}, unknown},
		{"Burstable", burstableParent, []Container{c(num(900), num(0))}, Value[int64]{Value: 101 * mi, Slack: mi, Source: FromCRI}},
		{"Burstable, limit larger than the request", burstableParent, []Container{c(num(900), num(800*mi))}, Value[int64]{Value: 101 * mi, Slack: mi, Source: FromCRI}},
		{"Burstable, two", burstableParent, []Container{c(num(900), num(0)), c(num(999), num(0))}, Value[int64]{Value: 103 * mi, Slack: 3 * mi, Source: FromCRI}},
		{"Burstable, one unknown", burstableParent, []Container{c(num(900), num(0)), c(nil, nil)}, unknown},
		{"Burstable, none running", burstableParent, []Container{ended(900, 0)}, unknown},
		{"Burstable, critical", burstableParent, []Container{c(num(-997), num(0))}, Value[int64]{Value: total, Slack: total, Source: FromCRI}},
		{"Burstable by its cgroup, but not kubelet's", burstableParent, []Container{c(num(0), num(0))}, Value[int64]{Source: FromCRI}},
		{"Burstable by its cgroup, not kubelet's, with a limit", burstableParent, []Container{c(num(0), num(10*mi))}, Value[int64]{Value: 10 * mi, Slack: 10 * mi, Source: FromCRI}},
		{"Guaranteed by its cgroup, but not kubelet's", guaranteedParent, []Container{c(num(0), num(0))}, Value[int64]{Source: FromCRI, Exact: true}},
		{"nothing known", "", []Container{c(nil, nil)}, unknown},
		{"outside kubepods, with a limit", "/x", []Container{c(num(0), num(10*mi))}, Value[int64]{Value: 10 * mi, Slack: 10 * mi, Source: FromCRI}},
		{"outside kubepods, no limit", "/x", []Container{c(num(0), num(0))}, Value[int64]{Source: FromCRI}},
		{"outside kubepods, with a score", "/x", []Container{c(num(900), num(0))}, Value[int64]{Value: 101 * mi, Slack: mi, Source: FromCRI}},
		{"outside kubepods, BestEffort", "/x", []Container{c(num(1000), num(0))}, Value[int64]{Source: FromCRI}},
		{"outside kubepods, one unknown", "/x", []Container{c(num(1000), num(0)), c(nil, nil)}, unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if p := storeWith(Options{MemTotal: total}, podOf(tt.parent, "default", nil), tt.containers...); p.Request != tt.want {
				t.Errorf("%+v, want %+v", p.Request, tt.want)
			}
		})
	}
}

// Tenants cannot buy immunity: annotations count in trusted namespaces only, and
// never reach the critical range.
func TestAnnotations(t *testing.T) {
	opt := Options{MemTotal: 1 << 30, TrustedNamespaces: []string{"kube-system"}}
	for _, tt := range []struct {
		namespace, priority, request string
		wantPriority                 Value[int32]
		wantRequest                  Value[int64]
	}{
		{"kube-system", "100", "64Mi", Value[int32]{Value: 100, Source: FromAnnotation, Exact: true}, Value[int64]{Value: 64 << 20, Source: FromAnnotation, Exact: true}},
		{"kube-system", "-5", "0", Value[int32]{Value: -5, Source: FromAnnotation, Exact: true}, Value[int64]{Source: FromAnnotation, Exact: true}},
		{"kube-system", "2000000000", "1", Value[int32]{Value: 1_999_999_999, Source: FromAnnotation, Exact: true}, Value[int64]{Value: 1, Source: FromAnnotation, Exact: true}},
		{"kube-system", "2147483647", "1", Value[int32]{Value: 1_999_999_999, Source: FromAnnotation, Exact: true}, Value[int64]{Value: 1, Source: FromAnnotation, Exact: true}},
		{"kube-system", "4294967296", "-1", Value[int32]{Source: FromDefault}, Value[int64]{Source: FromCRI, Exact: true}},
		{"kube-system", "high", "much", Value[int32]{Source: FromDefault}, Value[int64]{Source: FromCRI, Exact: true}},
		{"default", "100", "64Mi", Value[int32]{Source: FromDefault}, Value[int64]{Source: FromCRI, Exact: true}},
		{"", "100", "64Mi", Value[int32]{Source: FromDefault}, Value[int64]{Source: FromCRI, Exact: true}},
	} {
		p := storeWith(opt, podOf(bestEffortParent, tt.namespace, map[string]string{PriorityAnnotation: tt.priority, MemoryRequestAnnotation: tt.request}))
		if p.Priority != tt.wantPriority || p.Request != tt.wantRequest {
			t.Errorf("%s %s %s: priority %+v request %+v", tt.namespace, tt.priority, tt.request, p.Priority, p.Request)
		}
	}
}

// −997 is the mark of system-node-critical only where the cgroup proves that the
// pod is not Guaranteed.
func TestNodeCritical(t *testing.T) {
	critical := Value[int32]{Value: SystemCriticalPriority, Source: FromCRI}
	none := Value[int32]{Source: FromDefault}
	for _, tt := range []struct {
		parent string
		adj    int64
		want   Value[int32]
	}{
		{burstableParent, -997, critical}, {bestEffortParent, -997, critical}, {guaranteedParent, -997, none},
		{"/system.slice/burstable", -997, none}, {"", -997, none}, {burstableParent, -998, none}, {burstableParent, 3, none},
	} {
		p := storeWith(Options{MemTotal: 1 << 30}, podOf(tt.parent, "default", nil), Container{Running: true, OOMScoreAdj: &tt.adj, MemoryLimit: num(0)})
		if p.Priority != tt.want {
			t.Errorf("%q %d: %+v, want %+v", tt.parent, tt.adj, p.Priority, tt.want)
		}
	}
}

type fixedFacts struct{ known string }

func (f fixedFacts) Pod(uid string) (PodFacts, bool) {
	if uid != f.known {
		return PodFacts{}, false
	}
	return PodFacts{
		Priority: Value[int32]{Value: 7, Source: FromPodsAPI, Exact: true},
		Request:  Value[int64]{Value: 9, Source: FromPodsAPI, Exact: true},
	}, true
}

func TestFactsAreBest(t *testing.T) {
	annotations := map[string]string{PriorityAnnotation: "1", MemoryRequestAnnotation: "1"}
	for known, want := range map[string]Source{dashedUID: FromPodsAPI, "other": FromAnnotation} {
		p := storeWith(Options{Facts: fixedFacts{known}, TrustedNamespaces: []string{"default"}}, podOf(bestEffortParent, "default", annotations))
		if p.Priority.Source != want || p.Request.Source != want {
			t.Errorf("%s: %+v %+v", known, p.Priority, p.Request)
		}
	}
}

type claimedFacts struct{ name string }

func (f claimedFacts) Pod(uid string) (PodFacts, bool) {
	return PodFacts{
		Spec: FromAPI, Ref: Ref{Namespace: "default", Name: f.name, UID: uid}, Static: true,
		Priority: Value[int32]{Value: SystemCriticalPriority, Source: FromAPI, Exact: true},
	}, true
}

// Facts under another pod's name are not this pod's.
func TestFactsOfAnotherNameDoNotCount(t *testing.T) {
	mine := storeWith(Options{Facts: claimedFacts{"p-" + dashedUID}}, podOf(bestEffortParent, "default", nil))
	theirs := storeWith(Options{Facts: claimedFacts{"other"}}, podOf(bestEffortParent, "default", nil))
	if mine.Priority.Source != FromAPI || !mine.Static() {
		t.Errorf("under its own name %q: %+v", mine.Name, mine.Priority)
	}
	if theirs.Priority.Source != FromDefault || theirs.Static() {
		t.Errorf("under another: %+v, static %t", theirs.Priority, theirs.Static())
	}
}

// A reload changes which namespaces' annotations count, at once.
func TestTrustIsReplaced(t *testing.T) {
	s := NewStore(Options{MemTotal: 1 << 30, TrustedNamespaces: []string{"default"}})
	s.Apply(podOf(bestEffortParent, "default", map[string]string{PriorityAnnotation: "100"}))
	priority := func() Value[int32] {
		p, _ := s.Snapshot().Pod(dashedUID)
		return p.Priority
	}
	if got := priority(); got.Value != 100 {
		t.Fatalf("%+v", got)
	}
	before := s.Snapshot()
	if s.Trust([]string{"default"}); s.Snapshot() != before {
		t.Error("the same namespaces made a new snapshot")
	}
	if s.Trust([]string{"other"}); priority().Source != FromDefault {
		t.Errorf("not trusted any more: %+v", priority())
	}
	if s.Trust([]string{"other", "default"}); priority().Value != 100 {
		t.Errorf("trusted again: %+v", priority())
	}
}
