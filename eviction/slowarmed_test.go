package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// What is new and met already waits until it was clear once, or is armed by hand;
// a file system that grows changes the amount of a share and nothing else.
func TestDiskArming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		armed := &fakeArmed{}
		r.armed = armed
		f.fill(10 * gi)
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		stop := r.start()
		pass(10 * time.Second)
		r.wantOutcomes()
		if got := r.eng.unarmed(); !slices.Contains(got, NodeFsAvailable) || !slices.Contains(got, ImageFsAvailable) {
			t.Errorf("unarmed: %q", got)
		}
		f.fill(60 * gi)
		pass(10 * time.Second)
		if got := r.eng.unarmed(); len(got) > 0 {
			t.Errorf("unarmed although it was clear: %q", got)
		}
		for _, path := range []string{"/kubelet", "/img", "/logs"} {
			f.mu.Lock()
			f.fs[path].Capacity = 200 * gi
			f.mu.Unlock()
		}
		f.fill(20 * gi) // below 12 % and 17 % of 200 GiB
		pass(15 * time.Second)
		r.wantOutcomes("evicted writer")
		stop()
	})
}

// The same configuration after a crash in the breach is acted on at once, also
// where the signal is read only a while after the start, or only after one more.
func TestDiskArmedOverARestart(t *testing.T) {
	for _, starts := range []int{1, 2} {
		bubble(t, func(t *testing.T) {
			r, f := slowRig(t)
			armed := &fakeArmed{}
			r.armed = armed
			r.add(testPod{uid: "writer", usage: 100 * mi})
			f.has("writer", 1, 30*gi, 10)
			f.frees("writer", 30*gi, time.Second)
			hang := func(err error) {
				for _, path := range []string{"/kubelet", "/img", "/logs"} {
					f.fail(path, err)
				}
			}
			stop := r.start()
			pass(5 * time.Second)
			stop()
			f.fill(5 * gi)
			hang(cgroupfs.ErrHangs)
			for i := range starts {
				if i > 0 {
					stop()
				}
				stop = r.start()
				pass(5 * time.Second)
			}
			defer func() { stop() }()
			hang(nil)
			pass(10 * time.Second)
			r.wantOutcomes("evicted writer")
		})
	}
}

// Arming by hand is for disks too, but not for what is above the capacity.
func TestDiskArmedByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.armed = &fakeArmed{}
		r.set.Slow = append(r.set.Slow, SlowThreshold{Signal: NodeFsInodesFree, Value: threshold(t, "2M"), Grace: time.Second})
		f.fill(10 * gi)
		r.add(testPod{uid: "writer", usage: 100 * mi})
		f.has("writer", 1, 30*gi, 10)
		f.frees("writer", 30*gi, time.Second)
		defer r.start()()
		pass(10 * time.Second)
		r.wantOutcomes()
		if why := r.signalNow(NodeFsAvailable).NotActing; why != unarmedText {
			t.Errorf("not acting because %q", why)
		}
		if !r.eng.Arm() {
			t.Error("nothing was armed")
		}
		pass(10 * time.Second)
		r.wantOutcomes("evicted writer")
		for _, s := range r.eng.softNow() {
			if s.Signal == NodeFsInodesFree && !s.Unarmed {
				t.Error("a threshold above the capacity was armed")
			}
		}
	})
}

// A capacity that changes between the round and the note of what is armed makes
// nothing unarmed.
func TestCapacityChangesBeforeArmedIsNoted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.armed = &fakeArmed{}
		f.fill(60 * gi)
		stop := r.start()
		pass(10 * time.Second)
		stop()
		r.eng.slow.take(NodeFsAvailable, Reading{At: time.Now(), Available: 20 * gi, Capacity: 200 * gi, Device: 1, Path: "/kubelet"})
		r.eng.softArmed(map[Signal]uint64{})
		for k, w := range r.eng.soft.watches {
			if k.Signal == NodeFsAvailable && (!w.armed || k.Amount != 24*gi) {
				t.Errorf("threshold of %d bytes, armed %v; want one of 24 GiB, armed", k.Amount, w.armed)
			}
		}
	})
}
