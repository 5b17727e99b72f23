package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/test/vm/survivor/told"
)

const (
	program  = "/cri-evictd"
	hierarch = "/sys/fs/cgroup"

	mib = 1 << 20
	// The threshold lies reserve below what is available before anything of ours
	// runs; a pod of hogSize is evicted.
	reserve, hogSize = 250 * mib, 420 * mib
)

// node is a fake runtime with proxy and evictor in front of it.
type node struct {
	runtime *fakecri.Server
	client  *cri.Client // through the proxy
	daemons []*exec.Cmd
	last    uint64 // the greatest decision from before this boot
}

func newNode() (*node, error) {
	rt := filepath.Join(dir, "rt")
	if err := os.MkdirAll(rt, 0o711); err != nil {
		return nil, err
	}
	n := &node{}
	var err error
	if n.runtime, err = fakecri.Start(fakecri.Options{Dir: rt}); err != nil {
		return nil, err
	}
	available, err := memAvailable()
	if err != nil {
		return nil, err
	}
	config := lab.ConfigAt(dir, stateDir, filepath.Join(dir, "kubelet"), n.runtime.Endpoint().String(), fmt.Sprintf(`memoryAvailableFrom: kernel
evictionPressureTransitionPeriod: 1s
handOverTimeout: 2s
killBudget: 1000000
evictionHard:
  memory.available: %dMi
%s`, (available-reserve)/mib, lab.DisksOff))
	return n, os.WriteFile(n.path("config.yaml"), []byte(config), 0o600)
}

func (n *node) path(name string) string { return filepath.Join(dir, name) }

func memAvailable() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var m cgroupfs.Meminfo
	if err := cgroupfs.ParseMeminfo(b, &m); err != nil {
		return 0, err
	}
	return int64(m.MemAvailable), nil
}

// start starts proxy and evictor and waits until both work.
func (n *node) start(ctx context.Context) error {
	for _, half := range []string{"proxy", "evict"} {
		log, err := os.Create(n.path(half + ".log"))
		if err != nil {
			return err
		}
		cmd := exec.Command(program, half, "--config", n.path("config.yaml"))
		cmd.Stdout, cmd.Stderr = log, log
		if err := errors.Join(cmd.Start(), log.Close()); err != nil {
			return err
		}
		go func() { _ = cmd.Wait() }() // it hands over and ends
		n.daemons = append(n.daemons, cmd)
	}
	begun := time.Now()
	err := exec.CommandContext(ctx, program, "version").Run()
	told.Say(told.Version, time.Since(begun))
	if err != nil {
		return err
	}
	if n.client, err = cri.Dial(cri.Endpoint{Path: n.path("cri.sock")}); err != nil {
		return err
	}
	return eventually(ctx, "proxy and evictor work", func(ctx context.Context) error {
		st, err := n.admin().Status(ctx)
		if err == nil && (!st.Engine.Inventory.Listed || !st.Proxy.Reachable || st.Engine.Memory.Samples == 0) {
			err = fmt.Errorf("inventory %+v, proxy %+v", st.Engine.Inventory, st.Proxy)
		}
		return err
	})
}

func (n *node) admin() *admin.Client {
	return admin.NewClient(cri.Endpoint{Path: n.path("admin.sock")})
}

// logs is what the daemons said last.
func (n *node) logs() error {
	var errs []error
	for _, half := range []string{"proxy", "evict"} {
		b, err := os.ReadFile(n.path(half + ".log"))
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		errs = append(errs, err, fmt.Errorf("%s: %s", half, strings.Join(lines[max(0, len(lines)-15):], "\n")))
	}
	return errors.Join(errs...)
}

func eventually(ctx context.Context, what string, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("never: %s: %w", what, err)
		}
	}
}

// pod is one that runs.
type pod struct {
	lab.Running
	uid, cgroup string
	process     *exec.Cmd
	ended       chan struct{}
}

// run starts a pod through the proxy, as kubelet does, with a process that takes
// this much memory.
func (n *node) run(ctx context.Context, qos, uid string, attempt uint32, size int) (*pod, error) {
	parent := lab.QoSParent(qos, uid)
	spec := lab.PodSpec{
		Namespace: "default", Name: "pod-" + uid[:8], UID: uid, Attempt: attempt, CgroupParent: parent,
		Containers: []lab.ContainerSpec{{Name: "main", OOMScoreAdj: lab.OOMScoreAdj(qos, 0, 1)}},
	}
	if qos == "Guaranteed" {
		spec.Containers[0].MemoryLimit = int64(4 * size)
	}
	p := &pod{uid: uid, cgroup: hierarch + parent, ended: make(chan struct{})}
	err := eventually(ctx, "the pod may start", func(ctx context.Context) (err error) {
		// The pressure of the last eviction may still be the node's condition, and
		// a kill may cut a call.
		if p.Running, err = lab.RunPod(ctx, n.client.Runtime(), spec); err != nil && p.SandboxID != "" {
			err = errors.Join(err, lab.RemovePod(ctx, n.client.Runtime(), p.SandboxID))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if p.cgroup, err = makeCgroup(filepath.Join(parent, p.ContainerIDs[0])); err != nil {
		return nil, err
	}
	folder, err := os.Open(p.cgroup)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }() // read only
	p.process = exec.Command("/survivor", "take", fmt.Sprint(size))
	p.process.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(folder.Fd())}
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.process.Wait() // killed, or it is why the test fails
		close(p.ended)
	}()
	return p, nil
}

// makeCgroup makes a cgroup with all above it, and returns its folder.
func makeCgroup(path string) (string, error) {
	at := hierarch
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+memory +pids"), 0); err != nil {
			return "", err
		}
		at = filepath.Join(at, part)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return "", err
		}
	}
	return at, nil
}

// remove is what kubelet does with a pod that has ended.
func (n *node) remove(ctx context.Context, p *pod) error {
	err := eventually(ctx, "the pod can be removed", func(ctx context.Context) error {
		return lab.RemovePod(ctx, n.client.Runtime(), p.SandboxID)
	})
	_ = os.Remove(p.cgroup)
	_ = os.Remove(filepath.Dir(p.cgroup)) // what is left goes with the machine
	return err
}

// dead is a pod from before the boot, as a runtime lists it afterwards.
func (n *node) dead(ctx context.Context, uid string) error {
	direct, err := n.runtime.Client()
	if err != nil {
		return err
	}
	defer func() { _ = direct.Close() }() // only used here
	spec := lab.PodSpec{Namespace: "default", Name: "pod-" + uid[:8], UID: uid, CgroupParent: lab.QoSParent("BestEffort", uid),
		Containers: []lab.ContainerSpec{{Name: "main"}}}
	r, err := lab.RunPod(ctx, direct.Runtime(), spec)
	if err != nil {
		return err
	}
	_, err = direct.Runtime().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.SandboxID})
	return err
}
