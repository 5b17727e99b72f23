package holds

import (
	"encoding/binary"
	"os"
	"sync/atomic"
)

// slot is the writer's side of one record in the file.
type slot struct {
	// word is a ticket (62 bits) and a slotState (2 bits). The ticket rises
	// with each claim, so that a stale Slot cannot touch the next claim.
	word atomic.Uint64
	// record is what stands in the file, nil for nothing. It is never changed
	// once it is here.
	record atomic.Pointer[Prepared]
	// dirty: a write failed half way, the slot must be cleared before it is
	// free again.
	dirty atomic.Bool
}

type slotState uint64

const (
	slotFree    slotState = iota // nobody's
	slotClaimed                  // reserved by the holder of the ticket
	slotWriting                  // that holder is writing it
	slotLive                     // has a record; only slow changes touch it
)

func word(ticket uint64, s slotState) uint64 { return ticket<<2 | uint64(s) }

// Slot is a reserved place in the file. Its zero value is not reserved.
type Slot struct {
	index  int
	ticket uint64
}

// move changes the state if the slot still has this ticket and state.
func (s *slot) move(ticket uint64, from, to slotState) bool {
	return s.word.CompareAndSwap(word(ticket, from), word(ticket, to))
}

// claim takes a free slot.
func (w *Writer) claim() (Slot, bool) {
	for i := range w.slots {
		old := w.slots[i].word.Load()
		if slotState(old&3) != slotFree {
			continue
		}
		ticket := old>>2 + 1
		if w.slots[i].word.CompareAndSwap(old, word(ticket, slotClaimed)) {
			return Slot{index: i, ticket: ticket}, true
		}
	}
	return Slot{}, false
}

// WriteIntent writes a prepared record, with the numbers of the decision, as
// an intent. After it returned, every reader sees the hold. It is made for the
// real-time thread: it allocates nothing, takes no lock that slow code holds,
// and does two pwrites to memory pages that exist already.
//
// On success the slot and p belong to the Writer. After an error there is no
// hold and the slot is still reserved, except with ErrSlot (it was not).
// ErrUsed says that p was written before, ErrInvalid that the ID is 0 or out of
// range.
func (w *Writer) WriteIntent(s Slot, p *Prepared, n *Numbers) error {
	if n.ID == 0 || n.ID > maxID {
		return ErrInvalid
	}
	if s.ticket == 0 {
		return ErrSlot
	}
	sl := &w.slots[s.index]
	if !sl.move(s.ticket, slotClaimed, slotWriting) {
		return ErrSlot
	}
	if !p.used.CompareAndSwap(false, true) {
		sl.move(s.ticket, slotWriting, slotClaimed)
		return ErrUsed
	}
	p.complete(n)
	published := false
	for {
		f := w.file.Load()
		err := w.store(f, s.index, p)
		if err == nil && !published {
			sl.record.Store(p)
			sl.move(s.ticket, slotWriting, slotLive)
			published = true
		}
		// Repair may have put a new file in place meanwhile. It copies every
		// record it finds after that, so either it found p or it is written
		// again here.
		if w.file.Load() != f {
			continue
		}
		if err != nil {
			w.withdraw(s, p, published)
			return err
		}
		w.signal()
		return nil
	}
}

// withdraw takes back an intent that could not be written.
func (w *Writer) withdraw(s Slot, p *Prepared, published bool) {
	sl := &w.slots[s.index]
	sl.dirty.Store(true)
	if published {
		if sl.record.CompareAndSwap(p, nil) {
			sl.move(s.ticket, slotLive, slotClaimed)
		}
		return
	}
	p.used.Store(false)
	sl.move(s.ticket, slotWriting, slotClaimed)
}

// store writes a record and then the generation.
func (w *Writer) store(f *os.File, i int, p *Prepared) error {
	if _, err := f.WriteAt(p.buf[:], slotOffset(i)); err != nil {
		return err
	}
	return w.bumpFrom(f, &p.generation)
}

// bump gives the file another generation. Two threads may write theirs in
// either order: each value is written once only, so that no reader can take a
// later state of the file for one it knows.
func (w *Writer) bump(f *os.File) error { return w.bumpFrom(f, new([8]byte)) }

// bumpFrom is bump with the memory to write from, for who must not allocate.
func (w *Writer) bumpFrom(f *os.File, b *[8]byte) error {
	binary.LittleEndian.PutUint64(b[:], w.generation.Add(1))
	_, err := f.WriteAt(b[:], offGeneration)
	return err
}
