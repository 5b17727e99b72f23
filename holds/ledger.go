package holds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	"go.etcd.io/bbolt"
)

// Buckets of the ledger. IDs are keys in big endian, so that they sort.
const (
	bucketMeta      = "meta"      // text -> text
	bucketHolds     = "holds"     // ID -> record as in the holds file
	bucketDecisions = "decisions" // ID -> JSON
	bucketRepeats   = "repeats"   // pod UID -> see ledger_repeat.go
	bucketNotices   = "notices"   // ID -> JSON

	keyFormat    = "format"
	keyBootID    = "bootID"
	ledgerFormat = "1"
)

// Ledger is the durable copy of the holds, with the history of decisions and
// how often each pod was evicted. Every change is on disk (fsync) when the
// method returns. All methods can be called from any goroutine; reading does
// not wait for writing.
//
// The file can be damaged at any time: bbolt reads it through a mapping, where
// that is a panic or a SIGBUS. Both become errors, and the next change renames
// the file and starts a new one (see Recovered).
type Ledger struct {
	path string
	log  logrus.FieldLogger
	keep int                      // decisions
	db   atomic.Pointer[database] // nil after Close

	// writing lets one change at a time reach the disk, as bbolt does itself;
	// only others that have to reach the disk wait for it. bbolt's own lock is
	// not enough: after a panic inside of it nobody would give it back.
	writing sync.Mutex

	recovered atomic.Pointer[problem]
}

// OpenLedger opens the ledger at path, or creates it (0600). A file that is
// damaged is renamed to <path>.corrupt-<unix nanoseconds> and a new one is
// started; Recovered then has the reason. An error means that there is no
// ledger at all: the disk is full, the path is not permitted, or another
// process has it open (ErrLocked).
func OpenLedger(path string, log logrus.FieldLogger) (*Ledger, error) {
	l := &Ledger{path: path, log: log, keep: decisionsKept}
	d, err := l.open()
	if err != nil {
		return nil, err
	}
	l.db.Store(d)
	return l, nil
}

// Recovered returns why the ledger was started anew, nil if it was not.
func (l *Ledger) Recovered() error {
	if p := l.recovered.Load(); p != nil {
		return p.err
	}
	return nil
}

// Close closes the file.
func (l *Ledger) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	d := l.db.Swap(nil)
	if d == nil {
		return nil
	}
	if err := d.close(); err != nil {
		return fmt.Errorf("closing the ledger %s: %w", l.path, err)
	}
	return nil
}

// view runs fn in a reading transaction.
func (l *Ledger) view(fn func(*bbolt.Tx) error) error {
	d := l.db.Load()
	if d == nil {
		return fmt.Errorf("ledger %s: %w", l.path, ErrClosed)
	}
	return l.run(d, func() error { return d.bolt.View(fn) })
}

// update runs fn in a writing transaction. fn may run twice: when the file
// turns out to be damaged it runs again on a new one. fn returns errUnchanged
// to end without writing.
func (l *Ledger) update(fn func(*database, *bbolt.Tx) error) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	for attempt := 0; ; attempt++ {
		d := l.db.Load()
		if d == nil {
			return fmt.Errorf("ledger %s: %w", l.path, ErrClosed)
		}
		if d.failed.Load() != nil {
			fresh, err := l.restart(d)
			if err != nil {
				return err
			}
			l.db.Store(fresh)
			d = fresh
		}
		err := l.run(d, func() error {
			return d.bolt.Update(func(tx *bbolt.Tx) error { return fn(d, tx) })
		})
		if errors.Is(err, errUnchanged) {
			return nil
		}
		if !errors.Is(err, errDamaged) || attempt > 0 {
			return err
		}
	}
}

// errUnchanged ends a writing transaction that has nothing to write.
var errUnchanged = errors.New("unchanged")

// run calls fn, which uses d, and notes when that turns out to be damaged.
func (l *Ledger) run(d *database, fn func() error) error {
	if p := d.failed.Load(); p != nil {
		return fmt.Errorf("ledger %s: %w; the next change starts a new one", l.path, p.err)
	}
	err := guard(fn)
	if errors.Is(err, errDamaged) {
		d.failed.Store(&problem{err: err})
	}
	if err == nil || errors.Is(err, errUnchanged) {
		return err
	}
	return fmt.Errorf("ledger %s: %w", l.path, err)
}

// bucket returns a bucket that open has made sure is there.
func bucket(tx *bbolt.Tx, name string) (*bbolt.Bucket, error) {
	b := tx.Bucket([]byte(name))
	if b == nil {
		return nil, fmt.Errorf("%w: no bucket %q", errDamaged, name)
	}
	return b, nil
}

func idKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// Save replaces the set of holds. Only what differs is written, nothing at all
// when nothing does.
func (l *Ledger) Save(records []Record) error {
	want := make(map[uint64]*[RecordSize]byte, len(records))
	for _, r := range records {
		if r.ID == 0 || r.ID > maxID {
			return fmt.Errorf("saving the holds: %w: id %d is out of range", ErrInvalid, r.ID)
		}
		buf := new([RecordSize]byte)
		if err := encode(buf, r, 0); err != nil {
			return fmt.Errorf("saving hold %d: %w", r.ID, err)
		}
		want[r.ID] = buf
	}
	return l.update(func(_ *database, tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketHolds)
		if err != nil {
			return err
		}
		var gone [][]byte
		same := make(map[uint64]bool, len(want))
		err = b.ForEach(func(k, v []byte) error {
			if len(k) != 8 || want[binary.BigEndian.Uint64(k)] == nil {
				gone = append(gone, bytes.Clone(k))
				return nil
			}
			id := binary.BigEndian.Uint64(k)
			same[id] = bytes.Equal(v, want[id][:])
			return nil
		})
		if err != nil {
			return err
		}
		changes := len(gone)
		for _, k := range gone {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		for id, buf := range want {
			if same[id] {
				continue
			}
			changes++
			if err := b.Put(idKey(id), buf[:]); err != nil {
				return err
			}
		}
		if changes == 0 {
			return errUnchanged
		}
		return nil
	})
}

// Load returns the saved holds by ID, and the boot they belong to. A record
// that is damaged is left out and logged.
func (l *Ledger) Load() (records []Record, bootID string, err error) {
	err = l.view(func(tx *bbolt.Tx) error {
		holds, err := bucket(tx, bucketHolds)
		if err != nil {
			return err
		}
		meta, err := bucket(tx, bucketMeta)
		if err != nil {
			return err
		}
		bootID = string(meta.Get([]byte(keyBootID)))
		return holds.ForEach(func(k, v []byte) error {
			r, _, err := decode(v)
			if err == nil && (len(k) != 8 || binary.BigEndian.Uint64(k) != r.ID) {
				err = fmt.Errorf("%w: key %x, id %d", ErrBadRecord, k, r.ID)
			}
			if err != nil {
				l.log.WithError(err).WithField("path", l.path).Warn("left out a damaged hold of the ledger")
				return nil
			}
			records = append(records, r)
			return nil
		})
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(records, func(a, b Record) int { return compareIDs(a.ID, b.ID) })
	return records, bootID, nil
}

// SetBootID stores the boot the holds belong to.
func (l *Ledger) SetBootID(id string) error {
	return l.update(func(_ *database, tx *bbolt.Tx) error {
		b, err := bucket(tx, bucketMeta)
		if err != nil {
			return err
		}
		if have := b.Get([]byte(keyBootID)); have != nil && string(have) == id {
			return errUnchanged
		}
		return b.Put([]byte(keyBootID), []byte(id))
	})
}
