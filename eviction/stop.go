package eviction

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Runtime stops containers and sandboxes; stopping what does not exist is a
// success.
type Runtime interface {
	// StopContainer sends SIGTERM and, after timeout seconds, SIGKILL; 0 kills
	// at once.
	StopContainer(ctx context.Context, id string, timeout int64) error
	StopPodSandbox(ctx context.Context, id string) error
}

// stopTimeout bounds one call; a runtime that does not answer is asked again.
const stopTimeout = 10 * time.Second

// stopPod stops containers in parallel and then their sandboxes. containerd's
// own StopPodSandbox stops the containers one after another and gives up at the
// first that does not end, so it comes last.
func stopPod(ctx context.Context, rt Runtime, containers, sandboxes []string, grace int64) error {
	errs := make([]error, len(containers)+len(sandboxes))
	var wg sync.WaitGroup
	for i, id := range containers {
		wg.Go(func() {
			cctx, cancel := context.WithTimeout(ctx, stopTimeout+time.Duration(grace)*time.Second)
			defer cancel()
			if err := rt.StopContainer(cctx, id, grace); err != nil {
				errs[i] = fmt.Errorf("stopping container %s: %w", id, err)
			}
		})
	}
	wg.Wait()
	for i, id := range sandboxes {
		wg.Go(func() {
			cctx, cancel := context.WithTimeout(ctx, stopTimeout)
			defer cancel()
			if err := rt.StopPodSandbox(cctx, id); err != nil {
				errs[len(containers)+i] = fmt.Errorf("stopping sandbox %s: %w", id, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
