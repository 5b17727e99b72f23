package units

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const (
	runtimeSocket = "/run/containerd/containerd.sock"
	manifests     = "/etc/kubernetes/manifests"
	hostname      = "evictd-vm" // of the machine's image
	nodePrograms  = "/usr/local/bin"
)

// node is the machine as an ordinary node: containerd.service and kubelet.service
// at their usual places, the systemd cgroup driver, static pods.
type node struct {
	*machine
	images  runtimeapi.ImageServiceClient // containerd's own, past everything
	kubelet *lab.Kubelet                  // its API alone: systemd runs it
	source  string                        // what `make install` is run in
	tools   string                        // in front of PATH there
}

// nodeFiles are what an installer of Kubernetes writes. kubeadm has written the
// runtime's socket to each of the three places, in one version or another.
func nodeFiles() map[string]string {
	const kubeletDir = "/var/lib/kubelet/"
	return map[string]string{
		unitDir + "/containerd.service": `[Unit]
Description=containerd
[Service]
Type=notify
ExecStart=/usr/local/bin/containerd
Delegate=yes
KillMode=process
Restart=always
LimitNOFILE=infinity
TasksMax=infinity
OOMScoreAdjust=-999
`,
		unitDir + "/kubelet.service": `[Unit]
Description=kubelet
StartLimitIntervalSec=0
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/local/bin/kubelet --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=10
`,
		"/etc/containerd/config.toml": `version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "` + lab.PauseImage + `"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = true
`,
		kubeletDir + "config.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
authentication:
  anonymous:
    enabled: true
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
failSwapOn: false
makeIPTablesUtilChains: false
registerNode: false
staticPodPath: ` + manifests + "\n",
		kubeletDir + "instance-config.yaml": `containerRuntimeEndpoint: "unix:///var/run/containerd/containerd.sock"` + "\n",
		kubeletDir + "kubeadm-flags.env":    `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock"` + "\n",
	}
}

func newNode(t *testing.T) *node {
	t.Helper()
	if _, err := os.Stat(marker); err != nil {
		t.Skip("needs the machine of `make test-vm`: it makes a node of it")
	}
	n := &node{machine: &machine{t: t, slow: slowness(t)}, kubelet: &lab.Kubelet{URL: "https://127.0.0.1:10250"}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tools, err := lab.Ensure(ctx, os.Stderr, lab.Current)
	must(t, err)
	kubelet, err := lab.EnsureKubelet(ctx, os.Stderr, lab.Kubernetes)
	must(t, err)
	dir, remove, err := lab.NewScratch()
	must(t, err)
	t.Cleanup(remove)
	for _, program := range []string{tools.Containerd, tools.Shim, tools.Ctr, tools.Crictl, kubelet} {
		link := filepath.Join(nodePrograms, filepath.Base(program))
		must(t, os.Symlink(program, link))
		t.Cleanup(func() { must(t, os.Remove(link)) })
	}
	for path, text := range nodeFiles() {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	must(t, os.MkdirAll(manifests, 0o755))
	n.run("systemctl", "daemon-reload")
	conn := n.dial(runtimeSocket)
	t.Cleanup(n.stop)
	n.run("systemctl", "start", "containerd.service")
	n.runtime, n.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	n.importImages(dir, tools)
	n.prepareSource(dir)
	return n
}

// stop ends what runs, for the tests that come after this one.
func (n *node) stop() {
	if n.t.Failed() {
		out, _ := n.try("journalctl", "-b", "--no-pager", "-o", "short-precise", "-n", "80", "-u", "kubelet", "-u", "containerd", "-u", "cri-evictd*")
		n.t.Log(out)
	}
	ctx := context.Background()
	_, _ = n.try("systemctl", "stop", "kubelet.service")
	list, err := n.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		n.t.Errorf("the pods stay: %v", err)
	}
	for _, s := range list.GetItems() {
		_, err := n.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.Id})
		if err == nil {
			_, err = n.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		}
		if err != nil {
			n.t.Errorf("pod %s stays: %v", s.GetMetadata().GetName(), err)
		}
	}
	n.run("systemctl", "stop", "containerd.service")
	must(n.t, os.RemoveAll(unitDir+"/kubelet.service"), os.RemoveAll(unitDir+"/containerd.service"))
	n.run("systemctl", "daemon-reload")
}

// importImages gives containerd the images, before kubelet asks for them.
func (n *node) importImages(dir string, tools lab.Tools) {
	t := n.t
	t.Helper()
	archive := filepath.Join(dir, "images.tar")
	workload, err := os.ReadFile(tools.Workload)
	must(t, err)
	f, err := os.Create(archive)
	must(t, err)
	must(t, lab.WriteImages(f, workload), f.Close())
	n.run("ctr", "--namespace", "k8s.io", "images", "import", archive)
	for _, name := range []string{lab.WorkloadImage, lab.PauseImage} {
		n.eventually(name+" is there", 10*time.Second*n.slow, func() bool {
			got, err := n.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
			return err == nil && got.Image != nil
		})
	}
}

