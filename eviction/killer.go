package eviction

import (
	"errors"
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

// carryOut records the intent and kills, unless the fallback did meanwhile.
func (k *killer) carryOut(d *Decision) {
	if !d.kill.claimed.CompareAndSwap(false, true) {
		return
	}
	k.hold(d)
	if k.between != nil {
		k.between()
	}
	pod := d.pod()
	if pod.NoDirect == "" && d.Grace == 0 {
		for _, c := range pod.cgroups {
			n, err := c.Kill()
			d.kill.signalled.Add(int64(max(n, 0)))
			d.kill.failed(err)
		}
	}
	k.handOver(d)
}

// hold records the intent. A holds file that cannot be written does not stop
// the kill: the node is in need, and without a hold the worst is that kubelet
// starts the pod again.
func (k *killer) hold(d *Decision) {
	pod := d.pod()
	if pod.Evicting != 0 {
		// A soft eviction is shortened: its hold is there, and its decision goes
		// on.
		d.ID = pod.Evicting
		k.intended(d)
		return
	}
	d.ID = k.holds.NextID()
	if pod.noHold != nil {
		d.kill.intentErr = pod.noHold
	} else if slot, err := k.slot(); err != nil {
		d.kill.intentErr = err
	} else {
		d.kill.numbers = holds.Numbers{
			ID:               d.ID,
			Available:        int64(d.Sample.Kernel),
			AvailableKubelet: int64(d.Sample.Kubelet),
			Threshold:        int64(d.Rules.Amount),
			Usage:            int64(d.Candidates[d.Victim].Usage),
			Decided:          d.At.UnixNano(),
			Frozen:           pod.NoDirect == "" && pod.freezes,
			Signal:           string(d.Signal),
		}
		d.kill.intentErr = k.holds.WriteIntent(slot, pod.prepared, &d.kill.numbers)
		if d.kill.intentErr != nil && !errors.Is(d.kill.intentErr, holds.ErrSlot) {
			k.keep(slot)
		}
	}
	k.intended(d)
}

// intended notes that the hold is visible, or cannot be.
func (k *killer) intended(d *Decision) {
	d.kill.intentAt.Store(k.clock().UnixNano())
	d.kill.advance(killIntent)
}

// handOver gives the decision to the slow half, once.
func (k *killer) handOver(d *Decision) {
	if !d.kill.handed.CompareAndSwap(false, true) {
		return
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

// keep puts a slot back that was not written, or failing writes would use all
// of them up.
func (k *killer) keep(s holds.Slot) { k.ready.CompareAndSwap(nil, &s) }

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

// takeOver kills by pidfd what a stuck killer thread could not, until the
// channel is closed: the victim whose kill hangs, and those queued behind it.
// It never kills before the hold is visible. The slow half gets the decision
// from here, so that the victim is verified and recorded although the killer
// thread may never come back.
func (k *killer) takeOver(stuck <-chan *Decision) {
	for d := range stuck {
		if d.kill.claimed.CompareAndSwap(false, true) {
			k.hold(d)
		} else if d.kill.at() < killIntent {
			// The killer got to it just now: the watchdog starts anew.
			d.kill.fallback.Store(false)
			continue
		}
		pod := d.pod()
		if pod.NoDirect == "" && d.Grace == 0 {
			for _, c := range pod.cgroups {
				n, err := c.KillByPidfd()
				d.kill.signalled.Add(int64(max(n, 0)))
				d.kill.failed(err)
			}
		}
		k.handOver(d)
	}
}
