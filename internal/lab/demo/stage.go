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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// set builds the stage: containerd, the configuration, cri-evictd in front.
func (d *demo) set(ctx context.Context) error {
	d.act("A private containerd")
	tools, err := lab.EnsureRuntime(ctx, d.out, d.version)
	if err != nil {
		return err
	}
	if d.dir, d.removeDir, err = lab.NewScratch(); err != nil {
		return err
	}
	d.ctd, err = lab.StartContainerd(ctx, lab.ContainerdOptions{Tools: tools, Version: d.version, Dir: d.dir, SystemdCgroup: d.systemd, Log: d.out})
	if err != nil {
		return err
	}
	d.act("cri-evictd in front of it")
	m, err := meminfo()
	if err != nil {
		return err
	}
	d.threshold = max(m.KernelAvailable(), m.KubeletAvailable()) - margin
	config := fmt.Sprintf(`apiVersion: cri-evictd.io/v1alpha1
kind: EvictionConfiguration
metricsBindAddress: ""
listen: unix://%[1]s/cri.sock
runtimeEndpoint: unix://%[2]s
adminSocket: %[1]s/admin.sock
runDir: %[1]s/run
stateDir: %[1]s/state
evictionHard:
  memory.available: "%[3]d"
%[4]sevictionPressureTransitionPeriod: 2s
`, d.dir, d.ctd.Socket, d.threshold, lab.DisksOff)
	path := filepath.Join(d.dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	d.say("%s", indent(config))
	if d.daemon, err = start(filepath.Join(d.dir, "cri-evictd.log"), d.binary, "serve", "--config", path); err != nil {
		return err
	}
	if d.conn, err = dial(filepath.Join(d.dir, "cri.sock")); err != nil {
		return err
	}
	if d.direct, err = dial(d.ctd.Socket); err != nil {
		return err
	}
	return d.waitReady(ctx)
}

func (d *demo) admin() *admin.Client {
	return admin.NewClient(cri.Endpoint{Path: filepath.Join(d.dir, "admin.sock")})
}

func (d *demo) waitReady(ctx context.Context) error {
	for end := time.Now().Add(30 * time.Second); ; {
		s, err := d.admin().Status(ctx)
		if err == nil && s.Engine.Inventory.Listed && s.Engine.Memory.Samples > 0 && s.Proxy.UpstreamState == "READY" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("cri-evictd is not ready: %v; its log:\n%s", err, d.daemon.tail())
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// pod is one pod of the play.
type pod struct {
	spec    lab.PodSpec
	running lab.Running
}

func (d *demo) pod(ctx context.Context, rt runtimeapi.RuntimeServiceClient, name, qos string, request int64, args ...string) (pod, error) {
	m, err := meminfo()
	if err != nil {
		return pod{}, err
	}
	uid := lab.NewUID()
	c := lab.ContainerSpec{Name: "main", Args: args, OOMScoreAdj: lab.OOMScoreAdj(qos, request, int64(m.MemTotal))}
	if qos == "Guaranteed" {
		c.MemoryLimit = request
	}
	p := pod{spec: lab.PodSpec{
		Namespace: "default", Name: name, UID: uid, CgroupParent: lab.QoSParent(qos, uid), Containers: []lab.ContainerSpec{c},
	}}
	if d.systemd {
		p.spec.CgroupParent = lab.QoSSlice(qos, uid)
	}
	p.running, err = lab.RunPod(ctx, rt, p.spec)
	return p, err
}

// again is the spec of the next attempt.
func again(s lab.PodSpec, args ...string) lab.PodSpec {
	s.Attempt++
	s.Containers = append([]lab.ContainerSpec{}, s.Containers...)
	if len(args) > 0 {
		s.Containers[0].Args = args
	}
	return s
}

// waitForBatch waits until the batch job has what it wants.
func (d *demo) waitForBatch(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		x, err := d.admin().Explain(ctx, "default/batch-job")
		if err == nil && len(x.Candidates) > 0 && x.Candidates[0].Usage > batch*9/10 {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the batch job did not get its memory within a minute")
}

// cleanup takes the stage down and returns what could not be removed.
func (d *demo) cleanup() []string {
	var left []string
	note := func(err error) {
		if err != nil {
			left = append(left, err.Error())
		}
	}
	for _, c := range []*grpc.ClientConn{d.conn, d.direct} {
		if c != nil {
			note(c.Close())
		}
	}
	if d.daemon != nil {
		note(d.daemon.stop())
	}
	if d.ctd != nil {
		note(d.ctd.Cleanup())
		left = append(left, d.ctd.Leftovers()...)
	}
	if d.removeDir != nil {
		d.removeDir()
		if _, err := os.Stat(d.dir); err == nil {
			left = append(left, d.dir)
		}
	}
	return left
}

// process is cri-evictd, with its log in a file.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func start(log string, argv ...string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the child has its own
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	// Ctrl-C is ours to pass on, in the right order; our own end is its end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the exit is what matters here, not how
		close(p.done)
	}()
	return p, nil
}

func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return errors.New("cri-evictd did not end within 20 s of SIGTERM")
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}
