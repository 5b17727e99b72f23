package eviction

import (
	"context"
	"slices"
	"time"
)

const (
	// exitNotedWithin is how long the runtime may take to note the end of a container
	// whose processes are gone; about 0.1 s is usual, it writes to its disk for it.
	exitNotedWithin = 2 * time.Second
	exitNotedEvery  = 10 * time.Millisecond
)

// tellUnheld tells of a pod that was killed and that nobody keeps from starting
// again: at once, because kubelet sees the sandbox's end, which takes no time, while
// the containers still give their memory back.
func (e *Engine) tellUnheld(d *Decision) {
	if e.unheld() {
		e.tell(d)
	}
}

// unheld says that no proxy enforces holds.
func (e *Engine) unheld() bool { return e.enforced != nil && !e.enforced() }

// tellDead tells of a pod no process of which is left, as soon as the runtime has
// noted that. A kubelet that is told shortly before finds containers that seem to run
// after it has stopped them, tries again, and has lost the reason by then (Kubernetes
// 1.37, pkg/kubelet/kubelet.go SyncTerminatingPod; containerd deletes the task before
// it notes the exit).
func (e *Engine) tellDead(ctx context.Context, d *Decision) {
	if e.teller == nil {
		return
	}
	if e.hooks == nil {
		e.tell(d)
		return
	}
	containers := slices.Clone(d.pod().containers)
	e.finishing.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, exitNotedWithin)
		defer cancel()
		tick := time.NewTicker(exitNotedEvery)
		defer tick.Stop()
		for {
			containers = slices.DeleteFunc(containers, func(id string) bool {
				exited, err := e.hooks.Exited(ctx, id)
				return exited || err != nil // a runtime that is away keeps nothing back
			})
			if len(containers) == 0 || ctx.Err() != nil {
				e.tell(d)
				return
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
}
