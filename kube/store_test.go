package kube

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// clock is a passed clock.
type clock struct{ now time.Time }

func newClock() *clock                  { return &clock{now: time.Unix(1_800_000_000, 0)} }
func (c *clock) read() time.Time        { return c.now }
func (c *clock) pass(d time.Duration)   { c.now = c.now.Add(d) }
func (c *clock) before() time.Time      { return c.now.Add(-time.Millisecond) }
func (c *clock) stores() (s *Store)     { return NewStore(c.read) }
func named(uid string, n int32) *v1.Pod { return with(podWith(nil, nil), identity(uid, n)) }
func identity(u string, n int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Namespace, p.Name, p.UID, p.Spec.Priority = "default", u, types.UID(u), &n
	}
}

func told(s *Store, uid string) string {
	f, ok := s.Pod(uid)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%d %s", f.Priority.Value, f.Priority.Source)
}

func TestBestSourceFirst(t *testing.T) {
	c := newClock()
	s := c.stores()
	api := s.Feed(inventory.FromAPI) // added first, and still second
	kubelet := s.Feed(inventory.FromPodsAPI)
	api.Replace([]Record{api.Record(named("a", 1)), api.Record(named("b", 2))}, c.before())
	kubelet.Replace([]Record{kubelet.Record(named("a", 3))}, c.before())
	if got := told(s, "a"); got != "3 podsAPI" {
		t.Errorf("a: %s", got)
	}
	if got := told(s, "b"); got != "2 api" {
		t.Errorf("b: %s", got)
	}
	if got := told(s, "c"); got != "unknown" {
		t.Errorf("c: %s", got)
	}

	// A source that fails keeps what it told, but not for ever against one that
	// does not fail.
	kubelet.Fail(errors.New("away"))
	c.pass(staleAfter - time.Second)
	if got := told(s, "a"); got != "3 podsAPI" {
		t.Errorf("a, a while after the failure: %s", got)
	}
	c.pass(time.Second)
	if got := told(s, "a"); got != "1 api" {
		t.Errorf("a, long after the failure: %s", got)
	}
	api.Fail(errors.New("away too"))
	c.pass(staleAfter)
	if got := told(s, "a"); got != "3 podsAPI" {
		t.Errorf("a, when nobody answers: %s", got)
	}
	if s.Known() {
		t.Error("known although nobody answers")
	}
	kubelet.Alive()
	if got := told(s, "a"); got != "3 podsAPI" || !s.Known() {
		t.Errorf("a, when it is back: %s, known %t", got, s.Known())
	}
}

// What a watch tells while a list is on its way is newer than the list.
func TestListDoesNotUndoTheWatch(t *testing.T) {
	c := newClock()
	s := c.stores()
	f := s.Feed(inventory.FromPodsAPI)
	f.Replace([]Record{f.Record(named("a", 1)), f.Record(named("b", 1))}, c.before())
	asked := c.now
	c.pass(time.Second)
	f.Put(f.Record(named("a", 2)))
	f.Put(f.Record(named("new", 2)))
	f.Delete("b")
	f.Replace([]Record{f.Record(named("a", 1)), f.Record(named("b", 1))}, asked)
	if a, b, n := told(s, "a"), told(s, "b"), told(s, "new"); a != "2 podsAPI" || b != "unknown" || n != "2 podsAPI" {
		t.Errorf("a %s, b %s, new %s", a, b, n)
	}
	c.pass(time.Second)
	f.Replace([]Record{f.Record(named("a", 1)), f.Record(named("b", 1))}, c.before())
	if a, b, n := told(s, "a"), told(s, "b"), told(s, "new"); a != "1 podsAPI" || b != "1 podsAPI" || n != "unknown" {
		t.Errorf("after a later list: a %s, b %s, new %s", a, b, n)
	}
}

