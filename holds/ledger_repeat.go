package holds

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"go.etcd.io/bbolt"
)

// Repeat is how often a pod was evicted, for its back-off.
type Repeat struct {
	Count uint32
	// Last is when it was evicted last (UTC).
	Last time.Time
}

// repeatSize is count (4 bytes), last (8, unix nanoseconds) and the CRC-32C of
// both and the UID (4), little endian.
const repeatSize = 16

func encodeRepeat(uid string, r Repeat) ([]byte, error) {
	ns, err := unixNano(r.Last)
	if err != nil {
		return nil, err
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, repeatSize), r.Count)
	b = binary.LittleEndian.AppendUint64(b, uint64(ns))
	return binary.LittleEndian.AppendUint32(b, repeatSum(uid, b)), nil
}

func decodeRepeat(uid string, b []byte) (Repeat, error) {
	if len(b) != repeatSize {
		return Repeat{}, fmt.Errorf("%w: count of pod %.64q has %d bytes, want %d", ErrBadRecord, uid, len(b), repeatSize)
	}
	if repeatSum(uid, b[:12]) != binary.LittleEndian.Uint32(b[12:]) {
		return Repeat{}, fmt.Errorf("%w: count of pod %.64q has a wrong checksum", ErrBadRecord, uid)
	}
	return Repeat{
		Count: binary.LittleEndian.Uint32(b),
		Last:  fromUnixNano(int64(binary.LittleEndian.Uint64(b[4:]))),
	}, nil
}

func repeatSum(uid string, b []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(uid), castagnoli), castagnoli, b)
}

// SetRepeat stores how often a pod was evicted and when last.
func (l *Ledger) SetRepeat(uid string, n uint32, last time.Time) error {
	if uid == "" || len(uid) > MaxUID {
		return fmt.Errorf("storing a count: %w: uid has %d bytes, want 1 to %d", ErrInvalid, len(uid), MaxUID)
	}
	v, err := encodeRepeat(uid, Repeat{Count: n, Last: last})
	if err != nil {
		return fmt.Errorf("storing the count of pod %q: %w: %w", uid, ErrInvalid, err)
	}
	return l.update(func(_ *database, tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketRepeats)
		if err != nil {
			return err
		}
		if bytes.Equal(b.Get([]byte(uid)), v) {
			return errUnchanged
		}
		return b.Put([]byte(uid), v)
	})
}

// Repeats returns the counts of all pods by UID. One that is damaged is left
// out and logged.
func (l *Ledger) Repeats() (map[string]Repeat, error) {
	found := make(map[string]Repeat)
	err := l.view(func(tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketRepeats)
		if err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			r, err := decodeRepeat(string(k), v)
			if err != nil {
				l.log.WithError(err).WithField("path", l.path).Warn("left out a damaged count of the ledger")
				return nil
			}
			found[string(k)] = r
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// DeleteRepeat forgets a pod; one that is not known is no error.
func (l *Ledger) DeleteRepeat(uid string) error {
	return l.update(func(_ *database, tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketRepeats)
		if err != nil {
			return err
		}
		if b.Get([]byte(uid)) == nil {
			return errUnchanged
		}
		return b.Delete([]byte(uid))
	})
}
