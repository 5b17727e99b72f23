package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/internal/lab/labtest"
)

const mi = 1 << 20

// node is a private containerd and what is needed to put cri-evictd in front of
// it.
type node struct {
	t        *testing.T
	dir      string
	ctd      *lab.Containerd
	runtime  string // the runtime's socket
	memTotal int64
	direct   runtimeapi.RuntimeServiceClient
}

// newNode starts a containerd of this version; everything goes at the end of
// the test, and nothing may be left.
func newNode(t *testing.T, v lab.Version) *node {
	t.Helper()
	return newNodeOn(t, v, nil)
}

// newNodeOn is newNode with containerd's root prepared by root (lab.ContainerdOptions).
func newNodeOn(t *testing.T, v lab.Version, root func(dir string) error) *node {
	t.Helper()
	needRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a cold cache builds containerd
	defer cancel()
	tools, err := lab.Ensure(ctx, testWriter{t}, v)
	if err != nil {
		t.Fatal(err)
	}
	dir := labtest.Scratch(t)
	ctd := labtest.Containerd(ctx, t, lab.ContainerdOptions{
		Tools: tools, Version: v, Dir: dir, SystemdCgroup: here(t).systemd, Root: root, Log: testWriter{t},
		ReadyTimeout: time.Minute * here(t).slowness,
	})
	n := &node{t: t, dir: dir, ctd: ctd, runtime: ctd.Socket}
	n.memTotal = int64(n.meminfo().MemTotal)
	n.direct = runtimeapi.NewRuntimeServiceClient(n.dial(ctd.Socket))
	return n
}

