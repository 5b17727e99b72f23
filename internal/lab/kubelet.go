package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// kubeletReady bounds kubelet's start; 2 s on an idle machine.
const kubeletReady = 2 * time.Minute

// KubeletOptions says which kubelet to start and where.
type KubeletOptions struct {
	Binary string // EnsureKubelet
	// Dir is an existing folder of the caller, see NewScratch; everything goes
	// into its subfolder "kl". Its base name names the cgroup that holds this
	// kubelet's pods, so that two labs do not take each other's for orphans.
	Dir string
	// Runtime is the path of the CRI socket. kubelet ends sandboxes it did not
	// make: a containerd is for one kubelet and nothing else.
	Runtime string
	Node    string // the node's name
	// Kubeconfig of the node's identity; empty: stand-alone, static pods only.
	Kubeconfig string
	// Config are fields of KubeletConfiguration that replace the lab's.
	Config map[string]any
	// Args are further arguments, for what the configuration has no field for.
	Args []string
	// Verbosity is kubelet's -v; 0 is 2.
	Verbosity int
	Log       io.Writer // progress lines; nil: none
}

// Kubelet is a real kubelet with its own root, pod logs and cgroup. What it
// wants to change of the machine itself (sysctls, iptables) is off or, like
// kernel.panic, not checked.
type Kubelet struct {
	RootDir       string // --root-dir
	StaticPods    string // folder for manifests
	PodsAPISocket string
	ConfigFile    string
	LogFile       string
	// URL of its own API, plain HTTP is not served; see Get.
	URL string
	// Cgroup is the path of the cgroup above kubepods.
	Cgroup string

	opts   KubeletOptions
	dir    string
	fields map[string]any // of KubeletConfiguration
	prog   *program
}

// StartKubelet returns when kubelet says that it is healthy. ctx bounds the
// start only; it lives until Stop. Needs root and cgroup v1 or hybrid, or v2.
// After an error it does not run.
func StartKubelet(ctx context.Context, opts KubeletOptions) (*Kubelet, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("lab: kubelet needs root")
	}
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.Verbosity == 0 {
		opts.Verbosity = 2
	}
	dir, err := realPath(opts.Dir)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{opts: opts, dir: filepath.Join(dir, "kl"), Cgroup: "/" + filepath.Base(dir)}
	k.RootDir = filepath.Join(k.dir, "root")
	k.StaticPods = filepath.Join(k.dir, "manifests")
	k.PodsAPISocket = filepath.Join(k.RootDir, "pods-api", "pods-api.sock")
	k.ConfigFile = filepath.Join(k.dir, "config.json")
	k.LogFile = filepath.Join(k.dir, "kubelet.log")
	k.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	if err := mkdirs(k.RootDir, k.StaticPods, filepath.Join(k.dir, "logs")); err != nil {
		return nil, err
	}
	if err := makeCgroupRoot(filepath.Base(dir)); err != nil {
		return nil, err
	}
	k.fields = k.config(ports[0], ports[1])
	if err := k.Reconfigure(nil); err != nil {
		return nil, err
	}
	k.prog = &program{
		name: "kubelet", path: opts.Binary, dir: k.dir, logFile: k.LogFile, ready: kubeletReady,
		args: []string{
			"--config=" + k.ConfigFile, "--root-dir=" + k.RootDir, "--cert-dir=" + filepath.Join(k.dir, "pki"),
			"--hostname-override=" + opts.Node, "-v=" + strconv.Itoa(opts.Verbosity),
		},
	}
	if opts.Kubeconfig != "" {
		k.prog.args = append(k.prog.args, "--kubeconfig="+opts.Kubeconfig)
	}
	k.prog.args = append(k.prog.args, opts.Args...)
	begun := time.Now()
	if err := k.Start(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(opts.Log, "lab: kubelet is healthy after %.1f s: %s\n", time.Since(begun).Seconds(), k.RootDir)
	return k, nil
}

// config is kubelet's configuration: everything of its own, nothing on the
// network but loopback, no eviction.
func (k *Kubelet) config(port, healthz int) map[string]any {
	c := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "127.0.0.1", "port": port, "readOnlyPort": 0, "healthzBindAddress": "127.0.0.1", "healthzPort": healthz,
		"authentication":           map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"containerRuntimeEndpoint": "unix://" + k.opts.Runtime,
		"staticPodPath":            k.StaticPods, "podLogsDir": filepath.Join(k.dir, "logs"),
		"cgroupDriver": "cgroupfs", "cgroupRoot": k.Cgroup, "failCgroupV1": false, "failSwapOn": false,
		"oomScoreAdj": 0, "makeIPTablesUtilChains": false, "registerNode": k.opts.Kubeconfig != "",
		"evictionHard":                map[string]string{"memory.available": "0%"},
		"imageGCHighThresholdPercent": 100, "maxPods": 500,
	}
	maps.Copy(c, k.opts.Config)
	return c
}

// Reconfigure replaces fields of KubeletConfiguration, or removes those that are
// nil, from the next Start on.
func (k *Kubelet) Reconfigure(fields map[string]any) error {
	maps.Copy(k.fields, fields)
	maps.DeleteFunc(k.fields, func(_ string, v any) bool { return v == nil })
	config, err := json.MarshalIndent(k.fields, "", "  ")
	if err != nil {
		return fmt.Errorf("lab: kubelet's configuration: %w", err)
	}
	if err := os.WriteFile(k.ConfigFile, config, 0o600); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return nil
}

// Start starts kubelet again after Stop, with the same configuration.
func (k *Kubelet) Start(ctx context.Context) error {
	return k.prog.start(ctx, func(ctx context.Context) error {
		_, err := k.Get(ctx, "/healthz")
		return err
	})
}

// Stop ends kubelet with SIGTERM, and with SIGKILL after 10 s. Its pods run on;
// the containerd's Cleanup ends them, and its folder, mounts and cgroup go with
// the caller's scratch folder.
func (k *Kubelet) Stop() error { return k.prog.stop() }

// Kill ends kubelet with SIGKILL.
func (k *Kubelet) Kill() error {
	if err := k.prog.signal(unix.SIGKILL); err != nil {
		return err
	}
	<-k.prog.exited()
	return nil
}

// Pid returns kubelet's process id, 0 when it does not run.
func (k *Kubelet) Pid() int { return k.prog.pid() }

// Get asks kubelet's own API: "/pods", "/healthz", "/stats/summary".
func (k *Kubelet) Get(ctx context.Context, path string) ([]byte, error) {
	transport := insecureLoopback()
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("lab: kubelet: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("lab: kubelet: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("lab: kubelet %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("lab: kubelet %s: %s: %s", path, resp.Status, body)
	}
	return body, nil
}

// insecureLoopback talks to a kubelet on loopback whose certificate is its own.
func insecureLoopback() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}