func TestGone(t *testing.T) {
	c := newClock()
	s := c.stores()
	f := s.Feed(inventory.FromPodsAPI)
	step := func(uids ...string) {
		var list []Record
		for _, uid := range uids {
			list = append(list, f.Record(named(uid, 0)))
		}
		c.pass(time.Second)
		f.Replace(list, c.before())
	}
	step("a", "b")
	if step("b"); s.Gone("a") {
		t.Error("absence alone is not the end: kubelet may not have taken it up yet")
	}
	f.Delete("b")
	if s.Gone("b") {
		t.Error("DELETED alone is not the end: kubelet's worker has finished, no more")
	}
	if step("b"); s.Gone("b") {
		t.Error("it is in the list")
	}
	if step(); !s.Gone("b") {
		t.Error("DELETED and not listed")
	}
	if step("b"); s.Gone("b") {
		t.Error("it is back")
	}
	f.Delete("b")
	step()
	f.Put(f.Record(named("b", 0)))
	if s.Gone("b") {
		t.Error("it is back by the watch")
	}
	f.Delete("b")
	step()
	c.pass(goneFor)
	if step(); s.Gone("b") {
		t.Error("remembered for ever")
	}

	api := s.Feed(inventory.FromAPI)
	api.Delete("x")
	c.pass(time.Second)
	api.Replace(nil, c.before())
	if s.Gone("x") {
		t.Error("the API server does not know what still runs")
	}
}

func TestChangedIsSignalledOnceAndOnlyForChanges(t *testing.T) {
	c := newClock()
	s := c.stores()
	f := s.Feed(inventory.FromPodsAPI)
	signalled := func() bool {
		select {
		case <-s.Changed():
			return true
		default:
			return false
		}
	}
	f.Replace([]Record{f.Record(named("a", 1))}, c.before())
	if !signalled() || signalled() {
		t.Error("a first list is one change")
	}
	c.pass(time.Second)
	f.Replace([]Record{f.Record(named("a", 1))}, c.before())
	f.Put(f.Record(named("a", 1)))
	f.Alive()
	if signalled() {
		t.Error("nothing changed")
	}
	f.Put(f.Record(named("a", 2)))
	if !signalled() {
		t.Error("a priority changed")
	}
	c.pass(time.Second)
	f.Replace([]Record{f.Record(with(named("a", 2), func(p *v1.Pod) { p.Spec.Containers = list{container("a", "1Gi", "")} }))}, c.before())
	if !signalled() {
		t.Error("a request changed")
	}
	f.Delete("a")
	if !signalled() {
		t.Error("it ended")
	}
}

func TestRecordOfMirrorDeletionAndLabels(t *testing.T) {
	c := newClock()
	s := c.stores()
	s.KeepLabels([]string{"kube-system"})
	api := s.Feed(inventory.FromAPI)
	now := metav1.NewTime(c.now)
	change := func(f func(p *v1.Pod)) *v1.Pod {
		return with(named("u", 5), func(p *v1.Pod) { p.DeletionTimestamp = &now; p.Labels = map[string]string{"keep": "yes"}; f(p) })
	}
	mirror := api.Record(change(func(p *v1.Pod) {
		p.Annotations = map[string]string{configMirrorAnnotation: "hash", configSourceAnnotation: "file"}
	}))
	if mirror.UID != "hash" || mirror.Static || !mirror.Deleting.IsZero() {
		t.Errorf("mirror: %+v; deleting a mirror does not end its pod, whose UID is the hash", mirror)
	}
	fromFile := change(func(p *v1.Pod) { p.Annotations = map[string]string{configSourceAnnotation: "file"} })
	if r := api.Record(fromFile); r.UID != "u" || r.Static {
		t.Errorf("static by a tenant's own word: %+v", r)
	}
	if r := s.Feed(inventory.FromPodsAPI).Record(fromFile); !r.Static {
		t.Errorf("static by kubelet's word: %+v", r)
	}
	plain := api.Record(change(func(p *v1.Pod) { p.Annotations = map[string]string{configSourceAnnotation: "api"} }))
	if plain.Static || !plain.Deleting.Equal(c.now) || plain.Labels != nil {
		t.Errorf("plain: %+v", plain)
	}
	if trusted := api.Record(change(func(p *v1.Pod) { p.Namespace = "kube-system" })); trusted.Labels["keep"] != "yes" {
		t.Errorf("labels of a trusted namespace: %v", trusted.Labels)
	}
	kubelet := s.Feed(inventory.FromPodsAPI)
	kubelet.Put(kubelet.Record(named("u", 5)))
	api.Put(plain)
	if f, _ := s.Pod("u"); !f.EndsBy.Equal(c.now) || f.Spec != inventory.FromPodsAPI {
		t.Errorf("%+v: one source that says it is being deleted is enough", f)
	}
}

