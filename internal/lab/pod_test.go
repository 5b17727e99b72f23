package lab

import (
	"regexp"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestQoSParent(t *testing.T) {
	const uid = "0e1c-22"
	tests := []struct{ qos, parent, slice string }{
		{"Guaranteed", "/kubepods/pod0e1c-22", "kubepods-pod0e1c_22.slice"},
		{"Burstable", "/kubepods/burstable/pod0e1c-22", "kubepods-burstable-pod0e1c_22.slice"},
		{"burstable", "/kubepods/burstable/pod0e1c-22", "kubepods-burstable-pod0e1c_22.slice"},
		{"BestEffort", "/kubepods/besteffort/pod0e1c-22", "kubepods-besteffort-pod0e1c_22.slice"},
	}
	for _, tt := range tests {
		if got := QoSParent(tt.qos, uid); got != tt.parent {
			t.Errorf("QoSParent(%q) = %q; want %q", tt.qos, got, tt.parent)
		}
		if got := QoSSlice(tt.qos, uid); got != tt.slice {
			t.Errorf("QoSSlice(%q) = %q; want %q", tt.qos, got, tt.slice)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error(`QoSParent("Busrtable") has not panicked`)
		}
	}()
	QoSParent("Busrtable", uid)
}

func TestOOMScoreAdj(t *testing.T) {
	const gi = 1 << 30
	tests := []struct {
		qos                string
		request, mem, want int64
	}{
		{"Guaranteed", gi, 16 * gi, -997},
		{"BestEffort", 0, 16 * gi, 1000},
		{"Burstable", 0, 16 * gi, 999}, // 1000 would be BestEffort's
		{"Burstable", 4 * gi, 16 * gi, 750},
		{"Burstable", 16 * gi, 16 * gi, 3},
		{"Burstable", 20 * gi, 16 * gi, 3},
		{"Burstable", 1 * gi, 3 * gi, 667}, // 1000 − ⌊333.3⌋
		{"Burstable", gi, 0, 999},
	}
	for _, tt := range tests {
		if got := OOMScoreAdj(tt.qos, tt.request, tt.mem); got != tt.want {
			t.Errorf("OOMScoreAdj(%s, %d, %d) = %d; want %d", tt.qos, tt.request, tt.mem, got, tt.want)
		}
	}
}

func TestNewUID(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	a, b := NewUID(), NewUID()
	if !uuid.MatchString(a) || a == b {
		t.Errorf("NewUID: %q, %q; want two different version 4 UUIDs", a, b)
	}
}

func TestPodConfigIsKubelets(t *testing.T) {
	spec := PodSpec{
		Namespace: "shop", Name: "web", UID: "u-1", Attempt: 2, CgroupParent: "/kubepods/podu-1",
		Labels:      map[string]string{"app": "web"},
		Annotations: map[string]string{"kubernetes.io/config.source": "file"},
	}
	s := sandboxConfig(spec)
	for key, want := range map[string]string{
		"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "u-1",
	} {
		if s.Labels[key] != want {
			t.Errorf("sandbox label %s = %q; want %q", key, s.Labels[key], want)
		}
	}
	if got := s.Annotations["kubernetes.io/config.source"]; got != "file" {
		t.Errorf("config.source = %q; want what the spec says", got)
	}
	if got := sandboxConfig(PodSpec{}).Annotations["kubernetes.io/config.source"]; got != "api" {
		t.Errorf("config.source = %q; want api", got)
	}
	if len(spec.Labels) != 1 {
		t.Errorf("the caller's labels were changed: %v", spec.Labels)
	}
	if s.Metadata.Attempt != 2 || s.Linux.CgroupParent != spec.CgroupParent ||
		s.Linux.SecurityContext.NamespaceOptions.Network != runtimeapi.NamespaceMode_NODE {
		t.Errorf("sandbox config %v", s)
	}

	c := containerConfig(spec, ContainerSpec{Name: "main", Args: []string{"beat"}, OOMScoreAdj: 7, MemoryLimit: 9})
	if c.Labels["io.kubernetes.container.name"] != "main" || c.Labels["io.kubernetes.pod.uid"] != "u-1" ||
		c.Image.Image != WorkloadImage || c.Linux.Resources.OomScoreAdj != 7 || c.Linux.Resources.MemoryLimitInBytes != 9 ||
		c.Metadata.Attempt != 2 || c.Annotations["io.kubernetes.container.restartCount"] != "2" || c.LogPath != "" {
		t.Errorf("container config %v", c)
	}
	spec.LogDirectory = "/logs"
	if c := containerConfig(spec, ContainerSpec{Name: "main", Image: PauseImage}); c.LogPath != "main/0.log" || c.Image.Image != PauseImage {
		t.Errorf("log path %q, image %q", c.LogPath, c.Image.Image)
	}
}
