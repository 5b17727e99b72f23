package eviction

import (
	"context"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// hangingLedger is on a disk that does not answer.
type hangingLedger struct {
	brokenLedger
	entered, free chan struct{}
}

func (l hangingLedger) AppendDecision(uint64, []byte) error {
	l.entered <- struct{}{}
	<-l.free
	return errLedger
}

// hangingMeminfo stands still in the kernel once hang is closed.
type hangingMeminfo struct {
	MeminfoSource
	hang, free chan struct{}
}

func (m hangingMeminfo) Read(i *cgroupfs.Meminfo) error {
	select {
	case <-m.hang:
		<-m.free
	default:
	}
	return m.MeminfoSource.Read(i)
}

// running runs the engine of a rig in real time, until the returned function.
func (r *rig) running() (e *Engine, end func()) {
	r.t.Helper()
	e = r.build()
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	until(r.t, "the inventory is read", func() bool { return e.State().Inventory.Listed && e.State().Pods == 1 })
	return e, func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
}

// The service manager's watchdog is fed by Ticks: a ledger that hangs degrades what
// is remembered, and restarts nothing.
func TestTicksGoOnWhileTheLedgerHangs(t *testing.T) {
	r := newRig(t)
	ledger := hangingLedger{entered: make(chan struct{}, 1), free: make(chan struct{})}
	r.ledger = ledger
	r.add(testPod{uid: "hog", usage: 4 * gi})
	e, end := r.running()
	r.node.setAvailable(200 * mi)
	until(t, "the hog is evicted", func() bool { return r.state("hog") == "killed" })
	<-ledger.entered
	for range 3 {
		before := e.Ticks()
		until(t, "the sampler goes on", func() bool { return e.Ticks() > before })
	}
	close(ledger.free)
	end()
}

func TestTicksStopWithTheSampler(t *testing.T) {
	r := newRig(t)
	mem := hangingMeminfo{MeminfoSource: r.node, hang: make(chan struct{}), free: make(chan struct{})}
	r.meminfo = mem
	r.add(testPod{uid: "quiet", usage: gi})
	e, end := r.running()
	before := e.Ticks()
	until(t, "it samples", func() bool { return e.Ticks() > before })
	close(mem.hang)
	const longest = time.Second // between two samples
	time.Sleep(longest)         // it hangs by now
	stuck := e.Ticks()
	time.Sleep(2 * longest)
	if now := e.Ticks(); now != stuck {
		t.Errorf("%d ticks, then %d although it hangs", stuck, now)
	}
	close(mem.free)
	end()
}