// prepareSource makes the folder for `make install`. The machine has no Go: what
// stands in for it hands out the program that was built on the host.
func (n *node) prepareSource(dir string) {
	t := n.t
	t.Helper()
	n.source, n.tools = filepath.Join(dir, "source"), filepath.Join(dir, "tools")
	must(t, os.Mkdir(n.source, 0o755), os.Mkdir(n.tools, 0o755))
	n.run("cp", "-r", "../../Makefile", "../../systemd", n.source)
	script := fmt.Sprintf(`#!/bin/sh
[ "$1" = build ] || exit 64
while [ "$1" != -o ]; do shift; done
install -D %s/cri-evictd "$2"
`, os.Getenv("CRI_EVICTD_E2E_BINARIES"))
	must(t, os.WriteFile(filepath.Join(n.tools, "go"), []byte(script), 0o755))
}

// shell runs commands that a document has, one after the other until one fails.
func (n *node) shell(commands string) (stdout, both string, err error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Minute*n.slow)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-e", "-c", commands)
	cmd.Dir = n.source
	cmd.Env = append(os.Environ(), "PATH="+n.tools+":"+os.Getenv("PATH"))
	var out, all strings.Builder
	cmd.Stdout = writers{&out, &all}
	cmd.Stderr = writers{&all}
	err = cmd.Run()
	return out.String(), all.String(), err
}

// writers get the same.
type writers []*strings.Builder

func (w writers) Write(b []byte) (int, error) {
	for _, to := range w {
		to.Write(b)
	}
	return len(b), nil
}

// addPod makes a static pod.
func (n *node) addPod(name, resources string) {
	n.t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  hostNetwork: true
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, args: [beat], resources: {%s}}
`, name, lab.WorkloadImage, resources)
	part := filepath.Join(manifests, "."+name) // kubelet leaves these alone
	must(n.t, os.WriteFile(part, []byte(text), 0o644), os.Rename(part, filepath.Join(manifests, name+".yaml")))
}

// podNow is a pod as kubelet says it is.
type podNow struct {
	UID, Container string
	Restarts       int32
}

// pods are those that kubelet says run and are ready, by name.
func (n *node) pods() map[string]podNow {
	b, err := n.kubelet.Get(n.t.Context(), "/pods")
	if err != nil {
		return nil // it is starting
	}
	var list v1.PodList
	must(n.t, json.Unmarshal(b, &list))
	pods := map[string]podNow{}
	for _, p := range list.Items {
		s := p.Status.ContainerStatuses
		if p.Status.Phase == v1.PodRunning && len(s) == 1 && s[0].Ready {
			_, id, _ := strings.Cut(s[0].ContainerID, "://")
			pods[p.Name] = podNow{UID: string(p.UID), Container: id, Restarts: s[0].RestartCount}
		}
	}
	return pods
}

// containers are what containerd has of these pods, ended ones too, each with all
// that would change if it were made or started again.
func (n *node) containers(pods map[string]podNow) []string {
	n.t.Helper()
	list, err := n.runtime.ListContainers(n.t.Context(), &runtimeapi.ListContainersRequest{})
	must(n.t, err)
	var out []string
	for _, c := range list.Containers {
		pod := c.Labels["io.kubernetes.pod.name"]
		if _, ok := pods[pod]; ok {
			out = append(out, fmt.Sprintf("%s: container %s in %s, attempt %d, made %d, %s", pod, c.Id, c.PodSandboxId, c.GetMetadata().GetAttempt(), c.CreatedAt, c.State))
		}
	}
	slices.Sort(out)
	return out
}

// idsOf returns the ids of a pod with one container.
func (n *node) idsOf(pod string) (sandbox, container string) {
	n.t.Helper()
	list, err := n.runtime.ListContainers(n.t.Context(), &runtimeapi.ListContainersRequest{})
	must(n.t, err)
	for _, c := range list.Containers {
		if c.Labels["io.kubernetes.pod.name"] == pod {
			return c.PodSandboxId, c.Id
		}
	}
	n.t.Fatalf("no container of %s", pod)
	return "", ""
}

// traces are all files, units and cgroups that could be cri-evictd's.
func (n *node) traces() []string {
	n.t.Helper()
	out, err := n.try("find", "/", "/run", "/tmp", "/sys/fs/cgroup", "-xdev", "-ignore_readdir_race",
		"(", "-path", filepath.Dir(n.source), "-o", "-path", "/var/lib/containerd", ")", "-prune", "-o",
		"(", "-name", "*cri-evictd*", "-o", "-name", "cri.slice*", "-o", "-name", "proxy-stopped", "-o", "-name", "bypassed", ")", "-print")
	if err != nil {
		n.t.Fatalf("find: %v\n%s", err, out)
	}
	units := n.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "cri-evictd*", "cri.slice")
	all := strings.Split(out+"\n"+units, "\n")
	slices.Sort(all)
	return slices.Compact(all)
}
