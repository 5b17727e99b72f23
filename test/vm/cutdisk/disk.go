// Package cutdisk is a disk for a virtual machine whose power is cut: like a real
// one it has a volatile cache. What was not flushed may be lost when the power goes,
// in part and in any order; what was flushed stays. qemu reaches it over NBD.
package cutdisk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// SectorSize is what a disk writes as a whole or not at all, in bytes.
const SectorSize = 512

// ErrNoPower says that the power is gone.
var ErrNoPower = errors.New("the disk has no power")

// op is a write, or a flush if it has no data.
type op struct {
	at   int64
	data []byte
}

// Disk is one disk. Its methods can be called from any goroutine.
type Disk struct {
	mu      sync.Mutex
	current []byte // what reads return
	started []byte // current as it was when the power came
	ops     []op   // since then
	flushed int    // of ops, those that no power cut takes back
	left    int    // requests until the power goes by itself; < 0: it does not
	off     bool
	cut     chan struct{} // closed when off
}

// New returns a disk with this content, with power. It keeps b.
func New(b []byte) *Disk {
	d := &Disk{current: b}
	d.power()
	return d
}

func (d *Disk) power() {
	d.started = append([]byte(nil), d.current...)
	d.ops, d.flushed, d.left, d.off, d.cut = nil, 0, -1, false, make(chan struct{})
}

// Size is in bytes.
func (d *Disk) Size() int64 { return int64(len(d.started)) }

// CutAfter lets the power go after n more requests that change something.
func (d *Disk) CutAfter(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

// Gone is closed when the power is gone.
func (d *Disk) Gone() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cut
}

// Cut lets the power go now.
func (d *Disk) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.goOff()
}

func (d *Disk) goOff() {
	if !d.off {
		d.off = true
		close(d.cut)
	}
}

// step counts a request and says whether it is still carried out.
func (d *Disk) step() error {
	if d.left == 0 {
		d.goOff()
	}
	if d.off {
		return ErrNoPower
	}
	if d.left > 0 {
		d.left--
	}
	return nil
}

func (d *Disk) inside(at int64, n int) error {
	if at < 0 || at > d.Size() || int64(n) > d.Size()-at {
		return fmt.Errorf("%d bytes at %d are outside of the disk", n, at)
	}
	return nil
}

// ReadAt reads what was written last, flushed or not.
func (d *Disk) ReadAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return 0, ErrNoPower
	}
	if err := d.inside(at, len(b)); err != nil {
		return 0, err
	}
	return copy(b, d.current[at:]), nil
}

// WriteAt writes to the cache. It keeps b.
func (d *Disk) WriteAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.inside(at, len(b)); err != nil {
		return 0, err
	}
	if err := d.step(); err != nil {
		return 0, err
	}
	copy(d.current[at:], b)
	d.ops = append(d.ops, op{at, b})
	return len(b), nil
}

// Flush keeps what was written so far.
func (d *Disk) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	d.ops = append(d.ops, op{})
	d.flushed = len(d.ops)
	return nil
}

// Ops is the number of changes and flushes since the power came.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ops)
}

// Restore gives the disk power again, with what survived the cut.
func (d *Disk) Restore(dice *rand.Rand) {
	d.Cut()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current = survived(d.started, d.ops, dice)
	d.power()
}

// LastFlush is the number of changes up to the last flush among the first n.
func (d *Disk) LastFlush(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return lastFlush(d.ops[:n])
}

func lastFlush(ops []op) int {
	for i := len(ops); i > 0; i-- {
		if ops[i-1].data == nil {
			return i
		}
	}
	return 0
}

// After is the disk as it would be if the power had gone after n changes: with
// dice what may have survived, without what a disk without a cache would have.
func (d *Disk) After(n int, dice *rand.Rand) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return survived(d.started, d.ops[:n], dice)
}

// survived applies ops to a copy of b. Of what was not flushed each write survives
// whole, not at all, or sector by sector; without dice all of it does.
func survived(b []byte, ops []op, dice *rand.Rand) []byte {
	b = append([]byte(nil), b...)
	safe := lastFlush(ops)
	for _, o := range ops[:safe] {
		copy(b[o.at:], o.data)
	}
	keep := 1.0
	if dice != nil {
		keep = []float64{0, 0.2, 0.5, 0.8, 1}[dice.IntN(5)]
	}
	for _, o := range ops[safe:] {
		if dice == nil || dice.IntN(4) > 0 { // the whole write has one fate
			if dice == nil || dice.Float64() < keep {
				copy(b[o.at:], o.data)
			}
			continue
		}
		for from := 0; from < len(o.data); from += SectorSize {
			if dice.Float64() < keep {
				copy(b[o.at+int64(from):], o.data[from:min(from+SectorSize, len(o.data))])
			}
		}
	}
	return b
}
