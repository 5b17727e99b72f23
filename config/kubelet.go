package config

import (
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// KubeletDefaultMemory is kubelet's own hard memory.available threshold when
// its configuration has no evictionHard (Kubernetes 1.37,
// pkg/kubelet/apis/config/v1beta1/defaults_linux.go): 100Mi.
const KubeletDefaultMemory = 100 << 20

// KubeletMemory reads kubelet's hard memory.available threshold from its
// configuration file. A file without evictionHard has kubelet's default; one
// whose evictionHard leaves memory.available out, or turns it off, has none: Off
// is set.
func KubeletMemory(path string) (eviction.Threshold, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return eviction.Threshold{}, fmt.Errorf("kubeletConfig: %w", err)
	}
	return kubeletMemory(path, b)
}

func kubeletMemory(path string, b []byte) (eviction.Threshold, error) {
	var k struct {
		Kind                         string            `json:"kind"`
		EvictionHard                 map[string]string `json:"evictionHard"`
		MergeDefaultEvictionSettings bool              `json:"mergeDefaultEvictionSettings"`
	}
	if err := yaml.Unmarshal(b, &k); err != nil {
		return eviction.Threshold{}, fmt.Errorf("kubeletConfig %s: %w", path, err)
	}
	if k.Kind != "KubeletConfiguration" {
		return eviction.Threshold{}, fmt.Errorf("kubeletConfig %s: kind %q: must be KubeletConfiguration", path, k.Kind)
	}
	text, ok := k.EvictionHard[string(eviction.MemoryAvailable)]
	switch {
	case ok:
		t, err := eviction.ParseThreshold(text)
		if err == nil && t.Auto {
			err = errors.New("kubelet knows no auto")
		}
		if err != nil {
			return t, fmt.Errorf("kubeletConfig %s: evictionHard[%q]: %q: %w", path, eviction.MemoryAvailable, text, err)
		}
		return t, nil
	case k.EvictionHard == nil || k.MergeDefaultEvictionSettings:
		return eviction.Threshold{Quantity: KubeletDefaultMemory, Text: "100Mi (kubelet's default)"}, nil
	}
	return eviction.Threshold{Off: true, Text: "not set"}, nil
}
