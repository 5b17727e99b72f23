package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// The grace periods of kubelet's soft thresholds are read as kubelet reads them,
// and what keeps it from starting is an error.
func TestKubeletGraces(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		grace      time.Duration
		err        string
	}{
		{name: "a grace", text: "evictionSoft: {nodefs.available: 10%}\nevictionSoftGracePeriod: {nodefs.available: 90s}\n", grace: 90 * time.Second},
		{name: "none at all", text: "evictionSoft: {nodefs.available: 10%}\nevictionSoftGracePeriod: {nodefs.available: 0s}\n"},
		{name: "of a threshold that is off", text: "evictionSoft: {nodefs.available: 0%}\n"},
		{name: "missing", text: "evictionSoft: {nodefs.available: 10%}\n", err: `evictionSoftGracePeriod["nodefs.available"]: is missing`},
		{name: "negative", text: "evictionSoftGracePeriod: {nodefs.available: -1s}\n", err: `evictionSoftGracePeriod["nodefs.available"]: "-1s": is negative`},
		{name: "unknown signal", text: "evictionSoftGracePeriod: {nodefs: 1s}\n", err: `evictionSoftGracePeriod["nodefs"]: "1s": no such signal`},
		{name: "no duration", text: "evictionSoft: {nodefs.available: 10%}\nevictionSoftGracePeriod: {nodefs.available: soon}\n", err: `evictionSoftGracePeriod["nodefs.available"]: "soon"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubelet.yaml")
			if err := os.WriteFile(path, []byte("kind: KubeletConfiguration\n"+tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := ReadKubeletSettings(path, "")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if err != nil && strings.Contains(err.Error(), "missing") && !strings.Contains(tt.err, "missing") {
					t.Errorf("said twice: %v", err)
				}
				return
			}
			if err != nil || s.Grace[eviction.NodeFsAvailable] != tt.grace {
				t.Errorf("grace %s, error %v", s.Grace[eviction.NodeFsAvailable], err)
			}
		})
	}
}
