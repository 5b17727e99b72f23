package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/proxy"
)

const (
	followFirst   = 100 * time.Millisecond
	followLongest = 5 * time.Second
	// proxyGoneAfter is when a proxy that went away is none any more: until then it
	// is being restarted, and kubelet has no way to the runtime either.
	proxyGoneAfter = 30 * time.Second
)

// proxySeen knows whether there is a proxy, which is what enforces holds.
type proxySeen struct {
	clock func() time.Time
	mu    sync.Mutex
	there bool
	left  time.Time // when it went away; zero when none was there
}

func (p *proxySeen) set(there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.there && !there {
		p.left = p.clock()
	}
	p.there = there
}

// enforces says whether a proxy is there, or was a moment ago.
func (p *proxySeen) enforces() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.there || !p.left.IsZero() && p.clock().Sub(p.left) < proxyGoneAfter
}

// followProxy feeds the inventory with what passes through the proxy, until ctx
// ends, tells refused of new pods that were not admitted, and uses of images that
// are pulled and used. A proxy that is not there is no fault of the evictor's: the
// lists and the cgroup tree go on telling.
func followProxy(ctx context.Context, socket string, seen *proxySeen, syncer *inventory.Syncer, refused func(pod inventory.Ref, condition string), uses *gc.Uses, log logrus.FieldLogger) {
	f := &follower{socket: socket, seen: seen, syncer: syncer, refused: refused, uses: uses, log: log}
	f.all.Go(func() { f.follow(ctx) })
	f.all.Wait()
}

// follower follows one generation of the proxy after the other: at a hand-over the
// new one too, and the old one until its calls have ended.
type follower struct {
	socket  string
	seen    *proxySeen
	syncer  *inventory.Syncer
	refused func(pod inventory.Ref, condition string)
	uses    *gc.Uses
	log     logrus.FieldLogger
	all     sync.WaitGroup
}

func (f *follower) follow(ctx context.Context) {
	wait, said, handedOver := followFirst, false, false
	for {
		err := proxy.Subscribe(ctx, f.socket, func(e proxy.Event) {
			noteImages(f.uses, &e)
			switch {
			case e.Type == proxy.EventHello:
				f.seen.set(true)
				f.log.WithField("proxySocket", f.socket).Info("following the proxy's events")
				wait, said = followFirst, false
			case e.Type == proxy.EventHandOver && !handedOver:
				handedOver = true
				f.all.Go(func() { f.follow(ctx) })
			case e.Type == proxy.EventAdmissionRefused && e.Pod != nil:
				f.refused(inventory.Ref{Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID}, e.Condition)
			}
			if in, ok := inventoryEvent(e); ok {
				f.syncer.Take(in)
			}
		})
		if handedOver {
			return // the new process is followed already
		}
		f.uses.Unlinked()
		if ctx.Err() != nil {
			return
		}
		f.seen.set(false)
		if !said && !errors.Is(err, context.Canceled) {
			said = true
			f.log.WithError(err).Warn("no events from the proxy; listing and the cgroup tree are used, holds are enforced only by a proxy")
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, followLongest)
	}
}

// inventoryEvent translates; ok is false for events that change nothing the
// inventory keeps.
func inventoryEvent(e proxy.Event) (inventory.Event, bool) {
	out := inventory.Event{Time: e.Time, Labels: e.Labels, Annotations: e.Annotations}
	if e.Pod != nil {
		out.Pod = inventory.Ref{Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID}
	}
	out.Sandbox = inventory.Sandbox{ID: e.SandboxID, Attempt: e.Attempt, Created: e.Time, CgroupParent: e.CgroupParent}
	out.Container = inventory.Container{
		ID: e.ContainerID, SandboxID: e.SandboxID, Name: e.ContainerName, Image: e.Image, Created: e.Time,
		OOMScoreAdj: e.OOMScoreAdj, MemoryLimit: e.MemoryLimit,
	}
	switch e.Type {
	case proxy.EventHello, proxy.EventDirty:
		out.Type = inventory.Dirty
	case proxy.EventRunBegin, proxy.EventRunRefused:
		out.Type = inventory.SandboxWanted
		return out, out.Pod.UID != ""
	case proxy.EventSandboxStarted:
		out.Type = inventory.SandboxStarted
		out.Sandbox.Ready = true
		return out, out.Pod.UID != "" && out.Sandbox.ID != ""
	case proxy.EventSandboxStopped:
		out.Type = inventory.SandboxStopped
	case proxy.EventSandboxRemoved:
		out.Type = inventory.SandboxRemoved
	case proxy.EventContainerCreated:
		out.Type = inventory.ContainerCreated
		out.Container.Running = true
		return out, out.Container.ID != ""
	case proxy.EventContainerStopped:
		out.Type = inventory.ContainerStopped
	case proxy.EventContainerRemoved:
		out.Type = inventory.ContainerRemoved
	default:
		return out, false
	}
	return out, true
}
