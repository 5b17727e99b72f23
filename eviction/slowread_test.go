package eviction

import (
	"errors"
	"testing"
	"time"
)

// The paths that the runtime named stay those while it does not answer.
func TestPathsOfARuntimeThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		f.mount("/img", 2, 60*gi)
		defer r.start()()
		pass(5 * time.Second)
		f.mu.Lock()
		f.pathsErr, f.asked = errors.New("gone"), 0
		f.mu.Unlock()
		pass(3 * time.Minute)
		if s := r.signalNow(ImageFsAvailable); !s.Known || s.Path != "/img" || f.asked == 0 {
			t.Errorf("%+v, asked %d times", s, f.asked)
		}
	})
}

// As long as kubelet has not made its root directory the one that it will be made
// in counts.
func TestKubeletRootThatIsNotMadeYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		r.slow.KubeletRoot = "/var/lib/kubelet"
		f.mount("/var", 4, 40*gi)
		defer r.start()()
		pass(5 * time.Second)
		if s := r.signalNow(NodeFsAvailable); !s.Known || s.Path != "/var" || s.Available != 40*gi {
			t.Errorf("%+v", s)
		}
		f.mu.Lock()
		f.mount("/var/lib/kubelet", 5, 30*gi)
		f.mu.Unlock()
		pass(5 * time.Second)
		if s := r.signalNow(NodeFsAvailable); !s.Known || s.Path != "/var/lib/kubelet" || s.Available != 30*gi {
			t.Errorf("once it is made: %+v", s)
		}
	})
}

// Within 4x of the threshold the tasks are read every 100 ms, and a breach is seen
// at once: new pods are kept out from the first reading on.
func TestPIDsNearTheThreshold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := slowRig(t)
		tasks := func(n uint64) {
			f.mu.Lock()
			f.pids.Tasks = n
			f.mu.Unlock()
		}
		defer r.start()()
		pass(3050 * time.Millisecond)
		tasks(32768 - 4*3276) // at 4x of 10 %: not within
		pass(time.Second)
		tasks(32768 - 3000)
		pass(400 * time.Millisecond)
		if r.published().PID {
			t.Error("far from the threshold the tasks were read within 0.4 s")
		}
		tasks(32768 - 13000)
		pass(time.Minute)
		tasks(32768 - 3000)
		pass(150 * time.Millisecond)
		if !r.published().PID {
			t.Error("near the threshold the breach was not seen within 0.15 s")
		}
	})
}
