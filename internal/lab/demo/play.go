package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const mi = 1 << 20

// Sizes in bytes. The threshold lies margin below what is available when the
// demo begins, so that the pressure is real and the shortage is not.
const (
	margin  = 1536 * mi
	batch   = 1024 * mi // what the innocent batch job uses, inside its request
	hogSize = 1536 * mi
	hogRate = "300Mi"
	// needed is checked before anything is started: the hog stays below a
	// quarter of what is available.
	needed = 4 * hogSize
)

// demo is one performance.
type demo struct {
	out     io.Writer
	binary  string
	version lab.Version
	systemd bool // the systemd cgroup driver

	dir       string
	removeDir func()
	ctd       *lab.Containerd
	daemon    *process
	conn      *grpc.ClientConn
	direct    *grpc.ClientConn
	threshold uint64
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) act(title string) { fmt.Fprintf(d.out, "\n== %s\n", title) }

// play runs the whole story.
func (d *demo) play(ctx context.Context) error {
	if err := d.announce(); err != nil {
		return err
	}
	if err := d.set(ctx); err != nil {
		return err
	}
	rt := runtimeapi.NewRuntimeServiceClient(d.conn)

	d.act("Three pods, started through cri-evictd as kubelet would")
	web, err := d.pod(ctx, rt, "web", "Burstable", 64*mi, "beat")
	if err != nil {
		return err
	}
	job, err := d.pod(ctx, rt, "batch-job", "Guaranteed", 2*batch, "alloc", "--total", "1024Mi", "--rate", "1000Mi")
	if err != nil {
		return err
	}
	if err := d.waitForBatch(ctx); err != nil {
		return err
	}
	hog, err := d.pod(ctx, rt, "hog", "Burstable", 64*mi, "alloc", "--total", "1536Mi", "--rate", hogRate)
	if err != nil {
		return err
	}
	d.say("  web        Burstable, well-behaved, a heartbeat a second")
	d.say("  batch-job  Guaranteed, uses 1Gi of the 2Gi it asked for")
	d.say("  hog        Burstable, asked for 64Mi, takes %s a second", hogRate)

	d.act("Memory goes down")
	decision, err := d.watch(ctx, hog)
	if err != nil {
		return err
	}
	d.act("The decision")
	d.explain(decision)
	if err := d.neighbours(ctx, web, job); err != nil {
		return err
	}
	if err := d.restart(ctx, rt, hog); err != nil {
		return err
	}
	return d.release(ctx, rt, job, hog)
}

// announce says what is needed before anything is done.
func (d *demo) announce() error {
	d.say("This demo runs a private containerd %s with three small pods and cri-evictd in front.", d.version)
	d.say("It needs: root, Debian (apt-get), %d MiB of available memory, about 300 MB of disk.", needed/mi)
	d.say("It installs nothing, touches no other containerd, and leaves only a cache of downloaded programs.")
	if os.Geteuid() != 0 {
		return errors.New("it must be run as root: containers need it")
	}
	if _, err := os.Stat(d.binary); err != nil {
		return fmt.Errorf("%w: run `make demo`, which builds it", err)
	}
	m, err := meminfo()
	if err != nil {
		return err
	}
	if m.MemAvailable < needed {
		return fmt.Errorf("only %d MiB of memory are available, %d are needed", m.MemAvailable/mi, needed/mi)
	}
	return nil
}

// watch prints memory until the hog is dead and returns the decision.
func (d *demo) watch(ctx context.Context, hog pod) (*eviction.Report, error) {
	d.say("  threshold: memory.available < %s", text(d.threshold))
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	end := time.After(2 * time.Minute)
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end:
			return nil, errors.New("no eviction within two minutes")
		case <-tick.C:
		}
		x, err := d.admin().Explain(ctx, "")
		if err != nil {
			return nil, err
		}
		d.bar(&x)
		for i := range x.Decisions {
			r := &x.Decisions[i]
			if r.Victim != nil && r.Victim.UID == hog.spec.UID && r.Kill != nil {
				return r, nil
			}
		}
	}
}

func (d *demo) bar(x *admin.Explanation) {
	hog := "gone"
	for _, c := range x.Candidates {
		if c.Name == "hog" && c.UsageKnown && c.Barred == "" {
			hog = text(c.Usage)
		}
	}
	above := int64(x.Memory.Available) - int64(d.threshold)
	const step = 32 * mi
	bar := ""
	for n := int64(0); n < above && len(bar) < 48; n += step {
		bar += "#"
	}
	d.say("  available %8s  %6d MiB above the threshold |%-48s|  hog %s", text(x.Memory.Available), above/mi, bar, hog)
}

