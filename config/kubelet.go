package config

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// KubeletDefaultMemory is kubelet's own hard memory.available threshold when
// its configuration has no evictionHard (Kubernetes 1.37,
// pkg/kubelet/apis/config/v1beta1/defaults_linux.go): 100Mi.
const KubeletDefaultMemory = 100 << 20

// Kubelet is what kubelet's own configuration file says of memory.
type Kubelet struct {
	// HardMemory is its hard memory.available threshold; Off when it has none,
	// so that there is no backstop below ours.
	HardMemory eviction.Threshold
	// KubeReserved and SystemReserved are the memory kept from pods, in bytes.
	KubeReserved, SystemReserved uint64
	// EnforcesPods: enforceNodeAllocatable has "pods", the default. kubelet then
	// limits the pods' cgroup to capacity − reserved, and watches
	// allocatableMemory.available.
	EnforcesPods bool
}

// kubeletFile are the fields of KubeletConfiguration that are read.
type kubeletFile struct {
	Kind                         string            `json:"kind"`
	EvictionHard                 map[string]string `json:"evictionHard"`
	MergeDefaultEvictionSettings bool              `json:"mergeDefaultEvictionSettings"`
	KubeReserved                 map[string]string `json:"kubeReserved"`
	SystemReserved               map[string]string `json:"systemReserved"`
	EnforceNodeAllocatable       []string          `json:"enforceNodeAllocatable"`
}

// ReadKubelet reads kubelet's configuration file; a file that is there is read
// whole or not at all. Command line flags and drop-in directories are not seen.
func ReadKubelet(path string) (Kubelet, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Kubelet{}, fmt.Errorf("kubeletConfig: %w", err)
	}
	k, err := parseKubelet(b)
	if err != nil {
		return Kubelet{}, fmt.Errorf("kubeletConfig %s: %w", path, err)
	}
	return k, nil
}

func parseKubelet(b []byte) (Kubelet, error) {
	var f kubeletFile
	if err := yaml.Unmarshal(b, &f); err != nil {
		return Kubelet{}, err
	}
	if f.Kind != "KubeletConfiguration" {
		return Kubelet{}, fmt.Errorf("kind %q: must be KubeletConfiguration", f.Kind)
	}
	k := Kubelet{EnforcesPods: f.EnforceNodeAllocatable == nil || slices.Contains(f.EnforceNodeAllocatable, "pods")}
	var errs [3]error
	k.HardMemory, errs[0] = kubeletThreshold("evictionHard", f.EvictionHard)
	if _, written := f.EvictionHard[string(eviction.MemoryAvailable)]; !written && (f.EvictionHard == nil || f.MergeDefaultEvictionSettings) {
		k.HardMemory = eviction.Threshold{Quantity: KubeletDefaultMemory, Text: "100Mi (kubelet's default)"}
	}
	k.KubeReserved, errs[1] = reservedMemory("kubeReserved", f.KubeReserved)
	k.SystemReserved, errs[2] = reservedMemory("systemReserved", f.SystemReserved)
	if err := errors.Join(errs[:]...); err != nil {
		return Kubelet{}, err
	}
	return k, nil
}

// kubeletThreshold reads memory.available; what is not written is off.
func kubeletThreshold(field string, m map[string]string) (eviction.Threshold, error) {
	text, ok := m[string(eviction.MemoryAvailable)]
	if !ok {
		return eviction.Threshold{Off: true, Text: "not set"}, nil
	}
	t, err := eviction.ParseThreshold(text)
	if err == nil && t.Auto {
		err = errors.New("kubelet knows no auto")
	}
	if err != nil {
		return t, fmt.Errorf("%s[%q]: %q: %w", field, eviction.MemoryAvailable, text, err)
	}
	return t, nil
}

// reservedMemory reads the memory of a reservation in bytes; one that is not
// written is 0.
func reservedMemory(field string, m map[string]string) (uint64, error) {
	text, ok := m["memory"]
	if !ok {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err == nil && q.Sign() < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil {
		return 0, fmt.Errorf("%s[memory]: %q: %w", field, text, err)
	}
	return uint64(q.Value()), nil
}
