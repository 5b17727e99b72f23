package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const (
	mi     = 1 << 20
	margin = 768 * mi
	// hogTotal leaves room for a slow reaction to show.
	hogTotal = 3072
)

// rig is one containerd; each round has a cri-evictd of its own, so that no
// hold and no back-off of the round before plays a part.
type rig struct {
	binary, dir string
	remove      func()
	ctd         *lab.Containerd
	fs          *cgroupfs.FS
	meminfo     *cgroupfs.MeminfoReader
}

func newRig(ctx context.Context, binary string, version lab.Version) (*rig, error) {
	tools, err := lab.EnsureRuntime(ctx, os.Stderr, version)
	if err != nil {
		return nil, err
	}
	r := &rig{binary: binary}
	if r.fs, err = cgroupfs.Open(cgroupfs.Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"}); err != nil {
		return nil, err
	}
	if r.meminfo, err = r.fs.OpenMeminfo(); err != nil {
		return nil, err
	}
	if r.dir, r.remove, err = lab.NewScratch(); err != nil {
		return nil, err
	}
	if r.ctd, err = lab.StartContainerd(ctx, lab.ContainerdOptions{Tools: tools, Version: version, Dir: r.dir}); err != nil {
		r.remove()
		return nil, err
	}
	return r, nil
}

func (r *rig) close() {
	if err := r.ctd.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, "reaction: cleanup:", err)
	}
	_ = r.meminfo.Close() // read only; nothing can be lost
	r.remove()
}

// result is one round.
type result struct {
	stopped, gone, sent time.Duration
	overshoot           int64 // MiB
}

func (r *rig) round(ctx context.Context, rate int) (result, error) {
	var m cgroupfs.Meminfo
	if err := r.meminfo.Read(&m); err != nil {
		return result{}, err
	}
	minFree, err := r.fs.MinFreeBytes()
	if err != nil {
		return result{}, err
	}
	threshold := reading(&m, minFree) - margin
	stop, err := r.serve(ctx, threshold)
	if err != nil {
		return result{}, err
	}
	defer stop()

	conn, err := grpc.NewClient("unix://"+filepath.Join(r.dir, "cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return result{}, err
	}
	defer func() { _ = conn.Close() }() // a client's end loses nothing
	uid := lab.NewUID()
	parent := lab.QoSParent("BestEffort", uid)
	pod, err := lab.RunPod(ctx, runtimeapi.NewRuntimeServiceClient(conn), lab.PodSpec{
		Namespace: "default", Name: "hog", UID: uid, CgroupParent: parent,
		Containers: []lab.ContainerSpec{{Name: "main", OOMScoreAdj: 1000, Args: []string{
			"alloc", "--total", fmt.Sprintf("%dMi", hogTotal), "--rate", fmt.Sprintf("%dMi", rate)}}},
	})
	if err != nil {
		return result{}, err
	}
	out, err := r.follow(ctx, parent, threshold, minFree)
	if err != nil {
		return result{}, err
	}
	if out.sent, err = r.sent(ctx, uid); err != nil {
		return result{}, err
	}
	return out, lab.RemovePod(ctx, runtimeapi.NewRuntimeServiceClient(conn), pod.SandboxID)
}

// reading is the number cri-evictd compares with the threshold.
func reading(m *cgroupfs.Meminfo, minFree uint64) uint64 {
	kubelet := m.KubeletAvailable()
	return max(m.KernelAvailable(), kubelet-min(kubelet, minFree))
}

// follow samples memory and the hog every millisecond. "Crossing" is the first
// sample below the threshold; growth has stopped at the last sample at which the
// hog was larger than ever; gone is when its cgroup has no process.
func (r *rig) follow(ctx context.Context, parent string, threshold, minFree uint64) (result, error) {
	pod, err := r.fs.OpenPod(parent)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = pod.Close() }() // read only; nothing can be lost
	var m cgroupfs.Meminfo
	var crossed, grown time.Time
	var largest, atCrossing uint64
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			return result{}, ctx.Err()
		}
		now := time.Now()
		if u, err := pod.Usage(); err == nil && u > largest {
			largest, grown = u, now
		}
		if crossed.IsZero() {
			if err := r.meminfo.Read(&m); err != nil {
				return result{}, err
			}
			if reading(&m, minFree) < threshold {
				crossed, atCrossing = now, largest
			}
			continue
		}
		if populated, err := pod.Populated(); err == nil && populated {
			continue
		}
		return result{stopped: grown.Sub(crossed), gone: now.Sub(crossed), overshoot: int64(largest-atCrossing) / mi}, nil
	}
	return result{}, errors.New("the hog was not stopped within a minute")
}

// sent asks the daemon how long it took from the sample to the kill.
func (r *rig) sent(ctx context.Context, uid string) (time.Duration, error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		x, err := r.admin().Explain(ctx, uid)
		if err != nil {
			continue
		}
		for _, d := range x.Decisions {
			if d.Victim != nil && d.Victim.UID == uid && d.Kill != nil && d.Outcome == eviction.OutcomeEvicted {
				return d.Kill.Sent, nil
			}
		}
	}
	return 0, errors.New("the daemon has no decision about the hog")
}

func (r *rig) admin() *admin.Client {
	return admin.NewClient(cri.Endpoint{Path: filepath.Join(r.dir, "admin.sock")})
}

// serve runs cri-evictd with this threshold until stop is called.
func (r *rig) serve(ctx context.Context, threshold uint64) (stop func(), err error) {
	config := lab.Config(r.dir, r.ctd.Socket, fmt.Sprintf("evictionHard:\n  memory.available: \"%d\"\n", threshold)+lab.DisksOff)
	path := filepath.Join(r.dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(r.binary, "serve", "--config", path, "--log-level", "error")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the exit is what matters here, not how
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s, err := r.admin().Status(ctx)
		if err == nil && s.Engine.Inventory.Listed && s.Engine.Memory.Samples > 0 && s.Proxy.UpstreamState == "READY" {
			return stop, nil
		}
	}
	stop()
	return nil, errors.New("cri-evictd did not get ready within 30 s")
}