func (n *node) dial(socket string) *grpc.ClientConn {
	n.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64*mi)))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (n *node) meminfo() cgroupfs.Meminfo {
	n.t.Helper()
	var m cgroupfs.Meminfo
	b, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		err = cgroupfs.ParseMeminfo(b, &m)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

// remove ends a pod as kubelet would.
func (n *node) remove(r lab.Running) {
	n.t.Helper()
	if err := lab.RemovePod(patience(n.t), n.direct, r.SandboxID); err != nil {
		n.t.Fatal(err)
	}
}

// again is the spec of the pod's next start: a new sandbox and new containers.
func again(spec lab.PodSpec, args ...string) lab.PodSpec {
	spec.Attempt++
	spec.Containers = append([]lab.ContainerSpec{}, spec.Containers...)
	for i := range spec.Containers {
		if len(args) > 0 {
			spec.Containers[i].Args = args
		}
	}
	return spec
}

// pod makes a spec with kubelet's cgroup parent and oom_score_adj.
func (n *node) pod(name, qos string, request int64, args ...string) lab.PodSpec {
	uid := lab.NewUID()
	c := lab.ContainerSpec{Name: "main", Args: args, OOMScoreAdj: lab.OOMScoreAdj(qos, request, n.memTotal)}
	if qos == "Guaranteed" {
		c.MemoryLimit = request
	}
	return lab.PodSpec{
		Namespace: "default", Name: name, UID: uid, CgroupParent: n.parent(qos, uid), Containers: []lab.ContainerSpec{c},
	}
}

// parent is what kubelet gives a pod with the cgroup driver in use.
func (n *node) parent(qos, uid string) string {
	if here(n.t).systemd {
		return lab.QoSSlice(qos, uid)
	}
	return lab.QoSParent(qos, uid)
}

func (n *node) run(rt runtimeapi.RuntimeServiceClient, spec lab.PodSpec) lab.Running {
	n.t.Helper()
	r, err := lab.RunPod(patience(n.t), rt, spec)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *node) containerState(id string) runtimeapi.ContainerState {
	n.t.Helper()
	r, err := n.direct.ContainerStatus(patience(n.t), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		n.t.Fatalf("status of %s: %v", id, err)
	}
	return r.GetStatus().GetState()
}

func (n *node) mustRun(what, id string) {
	n.t.Helper()
	if s := n.containerState(id); s != runtimeapi.ContainerState_CONTAINER_RUNNING {
		n.t.Errorf("%s is %v, want running", what, s)
	}
}

// config writes a configuration with this hard threshold for memory and none for
// disks; more is appended to it.
func (n *node) config(hard string, more string) string {
	n.t.Helper()
	return n.defaults(fmt.Sprintf(`evictionHard:
  memory.available: %q
%sevictionPressureTransitionPeriod: 1s
%s`, hard, lab.DisksOff, more))
}

// defaults writes a configuration that only says where things are; more is
// appended to it.
func (n *node) defaults(more string) string {
	n.t.Helper()
	text := lab.Config(n.dir, n.runtime, more)
	path := filepath.Join(n.dir, "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// daemon is one running cri-evictd.
type daemon struct {
	n    *node
	cmd  *exec.Cmd
	done chan struct{}
	log  *lab.Output
	cri  runtimeapi.RuntimeServiceClient
	conn *grpc.ClientConn
}

// start runs the binary; bin is binary(t, tag).
func (n *node) start(bin string, env []string, args ...string) *daemon {
	n.t.Helper()
	d := &daemon{n: n, cmd: exec.Command(bin, args...), done: make(chan struct{}), log: &lab.Output{}}
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stderr = io.MultiWriter(d.log, testWriter{n.t})
	d.cmd.Stdout = d.cmd.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.done)
	}()
	n.t.Cleanup(d.stop)
	d.conn = n.dial(filepath.Join(n.dir, "cri.sock"))
	d.cri = runtimeapi.NewRuntimeServiceClient(d.conn)
	return d
}

// serve starts cri-evictd serve and waits until it has seen the runtime.
func (n *node) serve(hard, more string) *daemon {
	n.t.Helper()
	d := n.start(binary(n.t, ""), nil, "serve", "--config", n.config(hard, more))
	d.waitReady()
	return d
}

func (d *daemon) waitReady() {
	d.n.t.Helper()
	eventually(d.n.t, "cri-evictd ready", 60*time.Second, func() bool {
		s, err := d.admin().Status(d.n.t.Context())
		return err == nil && s.Engine.Inventory.Listed && s.Engine.Memory.Samples > 0 && s.Proxy.Reachable && s.Proxy.UpstreamState == "READY"
	})
}

func (d *daemon) admin() *admin.Client {
	return adminClient(d.n.t, filepath.Join(d.n.dir, "admin.sock"))
}

// kill9 ends the process as a crash would.
func (d *daemon) kill9() {
	_ = d.cmd.Process.Signal(syscall.SIGKILL)
	<-d.done
}

// stop ends the process cleanly; it must do so.
func (d *daemon) stop() {
	select {
	case <-d.done:
		return
	default:
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(60 * time.Second * here(d.n.t).slowness):
		d.n.t.Error("cri-evictd did not end within 60 s of SIGTERM")
		d.kill9()
	}
	if strings.Contains(d.log.String(), "DATA RACE") {
		d.n.t.Error("the race detector found something in cri-evictd; see the log")
	}
}

// answer asks the daemon until it answers: the client waits 2 s, which a machine at
// its end does not always hold.
func answer[T any](d *daemon, ask func(*admin.Client, context.Context) (T, error)) T {
	d.n.t.Helper()
	var got T
	var err error
	for end := time.Now().Add(30 * time.Second * here(d.n.t).slowness); ; {
		if got, err = ask(d.admin(), d.n.t.Context()); err == nil {
			return got
		}
		select {
		case <-d.done:
			d.n.t.Fatalf("cri-evictd has ended: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(end) {
			d.n.t.Fatal(err)
		}
	}
}

// holds returns the records of one pod.
func (d *daemon) holds(uid string) []admin.Hold {
	d.n.t.Helper()
	h := answer(d, (*admin.Client).Holds)
	var out []admin.Hold
	for _, r := range h.Holds {
		if r.Pod.UID == uid {
			out = append(out, r)
		}
	}
	return out
}

// waitKilled waits until the pod's kill was verified.
func (d *daemon) waitKilled(uid string) admin.Hold {
	d.n.t.Helper()
	var found admin.Hold
	eventually(d.n.t, "eviction of "+uid, 60*time.Second, func() bool {
		for _, h := range d.holds(uid) {
			if h.State == "killed" {
				found = h
				return true
			}
		}
		return false
	})
	return found
}

// evictions counts the pods that were evicted or are being.
func (d *daemon) evictions() map[string]int {
	d.n.t.Helper()
	h := answer(d, (*admin.Client).Holds)
	out := map[string]int{}
	for _, r := range h.Holds {
		out[r.Pod.Name]++
	}
	return out
}

// testWriter writes lines to the test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil { // after the end of the test Log panics
		w.t.Log(strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}

func jsonText(v any) string {
	b, _ := json.MarshalIndent(v, "", "  ")
	return string(b)
}
