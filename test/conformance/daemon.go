package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// daemon is a running cri-evictd.
type daemon struct {
	Socket string // where it serves CRI
	events string // the proxy's own socket
	cmd    *exec.Cmd
	done   chan struct{}
}

// startDaemon starts `cri-evictd command` in front of containerd and waits until
// a call passes through. Its eviction threshold is never met.
func (r *rig) startDaemon(ctx context.Context, command string) error {
	d := &daemon{Socket: filepath.Join(r.dir, "cri.sock"), events: filepath.Join(r.dir, "run/proxy.sock"), done: make(chan struct{})}
	config := fmt.Sprintf(`apiVersion: cri-evictd.io/v1alpha1
kind: EvictionConfiguration
metricsBindAddress: ""
mode: enforce
listen: %[1]s/cri.sock
runtimeEndpoint: %[2]s
adminSocket: %[1]s/admin.sock
runDir: %[1]s/run
stateDir: %[1]s/evictd
kubeletRootDir: %[1]s/kubelet
evictionHard:
  memory.available: 1Mi
%[3]s`, r.dir, r.ctd.Socket, lab.DisksOff)
	path := filepath.Join(r.dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.out, "cri-evictd.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	d.cmd = exec.Command(r.programs.Binary, command, "--config", path)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = d.cmd.Wait() // that it ended is what matters
		close(d.done)
	}()
	r.daemon = d
	return d.await(ctx, log.Name())
}

func (d *daemon) await(ctx context.Context, log string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // only used here
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
		if err == nil {
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("cri-evictd ended, see %s", log)
		case <-ctx.Done():
			return fmt.Errorf("no answer through cri-evictd (%w), see %s", err, log)
		case <-tick.C:
		}
	}
}

// status asks the proxy what has passed through it.
func (d *daemon) status(ctx context.Context) (proxy.Status, error) {
	var s proxy.Status
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.events)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://proxy/v1/status", nil)
	if err != nil {
		return s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// stop ends it cleanly.
func (d *daemon) stop() error {
	select {
	case <-d.done:
		return errors.New("cri-evictd had ended by itself")
	default:
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may end just now
	select {
	case <-d.done:
		return nil
	case <-time.After(30 * time.Second):
	}
	_ = d.cmd.Process.Kill()
	<-d.done
	return errors.New("cri-evictd did not end within 30 s of SIGTERM")
}

// methods returns how many CRI methods were called and how many calls that were.
func methods(s proxy.Status) (names int, calls uint64) {
	seen := map[string]bool{}
	for _, c := range s.Calls {
		if strings.HasPrefix(strings.TrimPrefix(c.Method, "/"), "runtime.v1.") {
			seen[c.Method] = true
			calls += c.Count
		}
	}
	return len(seen), calls
}
