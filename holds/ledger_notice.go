package holds

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// SetNotice keeps what is to be told, or was, of a decision under its ID; one
// with the same ID is replaced. How many are kept is for the caller to bound.
func (l *Ledger) SetNotice(id uint64, notice []byte) error {
	if id == 0 || id > maxID {
		return fmt.Errorf("keeping a notice: %w: id %d is out of range", ErrInvalid, id)
	}
	if !json.Valid(notice) {
		return fmt.Errorf("keeping notice %d: %w: not JSON: %.64q", id, ErrInvalid, notice)
	}
	return l.update(func(_ *database, tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketNotices)
		if err != nil {
			return err
		}
		if bytes.Equal(b.Get(idKey(id)), notice) {
			return errUnchanged
		}
		return b.Put(idKey(id), notice)
	})
}

// Notices returns all of them by the decision's ID. One that is damaged is left
// out and logged.
func (l *Ledger) Notices() (map[uint64]json.RawMessage, error) {
	found := make(map[uint64]json.RawMessage)
	err := l.view(func(tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketNotices)
		if err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			if len(k) != 8 || !json.Valid(v) {
				l.log.WithField("path", l.path).WithField("key", fmt.Sprintf("%x", k)).Warn("left out a damaged notice of the ledger")
				return nil
			}
			found[binary.BigEndian.Uint64(k)] = bytes.Clone(v)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// DeleteNotice forgets one; one that is not there is no error.
func (l *Ledger) DeleteNotice(id uint64) error {
	return l.update(func(_ *database, tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketNotices)
		if err != nil {
			return err
		}
		if b.Get(idKey(id)) == nil {
			return errUnchanged
		}
		return b.Delete(idKey(id))
	})
}