// A mirror says nothing about a pod that is there by itself, whatever UID its
// annotation names.
func TestMirrorTakesNobodysPlace(t *testing.T) {
	c := newClock()
	s := c.stores()
	api := s.Feed(inventory.FromAPI)
	mirror := api.Record(with(named("m", 9), func(p *v1.Pod) { p.Annotations = map[string]string{configMirrorAnnotation: "a"} }))
	api.Replace([]Record{api.Record(named("a", 1)), mirror}, c.before())
	api.Put(mirror)
	if got := told(s, "a"); got != "1 api" {
		t.Errorf("a: %s", got)
	}
	api.Delete(mirror.Key())
	if got := told(s, "a"); got != "1 api" {
		t.Errorf("a without the mirror: %s", got)
	}
	api.Put(mirror)
	api.Delete("a")
	if f, _ := s.Pod("a"); f.Priority.Value != 9 || f.Ref.Name != "m" {
		t.Errorf("of a static pod the mirror tells: %+v", f)
	}
}

func TestTolerations(t *testing.T) {
	memory := inventory.Tolerations{MemoryPressure: true}
	for name, tt := range map[string]struct {
		list []v1.Toleration
		want inventory.Tolerations
	}{
		"none":               {nil, inventory.Tolerations{}},
		"by key":             {[]v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}, memory},
		"by key and effect":  {[]v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}, memory},
		"another effect":     {[]v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}, inventory.Tolerations{}},
		"equal to no value":  {[]v1.Toleration{{Key: v1.TaintNodeMemoryPressure}}, memory},
		"equal to a value":   {[]v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Value: "x"}}, inventory.Tolerations{}},
		"everything":         {[]v1.Toleration{{Operator: v1.TolerationOpExists}}, inventory.Tolerations{MemoryPressure: true, DiskPressure: true, PIDPressure: true}},
		"two of them":        {[]v1.Toleration{{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}, {Key: v1.TaintNodePIDPressure, Operator: v1.TolerationOpExists}}, inventory.Tolerations{DiskPressure: true, PIDPressure: true}},
		"not ready is other": {[]v1.Toleration{{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists}}, inventory.Tolerations{}},
	} {
		if got := tolerationsOf(tt.list); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestAllocationsOfTheFile(t *testing.T) {
	c := newClock()
	s := c.stores()
	f := s.Feed(inventory.FromAPI)
	f.Put(f.Record(with(named("a", 1), func(p *v1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = list{container("i", "3Gi", "")}, list{container("a", "4Gi", ""), container("b", "1Gi", "")}
	})))
	three := map[string]v1.ResourceList{"i": resources("3Gi", ""), "a": resources("1Gi", "2Gi"), "b": resources("1Gi", "")}
	s.SetAllocations(map[string]Allocation{"a": {Containers: three}, "b": {Containers: three}, "p": {Pod: &v1.ResourceRequirements{Requests: resources("1Gi", "")}}})
	want := func(uid string, request int64, exact bool, slack int64) {
		t.Helper()
		got, ok := s.Pod(uid)
		v := inventory.Value[int64]{Value: request, Source: inventory.FromAllocation, Exact: exact, Slack: slack}
		if !ok || got.Request != v {
			t.Errorf("%s: %+v, want %+v", uid, got.Request, v)
		}
	}
	want("a", 3<<30, true, 0)      // the spec tells that i is an init container
	want("b", 5<<30, false, 2<<30) // nobody does: at most the sum, at least the largest
	want("p", 1<<30, false, 0)
	if got, _ := s.Pod("b"); got.Priority.Source != "" || got.Spec != "" {
		t.Errorf("b: %+v: a request is all that is known", got)
	}
	s.SetAllocations(nil)
	if got, _ := s.Pod("a"); got.Request != (inventory.Value[int64]{Value: 5 << 30, Source: inventory.FromAPI, Exact: true}) {
		t.Errorf("a without the file: %+v", got.Request)
	}
}
