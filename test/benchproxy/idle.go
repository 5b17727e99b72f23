package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// periodic is what an idle kubelet 1.37 calls, by period: relisting (PLEG),
// housekeeping, runtime state, node status, eviction summary, log rotation,
// images, container GC.
type periodic struct {
	every time.Duration
	calls []call
}

func listSandboxes(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewRuntimeServiceClient(cc).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	return err
}

func listAll(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewRuntimeServiceClient(cc).ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return err
}

func runtimeStatus(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewRuntimeServiceClient(cc).Status(ctx, &runtimeapi.StatusRequest{})
	return err
}

func containerStats(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewRuntimeServiceClient(cc).ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	return err
}

func imageFs(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewImageServiceClient(cc).ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	return err
}

func listImages(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewImageServiceClient(cc).ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return err
}

func kubeletCalls() []periodic {
	rotation := []call{listAll}
	for range idleContainers {
		rotation = append(rotation, oneStatus)
	}
	return []periodic{
		{time.Second, []call{listSandboxes, listAll}},
		{2 * time.Second, []call{listSandboxes, listAll}},
		{5 * time.Second, []call{runtimeStatus}},
		{10 * time.Second, []call{version}},
		{10 * time.Second, []call{imageFs, listAll, listSandboxes, containerStats}},
		{10 * time.Second, rotation},
		{30 * time.Second, []call{listImages}},
		{60 * time.Second, []call{listAll, listAll, listSandboxes}},
	}
}

// measureIdle replays the calls of an idle kubelet for d through every process
// in the middle, at the same time, and prints what they cost.
func measureIdle(ctx context.Context, w io.Writer, variants []*variant, d time.Duration) error {
	fmt.Fprintf(w, "Idle kubelet with %d pods and %d containers, %v\n", idlePods, idleContainers, d)
	fmt.Fprintf(w, "%-7s %7s %14s %12s %17s %15s\n", "way", "calls", "CPU, % of one", "CPU/call", "RssAnon at start", "largest, MiB")
	var wg sync.WaitGroup
	lines := make([]string, len(variants))
	errs := make([]error, len(variants))
	for i, v := range variants {
		if v.middle == nil || v.name == "typed" { // which knows three methods only
			continue
		}
		wg.Go(func() { lines[i], errs[i] = v.idle(ctx, d) })
	}
	wg.Wait()
	for _, l := range lines {
		_, _ = io.WriteString(w, l)
	}
	return errors.Join(errs...)
}

func (v *variant) idle(ctx context.Context, d time.Duration) (string, error) {
	if err := v.connect(ctx, 2); err != nil { // one for the runtime, one for the images
		return "", err
	}
	rss, err := v.middle.rssAnon()
	if err != nil {
		return "", err
	}
	before, err := v.middle.cpu()
	if err != nil {
		return "", err
	}
	peak := v.middle.peak()
	ends, stop := context.WithTimeout(ctx, d)
	defer stop()
	var mu sync.Mutex
	calls := 0
	var failed error
	var wg sync.WaitGroup
	for i, p := range kubeletCalls() {
		wg.Go(func() {
			// Loops of kubelet do not start at the same instant.
			wait := time.NewTimer(time.Duration(i) * 137 * time.Millisecond)
			defer wait.Stop()
			for {
				select {
				case <-ends.Done():
					return
				case <-wait.C:
				}
				wait.Reset(p.every)
				for _, c := range p.calls {
					err := c(ctx, v.conns[i%2])
					mu.Lock()
					calls++
					if failed == nil {
						failed = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	largest := peak()
	after, err := v.middle.cpu()
	if err != nil || failed != nil {
		return "", errors.Join(err, failed)
	}
	cpu := after - before
	return fmt.Sprintf("%-7s %7d %14.2f %12s %17s %15s\n", v.name, calls,
		100*float64(cpu)/float64(d), short(cpu/time.Duration(calls)), mib(rss), mib(largest)), nil
}
