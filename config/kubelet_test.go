package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func TestKubeletMemory(t *testing.T) {
	const kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	const capacity = 16 << 30
	for _, tt := range []struct {
		name, text string
		amount     uint64
		off        bool
		err        string
	}{
		{name: "no evictionHard", text: kind, amount: 100 << 20},
		{name: "null", text: kind + "evictionHard:\n", amount: 100 << 20},
		{name: "quantity", text: kind + "evictionHard: {memory.available: 300Mi}\n", amount: 300 << 20},
		{name: "percentage", text: kind + "evictionHard: {memory.available: \"5%\"}\n", amount: capacity / 20},
		{name: "off", text: kind + "evictionHard: {memory.available: \"0%\"}\n", off: true},
		// bugs.md B34: k3s sets disk thresholds only.
		{name: "other signals only", text: kind + "evictionHard: {imagefs.available: 5%, nodefs.available: 5%}\n", off: true},
		{name: "empty", text: kind + "evictionHard: {}\n", off: true},
		{name: "merged", text: kind + "mergeDefaultEvictionSettings: true\nevictionHard: {imagefs.available: 5%}\n", amount: 100 << 20},
		{name: "merged but written", text: kind + "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n", amount: 1 << 30},
		{name: "other fields", text: kind + "staticPodPath: /x\nauthentication: {anonymous: {enabled: false}}\n", amount: 100 << 20},
		{name: "JSON", text: `{"kind":"KubeletConfiguration","evictionHard":{"memory.available":"1Gi"}}`, amount: 1 << 30},
		{name: "other kind", text: "kind: KubeProxyConfiguration\n", err: `kind "KubeProxyConfiguration": must be KubeletConfiguration`},
		{name: "our own", text: head, err: `kind "EvictionConfiguration"`},
		{name: "empty file", text: "", err: `kind ""`},
		{name: "not YAML", text: "{", err: "kubeletConfig"},
		{name: "auto", text: kind + "evictionHard: {memory.available: auto}\n", err: `evictionHard["memory.available"]: "auto": kubelet knows no auto`},
		{name: "zero", text: kind + "evictionHard: {memory.available: \"0\"}\n", err: `"0": must be positive`},
		{name: "nonsense", text: kind + "evictionHard: {memory.available: lots}\n", err: `"lots": not a quantity`},
		{name: "list", text: kind + "evictionHard: [1]\n", err: "evictionHard"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := file(t, tt.text)
			got, err := KubeletMemory(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v, want %q and the path", err, tt.err)
				}
				return
			}
			if err != nil || got.Off != tt.off || got.Resolve(capacity) != tt.amount || got.Text == "" {
				t.Errorf("%+v = %d, %v; want %d, off %v", got, got.Resolve(capacity), err, tt.amount, tt.off)
			}
		})
	}
	if _, err := KubeletMemory(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func FuzzKubeletMemory(f *testing.F) {
	for _, s := range []string{"", "kind: KubeletConfiguration\n", "kind: KubeletConfiguration\nevictionHard: {memory.available: 5%}\n", "{", "evictionHard: [1]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		th, err := kubeletMemory("x", b)
		if err == nil && (th.Auto || th.Off != (th.Resolve(1<<50) == 0) && th.Share == nil) {
			t.Errorf("%q: %+v", b, th)
		}
	})
}
