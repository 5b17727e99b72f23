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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
)

const (
	// trialFor is how long a proxy on trial has to do well.
	trialFor = 10 * time.Second
	// trialEvery is the time between two rounds of calls, trialCall bounds each.
	trialEvery = 500 * time.Millisecond
	trialCall  = 5 * time.Second
	// trialSocket is where it listens, below runDir; only root gets there by name.
	trialSocket = "trial.sock"
)

// trial runs a proxy of this program, with the configuration in force, on a socket
// that nobody knows, and makes the calls that kubelet makes all the time.
func (a *app) trial(ctx context.Context, runDir string) error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	socket := cri.Endpoint{Path: filepath.Join(runDir, trialSocket)}
	args := []string{"proxy", "--trial", socket.Path}
	if a.configPath != "" {
		args = append(args, "--config", a.configPath)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = a.err, a.err
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel(fmt.Errorf("the proxy on trial ended: %v", cmd.Wait()))
	}()
	err = tryCalls(ctx, socket)
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-ended
	return err
}

// tryCalls makes rounds of calls for trialFor, after the first that worked.
func tryCalls(ctx context.Context, socket cri.Endpoint) error {
	client, err := cri.Dial(socket)
	if err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	defer func() { _ = client.Close() }() // only used here
	tick := time.NewTicker(trialEvery)
	defer tick.Stop()
	begun, patience := time.Time{}, time.Now().Add(trialCall)
	for begun.IsZero() || time.Since(begun) < trialFor {
		err := round(ctx, client)
		switch {
		case err == nil && begun.IsZero():
			begun = time.Now()
		case err != nil && (!begun.IsZero() || time.Now().After(patience)):
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// round is one of each of the calls.
func round(ctx context.Context, client *cri.Client) error {
	ctx, cancel := context.WithTimeout(ctx, trialCall)
	defer cancel()
	_, version := client.Version(ctx)
	_, status := client.Runtime().Status(ctx, &runtimeapi.StatusRequest{})
	_, sandboxes := client.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	_, containers := client.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	_, images := client.Image().ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return errors.Join(version, status, sandboxes, containers, images)
}
