package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/inventory"
)

const mi = 1 << 20

// resources reads memory and ephemeral-storage; "" is not written.
func resources(memory, storage string) v1.ResourceList {
	l := v1.ResourceList{}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	if storage != "" {
		l[v1.ResourceEphemeralStorage] = resource.MustParse(storage)
	}
	return l
}

func container(name, memory, storage string) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: resources(memory, storage)}}
}

func sidecar(name, memory, storage string) v1.Container {
	c, always := container(name, memory, storage), v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

type list []v1.Container

func podWith(init, regular list) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{InitContainers: init, Containers: regular}}
}

// with changes the pod and returns it.
func with(p *v1.Pod, change func(p *v1.Pod)) *v1.Pod { change(p); return p }

func overhead(memory, storage string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Overhead = resources(memory, storage) }
}

func podLevel(requests, limits v1.ResourceList) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

// The sums are worked out by hand from facts/kubelet.md §3.3.
func TestRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		pod             *v1.Pod
		memory, storage int64
	}{
		"nothing asked for":                  {podWith(nil, list{container("a", "", "")}), 0, 0},
		"sum of containers":                  {podWith(nil, list{container("a", "100Mi", "1Gi"), container("b", "28Mi", "")}), 128 * mi, 1024 * mi},
		"an init container that is larger":   {podWith(list{container("i", "300Mi", "")}, list{container("a", "100Mi", "1Gi"), container("b", "28Mi", "")}), 300 * mi, 1024 * mi},
		"init containers are not added up":   {podWith(list{container("i", "60Mi", ""), container("j", "70Mi", "2Gi")}, list{container("a", "64Mi", "1Gi")}), 70 * mi, 2048 * mi},
		"a sidecar is added":                 {podWith(list{sidecar("s", "50Mi", "10Mi")}, list{container("a", "100Mi", "")}), 150 * mi, 10 * mi},
		"a sidecar before an init container": {podWith(list{sidecar("s", "50Mi", ""), container("i", "120Mi", "")}, list{container("a", "100Mi", "")}), 170 * mi, 0},
		"a sidecar after an init container":  {podWith(list{container("i", "120Mi", ""), sidecar("s", "50Mi", "")}, list{container("a", "60Mi", "")}), 120 * mi, 0},
		"two sidecars around an init":        {podWith(list{sidecar("s", "50Mi", ""), container("i", "200Mi", ""), sidecar("t", "30Mi", "")}, list{container("a", "100Mi", "")}), 250 * mi, 0},
		"a sidecar without a regular request": {
			podWith(list{sidecar("s", "50Mi", "")}, list{container("a", "", "")}), 50 * mi, 0},
		"overhead":                        {with(podWith(nil, list{container("a", "100Mi", "")}), overhead("20Mi", "5Mi")), 120 * mi, 0},
		"overhead on nothing is nothing":  {with(podWith(nil, list{container("a", "", "")}), overhead("20Mi", "")), 0, 0},
		"overhead on an init container":   {with(podWith(list{container("i", "90Mi", "")}, list{container("a", "", "1Mi")}), overhead("20Mi", "5Mi")), 110 * mi, 6 * mi},
		"pod level in place of the sum":   {with(podWith(nil, list{container("a", "100Mi", "1Gi"), container("b", "100Mi", "")}), podLevel(resources("512Mi", ""), nil)), 512 * mi, 0},
		"pod level below the sum":         {with(podWith(list{container("i", "900Mi", "")}, list{container("a", "100Mi", "")}), podLevel(resources("256Mi", ""), nil)), 256 * mi, 0},
		"pod level with overhead":         {with(podWith(nil, list{container("a", "", "")}), func(p *v1.Pod) { podLevel(resources("64Mi", ""), nil)(p); overhead("6Mi", "6Mi")(p) }), 70 * mi, 0},
		"pod level of another resource":   {with(podWith(nil, list{container("a", "100Mi", "1Gi")}), podLevel(v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, nil)), 0, 0},
		"pod-level limit alone":           {with(podWith(nil, list{container("a", "100Mi", "1Gi")}), podLevel(nil, resources("1Gi", ""))), 0, 0},
		"pod level of no resource at all": {with(podWith(nil, list{container("a", "100Mi", "1Gi")}), podLevel(v1.ResourceList{}, nil)), 100 * mi, 1024 * mi},
		"fractions are rounded once":      {podWith(nil, list{container("a", "1500m", ""), container("b", "1500m", "")}), 3, 0},
	} {
		r := NewRecord(tt.pod, inventory.FromPodsAPI, false)
		if r.Memory != tt.memory || r.EphemeralStorage != tt.storage || !r.Exact {
			t.Errorf("%s: memory %d, storage %d, exact %t; want %d, %d, exact", name, r.Memory, r.EphemeralStorage, r.Exact, tt.memory, tt.storage)
		}
	}
}

