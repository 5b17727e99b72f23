package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// Bounds of what may have grown in a process that has seen a quarter of the soak,
// beyond what it held when it was idle.
const (
	moreDescriptors = 4
	moreThreads     = 12 // Go keeps the threads of its busiest moment
	moreGoroutines  = 6  // than a process that was just started
)

// play is the soak: three quarters with everything killed at random, one quarter
// in which proxy and evictor survive while containerd does not.
func (s *soak) play(ctx context.Context) error {
	if err := s.set(ctx); err != nil {
		return err
	}
	keep := map[string]lab.Running{}
	for i := range 5 {
		p := spec(fmt.Sprint("keep-", i), "Burstable")
		r, err := lab.RunPod(ctx, s.through, p)
		if err != nil {
			return err
		}
		keep[p.UID] = r
	}
	begun := time.Now()
	containerd, halves := s.targets()
	if err := s.busy(ctx, begun.Add(s.length*3/4), true, append([]target{containerd}, halves...)...); err != nil {
		return err
	}
	s.say("after %.0f s: %s", time.Since(begun).Seconds(), s.counts)
	if err := s.check(ctx, keep); err != nil {
		return fmt.Errorf("after killing everything: %w", err)
	}

	_ = sleep(ctx, settle) // check looks at ctx again
	before, err := s.footprints()
	if err != nil {
		return err
	}
	if err := s.busy(ctx, time.Now().Add(s.length/4), false, containerd); err != nil {
		return err
	}
	s.say("after %.0f s: %s", time.Since(begun).Seconds(), s.counts)
	if err := s.check(ctx, keep); err != nil {
		return fmt.Errorf("after killing containerd: %w", err)
	}
	_ = sleep(ctx, settle)
	after, err := s.footprints()
	if err != nil {
		return err
	}
	return errors.Join(s.leaks(ctx, before, after), s.proxy.faults(), s.evict.faults(), s.enough())
}

// busy churns while havoc is wreaked.
func (s *soak) busy(ctx context.Context, until time.Time, long bool, targets ...target) error {
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range s.workers {
		wg.Go(func() { s.churn(work, i) })
	}
	err := s.havoc(ctx, until, long, targets...)
	stop()
	wg.Wait()
	return err
}

// enough makes sure that the soak was one.
func (s *soak) enough() error {
	for _, what := range []string{"pods", "containerd killed", "proxy killed", "evict killed", "proxy restarted", "evict restarted"} {
		if s.counts.of(what) == 0 {
			return fmt.Errorf("not a single time: %s; the soak was too short", what)
		}
	}
	return nil
}

// check compares inventory and runtime: with leftovers of broken calls, after
// they were removed, and after pods came and went without any error.
func (s *soak) check(ctx context.Context, keep map[string]lab.Running) error {
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	if err := s.same(ctx); err != nil {
		return err
	}
	if err := s.sweep(ctx, keep); err != nil {
		return err
	}
	begun := time.Now()
	for i := range 10 {
		if err := s.live(ctx, spec(fmt.Sprint("calm-", i), "BestEffort")); err != nil {
			return fmt.Errorf("with everything up: %w", err)
		}
	}
	s.say("10 pods one after the other, with everything up: %.1f s", time.Since(begun).Seconds())
	if err := s.same(ctx); err != nil {
		return err
	}
	for uid, r := range keep {
		for _, id := range r.ContainerIDs {
			st, err := s.direct.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			if err != nil {
				return fmt.Errorf("pod %s: %w", uid, err)
			}
			if st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
				return fmt.Errorf("container of pod %s, which nobody stopped, is %v (%s)", uid, st.GetStatus().GetState(), st.GetStatus().GetReason())
			}
		}
	}
	st, err := s.admin().Status(ctx)
	if err != nil {
		return err
	}
	if st.Proxy.Panics > 0 || st.Engine.Held > 0 || st.Engine.Decisions > 0 {
		return fmt.Errorf("panics %d, held %d, decisions %d", st.Proxy.Panics, st.Engine.Held, st.Engine.Decisions)
	}
	return nil
}

// same waits until the inventory is what the runtime lists.
func (s *soak) same(ctx context.Context) error {
	return await(ctx, "the inventory to be the runtime's lists", func(ctx context.Context) error {
		sandboxes, err := s.direct.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		containers, err := s.direct.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return err
		}
		known, running, pod := map[string]bool{}, map[string]bool{}, map[string]string{}
		for _, b := range sandboxes.GetItems() {
			uid := b.GetMetadata().GetUid()
			known[uid], pod[b.GetId()] = true, uid
			if b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				running[uid] = true
			}
		}
		for _, c := range containers.GetContainers() {
			if st := c.GetState(); st == runtimeapi.ContainerState_CONTAINER_RUNNING || st == runtimeapi.ContainerState_CONTAINER_CREATED {
				running[pod[c.GetPodSandboxId()]] = true
			}
		}
		x, err := s.admin().Explain(ctx, "")
		if err != nil {
			return err
		}
		st, err := s.admin().Status(ctx)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, c := range x.Candidates {
			seen[c.UID] = true
		}
		if !maps.Equal(seen, running) || st.Engine.Pods != len(known) {
			return fmt.Errorf("explain has %d pods %v, the runtime %d %v; status counts %d pods, the runtime has sandboxes of %d",
				len(seen), slices.Sorted(maps.Keys(seen)), len(running), slices.Sorted(maps.Keys(running)), st.Engine.Pods, len(known))
		}
		return nil
	})
}

func (s *soak) footprints() (out [2]footprint, err error) {
	for i, d := range []*daemon{s.proxy, s.evict} {
		if out[i], err = d.footprint(); err != nil {
			return out, err
		}
	}
	return out, nil
}

// leaks compares what the survivors hold, and how many goroutines they have with
// those of processes that were just started.
func (s *soak) leaks(ctx context.Context, before, after [2]footprint) error {
	var errs []error
	halves := []*daemon{s.proxy, s.evict}
	var old, fresh [2]int
	for i, d := range halves {
		b, a := before[i], after[i]
		s.say("%s idle before: %+v, after: %+v", d.name(), b, a)
		if a.descriptors > b.descriptors+moreDescriptors {
			errs = append(errs, fmt.Errorf("%s: %d descriptors became %d", d.name(), b.descriptors, a.descriptors))
		}
		if a.threads > b.threads+moreThreads {
			errs = append(errs, fmt.Errorf("%s: %d threads became %d", d.name(), b.threads, a.threads))
		}
	}
	for _, n := range []*[2]int{&old, &fresh} {
		for i, d := range halves {
			var err error
			if n[i], err = d.goroutines(); err != nil {
				return errors.Join(append(errs, err)...)
			}
			if err := d.start(); err != nil {
				return errors.Join(append(errs, err)...)
			}
		}
		if err := s.awaitReady(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		_ = sleep(ctx, settle) // as long as the survivors had
	}
	for i, d := range halves {
		s.say("%s: %d goroutines, a fresh one %d", d.name(), old[i], fresh[i])
		if old[i] > fresh[i]+moreGoroutines {
			errs = append(errs, fmt.Errorf("%s: %d goroutines, a fresh one has %d", d.name(), old[i], fresh[i]))
		}
	}
	return errors.Join(errs...)
}
