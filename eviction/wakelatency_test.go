package eviction

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// B11, B13: memory fills by 120 MiB/s; the pod is killed within 100 ms of the
// crossing, with and without anything that the kernel may tell.
func TestCaseB11Latency(t *testing.T) {
	absent := fmt.Errorf("/p: %w", cgroupfs.ErrAbsent)
	for name, events := range map[string]func(t *testing.T) KernelEvents{
		"no source": func(*testing.T) KernelEvents { return nil },
		"none is there": func(t *testing.T) KernelEvents {
			return &fakeEvents{t: t, inactiveErr: absent, pressure: absent, pods: absent}
		},
		"all, but quiet": func(t *testing.T) KernelEvents { return newEvents(t) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.wakeups = events(t)
				c := r.add(testPod{uid: "hog", usage: 4 * gi})
				stop := r.start()
				defer stop()
				available := uint64(4*500) * mi
				r.node.setAvailable(available)
				pass(5 * time.Second)
				for killsOf(c) == 0 && available > 400*mi {
					available -= 12 * mi / 10
					r.node.setAvailable(available)
					pass(10 * time.Millisecond)
				}
				// 100 ms are 12 MiB below the threshold
				if killsOf(c) != 1 || available < 500*mi-12*mi {
					t.Errorf("%d kills, %d MiB available", killsOf(c), available/mi)
				}
			})
		})
	}
}

// runEngine runs the real thing, in real time, until the test ends.
func runEngine(t *testing.T, e *Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A quiet node is sampled once a second; each event brings a sample at once.
func TestEventsShortenTheSampling(t *testing.T) {
	r := newRig(t)
	f := newEvents(t)
	r.wakeups = f
	e := r.build()
	runEngine(t, e)
	until(t, "the sources are in use", func() bool {
		s := e.State().Wakeups
		return s[wakePressure].InUse && s[wakeUsage].InUse && s[wakePods].InUse
	})
	e.wakeups.mu.Lock() // f belongs to the slow half, which has published since
	fd := f.last[wakePressure].fd
	e.wakeups.mu.Unlock()
	began := time.Now()
	const events = 20
	for range events {
		before := e.State().Memory.Samples
		raise(t, fd)
		until(t, "a sample after an event", func() bool { return e.State().Memory.Samples > before })
	}
	if took := time.Since(began); took > events*time.Second/2 {
		t.Errorf("%d samples took %v: the clock alone makes one a second", events, took)
	}
	until(t, "the wake-ups are counted", func() bool { return e.State().Wakeups[wakePressure].Woken > 0 })
	if got := e.State().Wakeups; got[wakePods].Woken != 0 || got[wakePressure].Detail != "some" {
		t.Errorf("state %+v", got)
	}
}

// A source that never stops brings a sample every 2 ms and no more.
func TestFloodDoesNotBusyLoopTheSampler(t *testing.T) {
	r := newRig(t)
	f := newEvents(t)
	r.wakeups = f
	e := r.build()
	runEngine(t, e)
	until(t, "the sources are in use", func() bool { return e.State().Wakeups[wakePods].InUse })
	e.wakeups.mu.Lock()
	fd := f.last[wakePods].fd
	e.wakeups.mu.Unlock()
	before, began := e.State().Memory.Samples, time.Now()
	const samples = 50
	until(t, "samples of the flood", func() bool {
		raise(t, fd)
		return e.State().Memory.Samples >= before+samples
	})
	// One may have been under way, and one is not waited for.
	if took := time.Since(began); took < (samples-2)*leastWait {
		t.Errorf("%d samples in %v of flood, want one in %v at most", samples, took, leastWait)
	}
}
