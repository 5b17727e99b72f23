package holds

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// decisionsKept is how many decisions the ledger keeps.
const decisionsKept = 10_000

// AppendDecision keeps a decision under its ID; one with the same ID is
// replaced. The newest 10,000 (by ID) are kept.
func (l *Ledger) AppendDecision(id uint64, decision []byte) error {
	if id == 0 || id > maxID {
		return fmt.Errorf("keeping a decision: %w: id %d is out of range", ErrInvalid, id)
	}
	if !json.Valid(decision) {
		return fmt.Errorf("keeping decision %d: %w: not JSON: %.64q", id, ErrInvalid, decision)
	}
	return l.update(func(d *database, tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketDecisions)
		if err != nil {
			return err
		}
		n := d.decisions
		if b.Get(idKey(id)) == nil {
			n++
		}
		if err := b.Put(idKey(id), decision); err != nil {
			return err
		}
		for c := b.Cursor(); n > l.keep; n-- {
			if k, _ := c.First(); k == nil {
				break
			}
			if err := c.Delete(); err != nil {
				return err
			}
		}
		tx.OnCommit(func() { d.decisions = n })
		return nil
	})
}

// Decisions returns up to limit decisions, newest first.
func (l *Ledger) Decisions(limit int) ([]json.RawMessage, error) {
	var found []json.RawMessage
	err := l.view(func(tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketDecisions)
		if err != nil {
			return err
		}
		c := b.Cursor()
		for k, v := c.Last(); k != nil && len(found) < limit; k, v = c.Prev() {
			// Damage that bbolt cannot see must not spoil the whole answer.
			if json.Valid(v) {
				found = append(found, bytes.Clone(v))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// LastID returns the greatest ID of any decision or hold, 0 if there is none:
// what Writer.AdvanceID needs after a boot.
func (l *Ledger) LastID() (uint64, error) {
	var last uint64
	err := l.view(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketDecisions, bucketHolds} {
			b, err := bucket(tx, name)
			if err != nil {
				return err
			}
			k, _ := b.Cursor().Last()
			if len(k) != 8 {
				continue
			}
			if id := binary.BigEndian.Uint64(k); id <= maxID {
				last = max(last, id)
			}
		}
		return nil
	})
	return last, err
}
