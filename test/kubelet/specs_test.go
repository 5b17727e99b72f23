package kubelet

import (
	"fmt"
	"math/rand/v2"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// seed of the generated pods.
const seed = 5

// twinFactor makes every request of a pod larger than any node.
const twinFactor = 1 << 20

// overheads are runtime classes by name, with the memory they add to a pod; the
// API server writes it into spec.overhead.
var overheads = map[string]int64{"heavy": 12*mi + 345, "heavy-twin": (12*mi + 345) * twinFactor}

func runtimeClass(name string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "runc",
		Overhead: &nodev1.Overhead{PodFixed: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(overheads[name], resource.BinarySI)}},
	}
}

// priorities are classes by name; nothing is the cluster's default, 0.
var priorities = map[string]int32{"batch": -10, "usual": 1000, "urgent": 1_000_000_000}

// generate makes n pods of all kinds from a seed: in turns of every QoS class,
// and with each of init containers, sidecars, overhead, pod-level resources and
// a priority in about every third.
func generate(node string, seed uint64, n int) []*v1.Pod {
	g := &generator{rand.New(rand.NewPCG(seed, 0))}
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = g.pod(node, i)
	}
	return pods
}

type generator struct{ *rand.Rand }

func (g *generator) third() bool { return g.IntN(3) == 0 }

func (g *generator) pod(node string, i int) *v1.Pod {
	pod := bare(node, fmt.Sprintf("pod-%d", i))
	qos := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}[i%3]
	for range 1 + g.IntN(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, g.container(fmt.Sprintf("c%d", len(pod.Spec.Containers)), qos))
	}
	for g.IntN(2) == 0 && len(pod.Spec.InitContainers) < 4 {
		c := g.container(fmt.Sprintf("i%d", len(pod.Spec.InitContainers)), qos)
		if g.IntN(2) == 0 {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if qos == v1.PodQOSBurstable && g.third() {
		pod.Spec.Resources = g.podLevel()
	}
	if g.third() {
		class := "heavy"
		pod.Spec.RuntimeClassName = &class
	}
	if g.third() {
		pod.Spec.PriorityClassName = []string{"batch", "usual", "urgent", "system-cluster-critical", "system-node-critical"}[g.IntN(5)]
	}
	return pod
}

func (g *generator) container(name string, qos v1.PodQOSClass) v1.Container {
	c := pause(name)
	switch qos {
	case v1.PodQOSGuaranteed:
		c.Resources.Limits = amounts(g.memory(), 1+g.Int64N(5), g.storage())
		c.Resources.Requests = c.Resources.Limits.DeepCopy()
	case v1.PodQOSBurstable:
		if g.third() {
			break // one container without anything
		}
		memory := g.memory()
		c.Resources.Requests = amounts(memory, 1+g.Int64N(5), g.storage())
		if g.third() {
			c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: quantity(2 * memory)}
		}
	case v1.PodQOSBestEffort:
		// A request for disk alone leaves a pod BestEffort.
		if g.third() {
			c.Resources.Requests = v1.ResourceList{v1.ResourceEphemeralStorage: quantity(g.memory())}
		}
	}
	return c
}

// memory is a number of bytes that is no round one, up to 32 MiB.
func (g *generator) memory() int64 { return 1 + g.Int64N(32*mi) }

// storage is small, and often 0, which is no request.
func (g *generator) storage() int64 {
	if g.third() {
		return 1 + g.Int64N(mi)
	}
	return 0
}

// podLevel are resources larger than what the containers sum up to, or such that
// do not tell memory at all.
func (g *generator) podLevel() *v1.ResourceRequirements {
	if g.third() {
		return &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(100, resource.DecimalSI)}}
	}
	memory := 256*mi + g.memory()
	return &v1.ResourceRequirements{
		Requests: amounts(memory, 100, 0),
		Limits:   v1.ResourceList{v1.ResourceMemory: quantity(2 * memory)},
	}
}

// twin is the same pod with twinFactor times the memory, which kubelet refuses
// with a message that says what the pod asks for. It is nil for pods whose
// request the message does not tell: those that ask for no memory, those whose
// pod-level resources leave memory out or come with an overhead, where kubelet's
// admission and its eviction differ, and critical ones, for which kubelet first
// looks for others to end.
func twin(pod *v1.Pod) *v1.Pod {
	if strings.HasPrefix(pod.Spec.PriorityClassName, "system-") {
		return nil
	}
	t := pod.DeepCopy()
	t.Name += "-twin"
	if r := t.Spec.Resources; r != nil {
		if _, told := r.Requests[v1.ResourceMemory]; !told || t.Spec.RuntimeClassName != nil {
			return nil
		}
		enlarge(r)
	}
	asks := t.Spec.Resources != nil
	for _, list := range [][]v1.Container{t.Spec.Containers, t.Spec.InitContainers} {
		for i := range list {
			_, told := list[i].Resources.Requests[v1.ResourceMemory]
			asks = asks || told
			enlarge(&list[i].Resources)
		}
	}
	if !asks {
		return nil
	}
	if t.Spec.RuntimeClassName != nil {
		class := *t.Spec.RuntimeClassName + "-twin"
		t.Spec.RuntimeClassName = &class
	}
	return t
}

func enlarge(r *v1.ResourceRequirements) {
	for _, l := range []v1.ResourceList{r.Requests, r.Limits} {
		if q, told := l[v1.ResourceMemory]; told {
			l[v1.ResourceMemory] = quantity(q.Value() * twinFactor)
		}
	}
}
