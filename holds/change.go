package holds

import (
	"errors"
	"fmt"
)

// Reserve claims a slot for a record that may have to be written fast. When
// none is free the oldest released record is dropped; when nothing is released
// either, the error wraps ErrFull.
func (w *Writer) Reserve() (Slot, error) {
	w.slow.Lock()
	defer w.slow.Unlock()
	if err := w.ready(); err != nil {
		return Slot{}, err
	}
	return w.reserve()
}

// reserve is Reserve without the lock.
func (w *Writer) reserve() (Slot, error) {
	// The mark of IDs is pushed ahead here, so that the real-time thread finds
	// enough IDs covered.
	if err := w.coverID(w.lastID.Load() + idBlock/2); err != nil {
		return Slot{}, err
	}
	if s, ok := w.claim(); ok {
		return s, nil
	}
	oldest := w.oldestReleased()
	if oldest < 0 {
		return Slot{}, fmt.Errorf("%s: %w", w.path, ErrFull)
	}
	if err := w.clearSlot(oldest); err != nil {
		return Slot{}, err
	}
	w.signal()
	s, ok := w.claim()
	if !ok {
		return Slot{}, fmt.Errorf("%s: %w", w.path, ErrFull)
	}
	return s, nil
}

// oldestReleased returns the index of the record that was released first, -1
// if none is.
func (w *Writer) oldestReleased() int {
	best := -1
	var bestAt int64
	var bestID uint64
	for i := range w.slots {
		p := w.slots[i].record.Load()
		if p == nil || p.state() != Released {
			continue
		}
		if at := p.releasedAt(); best < 0 || at < bestAt || at == bestAt && p.id() < bestID {
			best, bestAt, bestID = i, at, p.id()
		}
	}
	return best
}

// Unreserve gives a reserved slot back. It does nothing when the slot was used
// or given back before.
func (w *Writer) Unreserve(s Slot) {
	if s.ticket == 0 {
		return
	}
	sl := &w.slots[s.index]
	if !sl.dirty.Load() {
		sl.move(s.ticket, slotClaimed, slotFree)
		return
	}
	// Something of a failed write may stand in the file. As long as it cannot
	// be cleared the slot stays out of use.
	if !sl.move(s.ticket, slotClaimed, slotWriting) {
		return
	}
	var zero [RecordSize]byte
	f := w.file.Load()
	if _, err := f.WriteAt(zero[:], slotOffset(s.index)); err != nil {
		return
	}
	_ = w.bump(f) // readers notice the time of the write as well
	sl.dirty.Store(false)
	sl.move(s.ticket, slotWriting, slotFree)
}

// Update replaces the record with r.ID. The error wraps ErrNotFound when there
// is none, and ErrInvalid when r cannot be stored; the old record then stands.
func (w *Writer) Update(r Record) error {
	w.slow.Lock()
	defer w.slow.Unlock()
	if err := w.ready(); err != nil {
		return err
	}
	i := w.find(r.ID)
	if i < 0 {
		return fmt.Errorf("updating hold %d: %w", r.ID, ErrNotFound)
	}
	return w.replace(i, r)
}

// Put stores a record with the ID it has, for restoring from the ledger; one
// with this ID that is there already is replaced.
func (w *Writer) Put(r Record) error {
	if r.ID == 0 || r.ID > maxID {
		return fmt.Errorf("%w: id %d is out of range", ErrInvalid, r.ID)
	}
	w.slow.Lock()
	defer w.slow.Unlock()
	if err := w.ready(); err != nil {
		return err
	}
	if err := w.AdvanceID(r.ID); err != nil {
		return fmt.Errorf("storing hold %d: %w", r.ID, err)
	}
	if i := w.find(r.ID); i >= 0 {
		return w.replace(i, r)
	}
	p := new(Prepared)
	if err := encode(&p.buf, r, 0); err != nil {
		return fmt.Errorf("storing hold %d: %w", r.ID, err)
	}
	s, err := w.reserve()
	if err != nil {
		return fmt.Errorf("storing hold %d: %w", r.ID, err)
	}
	return w.place(s, p, -1)
}

// Remove frees the slot of the record with this ID. The error wraps ErrNotFound
// when there is none.
func (w *Writer) Remove(id uint64) error {
	w.slow.Lock()
	defer w.slow.Unlock()
	if err := w.ready(); err != nil {
		return err
	}
	i := w.find(id)
	if i < 0 {
		return fmt.Errorf("removing hold %d: %w", id, ErrNotFound)
	}
	if err := w.clearSlot(i); err != nil {
		return fmt.Errorf("removing hold %d: %w", id, err)
	}
	w.signal()
	return nil
}

// ready says whether changes can be made, and mends a file that somebody
// removed or cut: a hold written to a file nobody finds would hold nothing.
func (w *Writer) ready() error {
	if w.closed {
		return fmt.Errorf("%s: writer: %w", w.path, ErrClosed)
	}
	_, err := w.repair()
	return err
}

// find returns the slot with this ID, -1 if there is none.
func (w *Writer) find(id uint64) int {
	for i := range w.slots {
		if p := w.slots[i].record.Load(); p != nil && p.id() == id {
			return i
		}
	}
	return -1
}

// replace writes r in the place of slot i's record.
func (w *Writer) replace(i int, r Record) error {
	old := w.slots[i].record.Load()
	p := new(Prepared)
	if err := encode(&p.buf, r, old.revision()+1); err != nil {
		return fmt.Errorf("updating hold %d: %w", r.ID, err)
	}
	// A pod must not be free while its record is being written, nor after a
	// kill -9 in the middle: the new copy goes elsewhere first.
	if s, ok := w.claim(); ok {
		return w.place(s, p, i)
	}
	// All slots are taken. Writing in place is the only way left.
	if err := w.store(w.file.Load(), i, p); err != nil {
		return fmt.Errorf("updating hold %d: %w", r.ID, err)
	}
	w.slots[i].record.Store(p)
	w.signal()
	return nil
}

// place writes p to a reserved slot and then frees the slot it came from.
func (w *Writer) place(s Slot, p *Prepared, from int) error {
	p.used.Store(true)
	sl := &w.slots[s.index]
	if err := w.store(w.file.Load(), s.index, p); err != nil {
		sl.dirty.Store(true)
		w.Unreserve(s)
		return fmt.Errorf("writing hold %d: %w", p.id(), err)
	}
	w.mirror.Lock()
	sl.record.Store(p)
	if from >= 0 {
		w.slots[from].record.Store(nil)
	}
	w.mirror.Unlock()
	sl.move(s.ticket, slotClaimed, slotLive)
	w.signal()
	if from < 0 {
		return nil
	}
	return w.release(from)
}

// clearSlot removes a slot's record from the file and then frees the slot.
func (w *Writer) clearSlot(i int) error {
	sl := &w.slots[i]
	old := sl.record.Swap(nil)
	if err := w.release(i); err != nil {
		sl.record.Store(old)
		return err
	}
	return nil
}

// release zeroes a live slot in the file and frees it. After an error the slot
// stays taken.
func (w *Writer) release(i int) error {
	sl := &w.slots[i]
	var zero [RecordSize]byte
	f := w.file.Load()
	_, err := f.WriteAt(zero[:], slotOffset(i))
	if err = errors.Join(err, w.bump(f)); err != nil {
		return fmt.Errorf("clearing slot %d: %w", i, err)
	}
	ticket := sl.word.Load() >> 2
	sl.move(ticket, slotLive, slotFree)
	return nil
}
