package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// documentedKubelet is what docs/node.md has for kubelet under "Node pressure".
func documentedKubelet(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "node.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## Node pressure\n")
	_, block, found := strings.Cut(section, "```yaml\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("docs/node.md has no configuration under Node pressure")
	}
	return "kind: KubeletConfiguration\n" + block
}

// Whether kubelet reports the pressure that we act on, and by which settings it
// would.
func TestCheckOfNodePressure(t *testing.T) {
	const what = "node pressure"
	const documented = "kubelet reports it at our thresholds and evicts nobody for it"
	n := newNode(t, v2Tree, fakecri.Options{})
	n.disks(60 * gib)
	head := "kind: KubeletConfiguration\n"
	memory := "evictionHard: {nodefs.available: \"0%\", nodefs.inodesFree: \"0%\", imagefs.available: \"0%\", imagefs.inodesFree: \"0%\"}\n"
	soft := func(amount, grace string) string {
		return head + "evictionSoft: {memory.available: " + amount + "}\nevictionSoftGracePeriod: {memory.available: " + grace + "}\n"
	}
	for _, c := range []struct {
		name, kubelet, ours, want string
	}{
		{"as documented", documentedKubelet(t), "", documented},
		{"nothing set", head, "", "kubelet does not report ours for memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree: "},
		{"what is offered", head, memory, `evictionSoft: {memory.available: "500Mi"}, evictionSoftGracePeriod: {memory.available: 87600h}`},
		{"shares stay shares", head, "", `nodefs.available: "12%"`},
		{"equal", soft("500Mi", "87600h"), memory, documented},
		{"reported earlier", soft("1Gi", "87600h"), memory, documented},
		{"reported too late", soft("499Mi", "87600h"), memory, "kubelet does not report ours for memory.available: "},
		{"evicts", soft("500Mi", "24h"), memory, "kubelet does not report ours for memory.available: "},
		{"one is missing", soft("500Mi", "87600h"), "evictionHard: {nodefs.available: 5Gi, nodefs.inodesFree: \"0%\", imagefs.available: \"0%\", imagefs.inodesFree: \"0%\"}\n",
			"kubelet does not report ours for nodefs.available: "},
	} {
		_, fs := n.checkWith(n.config(c.ours), "--kubelet-config", n.write("k.yaml", c.kubelet))
		t.Log(c.name)
		expect(t, n, fs, levelOK, what, c.want)
		if strings.Contains(c.kubelet, "87600h") {
			for _, f := range fs {
				if f.Level == levelWarning && strings.Contains(f.Text, "soft") {
					t.Errorf("%s: %+v", c.name, f)
				}
			}
		}
	}
	_, fs := n.checkWith(n.config(""))
	for _, f := range fs {
		if f.What == what {
			t.Errorf("without kubelet's configuration: %+v", f)
		}
	}
}
