package eviction

import (
	"sync/atomic"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// HoldWriter is what the killer needs of the holds file.
type HoldWriter interface {
	NextID() uint64
	Reserve() (holds.Slot, error)
	WriteIntent(s holds.Slot, p *holds.Prepared, n *holds.Numbers) error
}

// killer sends kills: the hold first, then the signal. It runs on a thread of
// its own, so that a write the kernel does not finish never stops the sampler.
type killer struct {
	holds HoldWriter
	clock func() time.Time
	done  chan<- *Decision
	// ready is a slot reserved ahead by the slow half, so that the killer need
	// not look for one.
	ready atomic.Pointer[holds.Slot]
	// between is called between intent and kill; nil outside of tests.
	between func()
}

// carryOut records the intent and kills. A holds file that cannot be written
// does not stop the kill: the node is in need, and without a hold the worst is
// that kubelet starts the pod again.
func (k *killer) carryOut(d *Decision) {
	pod := d.pod()
	d.ID = k.holds.NextID()
	if slot, err := k.slot(); err != nil {
		d.kill.intentErr = err
	} else {
		n := holds.Numbers{
			ID:               d.ID,
			Available:        int64(d.Sample.Kernel),
			AvailableKubelet: int64(d.Sample.Kubelet),
			Threshold:        int64(d.Rules.Amount),
			Usage:            int64(d.Candidates[d.Victim].Usage),
			Decided:          d.At.UnixNano(),
			Frozen:           pod.NoDirect == "" && pod.freezes,
		}
		d.kill.intentErr = k.holds.WriteIntent(slot, pod.prepared, &n)
	}
	d.kill.intentAt.Store(k.clock().UnixNano())
	d.kill.advance(killIntent)
	if k.between != nil {
		k.between()
	}
	if pod.NoDirect == "" {
		var n int
		for _, c := range pod.cgroups {
			m, err := c.Kill()
			n += max(m, 0)
			if err != nil {
				d.kill.killErr = err
			}
		}
		d.kill.signalled.Store(int64(n))
	}
	d.kill.sentAt.Store(k.clock().UnixNano())
	d.kill.advance(killSent)
	k.done <- d
}

// slot returns the reserved slot, or a new one when two kills follow each other
// faster than the slow half reserves.
func (k *killer) slot() (holds.Slot, error) {
	if s := k.ready.Swap(nil); s != nil {
		return *s, nil
	}
	return k.holds.Reserve()
}

// reserve makes sure that a slot is ready.
func (k *killer) reserve() error {
	if k.ready.Load() != nil {
		return nil
	}
	s, err := k.holds.Reserve()
	if err != nil {
		return err
	}
	k.ready.Store(&s)
	return nil
}

// run carries out orders until the channel is closed.
func (k *killer) run(orders <-chan *Decision) {
	for d := range orders {
		k.carryOut(d)
	}
}

// fallback kills by pidfd what a stuck killer thread could not. It never acts
// before the hold is visible.
func fallback(stuck <-chan *Decision) {
	for d := range stuck {
		if d.pod().NoDirect != "" {
			continue
		}
		for _, c := range d.pod().cgroups {
			n, _ := c.KillByPidfd()
			d.kill.signalled.Add(int64(max(n, 0)))
		}
	}
}
