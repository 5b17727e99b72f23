package eviction

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// A hard threshold is acted on by an old list when the runtime gives no new one.
func TestDiskIsActedOnWithoutNewLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		f.frees("writer", 30*gi, time.Second)
		defer r.start()()
		pass(5 * time.Second)
		r.runtime.mu.Lock()
		r.runtime.listErr = errors.New("no answer")
		r.runtime.mu.Unlock()
		pass(30 * time.Second)
		f.fill(16 * gi)
		pass(15 * time.Second)
		r.wantOutcomes("evicted writer")
	})
}

// A decision is made by lists that are not old.
func TestDiskDecidesByAFreshList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.set.Rules.Observe, r.set.Allocatable.Observe = true, true // or the kill itself would cause a list
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		lists := func() int {
			r.runtime.mu.Lock()
			defer r.runtime.mu.Unlock()
			return r.runtime.lists
		}
		defer r.start()()
		pass(30 * time.Second)
		before := lists()
		f.fill(16 * gi)
		pass(10 * time.Second)
		r.wantOutcomes("wouldEvict writer")
		if lists() == before {
			t.Error("decided by the list from the start")
		}
	})
}

// Memory comes first, but not when nobody can be taken for it.
func TestDiskDoesNotWaitForMemoryWithoutAVictim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.add(testPod{uid: "calm", request: 3 * gi, usage: 2 * gi})
		f.has("calm", 1, 30*gi, 10)
		f.frees("calm", 30*gi, time.Second)
		defer r.start()()
		pass(5 * time.Second)
		r.node.setAvailable(300 * mi)
		pass(5 * time.Second)
		r.wantOutcomes("noVictim -") // for memory: it is inside its request
		f.fill(16 * gi)
		pass(15 * time.Second)
		r.wantOutcomes("noVictim -", "evicted calm")
	})
}

// bugs.md B57: as long as the runtime does not name its file system, or that gives
// no capacity, the signal is unknown: nothing is met, nothing is said of 0 bytes,
// and once it is known it counts.
func TestCaseB57(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		f.mount("/img", 2, 60*gi)
		f.pathsErr = errors.New("not initialised")
		full := f.fs["/img"]
		f.fs["/img"] = &cgroupfs.Filesystem{Device: 2}
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 2, 30*gi, 10)
		defer r.start()()
		image := func() SignalNow { return r.signalNow(ImageFsAvailable) }
		pass(30 * time.Second)
		if s := image(); s.Known || s.Problem == "" {
			t.Errorf("without a name: %+v", s)
		}
		f.mu.Lock()
		f.pathsErr = nil
		f.mu.Unlock()
		pass(30 * time.Second)
		if s := image(); s.Known || s.Problem == "" {
			t.Errorf("without a capacity: %+v", s)
		}
		r.wantOutcomes()
		for _, line := range r.lines.all() {
			if strings.Contains(line, "capacity 0") {
				t.Errorf("%q", line)
			}
		}
		if r.published().Disk {
			t.Error("the node is said to be short of disk")
		}
		f.mu.Lock()
		f.fs["/img"] = full
		f.mu.Unlock()
		pass(5 * time.Second)
		if s := image(); !s.Known || s.Capacity != 100*gi {
			t.Errorf("once it is known: %+v", s)
		}
		f.set("/img", 16*gi)
		pass(10 * time.Second)
		r.wantOutcomes("evicted writer")
	})
}

// A disk is read every two seconds: with a shorter transition period the condition
// holds from one reading to the next all the same.
func TestDiskConditionHoldsBetweenReadings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.set.Transition = time.Second
		defer r.start()()
		pass(5 * time.Second)
		f.fill(16 * gi)
		pass(4 * time.Second)
		for range 40 {
			if !r.published().Disk {
				t.Fatal("it came to an end between two readings")
			}
			pass(100 * time.Millisecond)
		}
		f.fill(60 * gi)
		pass(4 * time.Second)
		if r.published().Disk {
			t.Error("it did not end")
		}
	})
}
