package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func TestKubeletHardMemory(t *testing.T) {
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
			k, err := ReadKubelet(path)
			got := k.HardMemory
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
	if _, err := ReadKubelet(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func TestKubeletReservations(t *testing.T) {
	const kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for _, tt := range []struct {
		name, text   string
		kube, system uint64
		enforces     bool
		err          string
	}{
		{name: "nothing written", text: kind, enforces: true},
		// bugs.md B47
		{name: "reserved", text: kind + "kubeReserved: {memory: 2Gi, cpu: 100m}\nsystemReserved: {memory: 1Gi}\n", kube: 2 << 30, system: 1 << 30, enforces: true},
		{name: "numbers", text: kind + "kubeReserved: {memory: 1073741824}\n", kube: 1 << 30, enforces: true},
		{name: "zero", text: kind + "kubeReserved: {memory: \"0\"}\nsystemReserved: {cpu: \"1\"}\n", enforces: true},
		{name: "pods", text: kind + "enforceNodeAllocatable: [pods, kube-reserved]\n", enforces: true},
		{name: "none", text: kind + "enforceNodeAllocatable: [none]\n"},
		{name: "empty list", text: kind + "enforceNodeAllocatable: []\n"},
		{name: "others only", text: kind + "enforceNodeAllocatable: [kube-reserved]\n"},
		{name: "negative", text: kind + "kubeReserved: {memory: -1Gi}\n", err: `kubeReserved[memory]: "-1Gi": must not be negative`},
		{name: "nonsense", text: kind + "systemReserved: {memory: lots}\n", err: `systemReserved[memory]: "lots"`},
		{name: "several", text: kind + "systemReserved: {memory: x}\nkubeReserved: {memory: z}\n", err: `kubeReserved[memory]: "z"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, err := ReadKubelet(file(t, tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || k != (Kubelet{}) {
					t.Errorf("%+v, %v, want %q", k, err, tt.err)
				}
				return
			}
			if err != nil || k.KubeReserved != tt.kube || k.SystemReserved != tt.system || k.EnforcesPods != tt.enforces {
				t.Errorf("%+v, %v, want %+v", k, err, tt)
			}
		})
	}
}

func FuzzKubelet(f *testing.F) {
	for _, s := range []string{"", "kind: KubeletConfiguration\n", "kind: KubeletConfiguration\nevictionHard: {memory.available: 5%}\n", "{", "evictionHard: [1]",
		"kind: KubeletConfiguration\nkubeReserved: {memory: 1Gi}\nsystemReserved: {memory: -1}\nenforceNodeAllocatable: [none]\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseKubelet(b)
		if err != nil {
			return
		}
		if th := k.HardMemory; th.Auto || th.Off != (th.Resolve(1<<50) == 0) && th.Share == nil {
			t.Errorf("%q: %+v", b, th)
		}
		if k.KubeReserved > 1<<63-1 || k.SystemReserved > 1<<63-1 {
			t.Errorf("%q: %+v", b, k)
		}
	})
}
