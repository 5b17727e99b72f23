package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// evict starts the built evictor in mode observe, with the node's kubeconfig, and
// returns its admin client and its process.
func (c *cluster) evict(runtime, kubeletRoot string) (*admin.Client, int) {
	t := c.t
	t.Helper()
	binary := filepath.Join(c.dir, "cri-evictd")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "github.com/cri-evictd/cri-evictd/cmd/cri-evictd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building cri-evictd: %v\n%s", err, out)
	}
	config := filepath.Join(c.dir, "config.yaml")
	adminSocket := filepath.Join(c.dir, "admin.sock")
	body := fmt.Sprintf(`apiVersion: cri-evictd.io/v1alpha1
kind: EvictionConfiguration
mode: observe
metricsBindAddress: ""
runtimeEndpoint: %s
adminSocket: %s
proxySocket: %[3]s/proxy.sock
runDir: %[3]s/run
stateDir: %[3]s/state
kubeletRootDir: %[4]s
kubeconfig: %[5]s
nodeName: %[6]s
`, runtime, adminSocket, c.dir, kubeletRoot, c.nodeKubeconfig(), nodeName)
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "evict", "--config", config)
	cmd.Stdout, cmd.Stderr = testWriter{t}, testWriter{t}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ended by us
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	return admin.NewClient(cri.Endpoint{Path: adminSocket}), cmd.Process.Pid
}

// Beside a real kubelet the daemon knows of every pod what kubelet knows, and says
// where each number comes from.
func TestExplainBesideARealKubelet(t *testing.T) {
	n := newCluster(t).newNode()
	pod := small("web", 10*mi+1)
	pod.Spec.PriorityClassName = "usual"
	web := n.createPod(pod)
	static := small("static", 20*mi)
	static.UID = "0123456789abcdef0123456789abcdef"
	manifest, err := json.Marshal(static)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.kubelet.StaticPods, "static.json"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}

	client, _ := n.evict(n.ctd.Socket, n.kubelet.RootDir)
	best := inventory.FromPodsAPI
	if !servesPodsAPI() {
		best = inventory.FromAPI
	}
	var x admin.Explanation
	find := func(name string) *eviction.CandidateReport {
		for i := range x.Candidates {
			if x.Candidates[i].Name == name {
				return &x.Candidates[i]
			}
		}
		return nil
	}
	eventually(t, "both pods are known from "+string(best), 2*time.Minute, func() bool {
		if x, err = client.Explain(t.Context(), ""); err != nil {
			return false
		}
		a, b := find("web"), find("static-"+nodeName)
		return a != nil && b != nil && a.Priority.Source == best && b.Barred != "" && (best != inventory.FromPodsAPI || b.Priority.Source == best)
	})
	if p := find("web"); p.UID != string(web.UID) || p.Priority.Value != priorities["usual"] || !p.Priority.Exact ||
		p.Request.Value != 10*mi+1 || !p.Request.Exact || p.KubeletRank != 1 || p.Barred != "" || p.QoS.Value != "Burstable" {
		t.Errorf("web: %+v", p)
	}
	if p := find("static-" + nodeName); p.KubeletRank != 0 {
		t.Errorf("static: %+v, want no place in kubelet's order", p)
	}
	s, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{string(best), string(inventory.FromAPI), eviction.SourceAllocated} {
		if count(s.Engine.Sources, func(s eviction.SourceNow) bool { return s.Name == name && s.OK }) != 1 {
			t.Errorf("source %s is not there: %+v", name, s.Engine.Sources)
		}
	}
}