// allocatedStatus is what kubelet writes of a container (kubelet_pods.go).
func allocatedStatus(name, memory string) v1.ContainerStatus {
	l := resources(memory, "")
	return v1.ContainerStatus{Name: name, AllocatedResources: l, Resources: &v1.ResourceRequirements{Requests: l}}
}

func pending(p *v1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodResizePending, Reason: v1.PodReasonDeferred})
}

// During an in-place resize the allocation counts, not what is wished for.
func TestAllocationGoesBeforeSpec(t *testing.T) {
	deferred := func() *v1.Pod {
		return with(podWith(list{sidecar("s", "50Mi", "")}, list{container("a", "4Gi", "1Gi"), container("b", "10Mi", "")}), pending)
	}
	for name, tt := range map[string]struct {
		pod    *v1.Pod
		memory int64
		exact  bool
	}{
		"told for every container": {with(deferred(), func(p *v1.Pod) {
			p.Status.InitContainerStatuses = []v1.ContainerStatus{allocatedStatus("s", "50Mi")}
			p.Status.ContainerStatuses = []v1.ContainerStatus{allocatedStatus("a", "1Gi"), allocatedStatus("b", "10Mi")}
		}), 1084 * mi, true},
		"not told for one": {with(deferred(), func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{allocatedStatus("a", "1Gi"), {Name: "b"}}
		}), 1084 * mi, false},
		"a kubelet that does not tell it": {with(podWith(nil, list{container("a", "1Gi", "")}), func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a"}}
		}), 1024 * mi, true},
		"nothing was allocated yet": {with(podWith(nil, list{container("a", "1Gi", "")}), func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", Resources: &v1.ResourceRequirements{}}}
		}), 0, true},
		"pod level": {with(podWith(nil, list{container("a", "", "")}), func(p *v1.Pod) {
			podLevel(resources("4Gi", ""), nil)(p)
			overhead("10Mi", "")(p)
			pending(p)
			p.Status.AllocatedResources = resources("1034Mi", "")
			p.Status.ContainerStatuses = []v1.ContainerStatus{allocatedStatus("a", "")}
		}), 1034 * mi, true},
	} {
		r := NewRecord(tt.pod, inventory.FromPodsAPI, false)
		if r.Memory != tt.memory || r.Exact != tt.exact {
			t.Errorf("%s: memory %d, exact %t; want %d, %t", name, r.Memory, r.Exact, tt.memory, tt.exact)
		}
	}
}

func TestAllocationFromKubeletsFile(t *testing.T) {
	s := shapeOf(with(podWith(list{container("i", "10Mi", ""), sidecar("s", "50Mi", "")}, list{container("a", "100Mi", "1Gi")}), overhead("1Mi", "1Mi")))
	memory, storage := s.requests(&Allocation{Containers: map[string]v1.ResourceList{
		"i": resources("10Mi", ""), "s": resources("70Mi", ""), "a": resources("200Mi", "2Gi"),
	}})
	if memory != 271*mi || storage != 2049*mi {
		t.Errorf("memory %d, storage %d", memory, storage)
	}
	memory, storage = s.requests(&Allocation{Pod: &v1.ResourceRequirements{Requests: resources("1Gi", "")}})
	if memory != 1025*mi || storage != 0 {
		t.Errorf("pod level: memory %d, storage %d", memory, storage)
	}
	// A kubelet that keeps only the containers' leaves the spec's pod level.
	pod := podWith(nil, list{container("a", "100Mi", "")})
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: resources("300Mi", "")}
	level := shapeOf(pod)
	if memory, _ = level.requests(&Allocation{ContainersOnly: true}); memory != 300*mi {
		t.Errorf("containers only: memory %d, want the pod level's 300Mi", memory)
	}
}