// explain prints what was decided and why.
func (d *demo) explain(r *eviction.Report) {
	d.say("  %s", r.Summary)
	d.say("  readings: kernel %s, kubelet's formula %s; both have to be below the threshold", text(r.Memory.AvailableKernel), text(r.Memory.AvailableKubelet))
	d.say("  rank  pod                 usage     request   over   priority")
	for _, c := range r.Candidates {
		mark := " "
		if r.Victim != nil && c.Ref == *r.Victim {
			mark = ">"
		}
		d.say("  %s %d   %-18s  %8s  %8s  %-5v  %d", mark, c.Rank, c.Ref, text(c.Usage), text(uint64(max(c.Request.Value, 0))), c.OverRequest, c.Priority.Value)
	}
	d.say("  hold visible to the proxy %v after the sample, SIGKILL sent after %v, cgroup empty and memory back after %v",
		r.Kill.Intent.Round(10*time.Microsecond), r.Kill.Sent.Round(10*time.Microsecond), r.Kill.Settled.Round(time.Millisecond))
	d.say("  memory was %s past the threshold when the decision fell; kubelet's own loop looks every 10 s",
		text(r.Memory.Threshold-min(r.Memory.Threshold, r.Memory.Available)))
}

// neighbours shows that the others live.
func (d *demo) neighbours(ctx context.Context, pods ...pod) error {
	d.act("The neighbours")
	rt := runtimeapi.NewRuntimeServiceClient(d.direct)
	for _, p := range pods {
		r, err := rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.running.ContainerIDs[0]})
		if err != nil {
			return err
		}
		d.say("  %-10s %s", p.spec.Name, r.GetStatus().GetState())
		if r.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			return fmt.Errorf("%s should be running", p.spec.Name)
		}
	}
	return nil
}

// restart plays kubelet, which starts the hog again at once.
func (d *demo) restart(ctx context.Context, rt runtimeapi.RuntimeServiceClient, hog pod) error {
	d.act("kubelet tries to start the hog again")
	_, err := lab.RunPod(ctx, rt, again(hog.spec))
	if status.Code(err) != codes.ResourceExhausted {
		return fmt.Errorf("the hog was not refused: %v", err)
	}
	d.say("  RunPodSandbox: %s: %s", status.Code(err), grpcText(err))
	s, err := d.ended(ctx, rt, hog.running.ContainerIDs[0])
	if err != nil {
		return err
	}
	d.say("  ContainerStatus: %s, exit code %d, reason %s", s.GetState(), s.GetExitCode(), s.GetReason())
	d.say("    %s", s.GetMessage())
	other, err := d.pod(ctx, rt, "hog", "Burstable", 64*mi, "beat")
	if err != nil {
		return fmt.Errorf("a new pod of the same name: %w", err)
	}
	d.say("  a new pod of the same name, UID %s, starts: a hold is for one pod, not for a name", other.spec.UID)
	return nil
}

// ended waits until the runtime has noticed the container's end.
func (d *demo) ended(ctx context.Context, rt runtimeapi.RuntimeServiceClient, id string) (*runtimeapi.ContainerStatus, error) {
	for end := time.Now().Add(30 * time.Second); ; {
		r, err := rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil || r.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED || time.Now().After(end) {
			return r.GetStatus(), err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// release lets the batch job end and waits for the hold to go.
func (d *demo) release(ctx context.Context, rt runtimeapi.RuntimeServiceClient, job, hog pod) error {
	d.act("The batch job ends; there is room again")
	if err := lab.RemovePod(ctx, rt, job.running.SandboxID); err != nil {
		return err
	}
	d.say("  the hold ends when the pressure has been over for the transition period (2s) and a back-off (10s), and the hog fits in again")
	begun := time.Now()
	for {
		_, err := lab.RunPod(ctx, rt, again(hog.spec, "beat"))
		if err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted || time.Since(begun) > 2*time.Minute {
			return fmt.Errorf("the hog did not start again: %w", err)
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	d.say("  released and started again after %.0f s", time.Since(begun).Seconds())
	h, err := d.admin().Holds(ctx)
	if err != nil {
		return err
	}
	for _, r := range h.Holds {
		d.say("  hold #%d of %s: %s (%s)", r.ID, r.Pod, r.State, r.ReleaseReason)
	}
	return nil
}

// grpcText is the runtime's or proxy's own text, without what was wrapped
// around it on the way.
func grpcText(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return err.Error()
}

func meminfo() (cgroupfs.Meminfo, error) {
	var m cgroupfs.Meminfo
	b, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		err = cgroupfs.ParseMeminfo(b, &m)
	}
	return m, err
}

func text(n uint64) string { return fmt.Sprintf("%dMi", n/mi) }
