package holds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// Writer is the only writer of a holds file. All methods can be called from
// any goroutine; WriteIntent and NextID may be called from a real-time thread.
type Writer struct {
	dir, path string
	problems  []error // filled when opening, read-only afterwards

	file       atomic.Pointer[os.File]
	generation atomic.Uint64
	lastID     atomic.Uint64 // the greatest ID given out
	idMark     atomic.Uint64 // what the file says: no ID at or above it was given out
	slots      [Slots]slot
	changed    chan struct{}

	// slow puts the slow changes in an order. It is held across a pwrite to
	// memory pages that exist already; only other slow changes wait for it,
	// neither WriteIntent nor NextID nor Records.
	slow    sync.Mutex
	lock    *os.File // the flock; guarded by slow
	created int64    // of the header, unix nanoseconds; guarded by slow
	pin     []byte   // see pinPages; guarded by slow
	closed  bool     // guarded by slow
	// noConditions: the file is known to have none; guarded by slow.
	noConditions bool

	// mirror makes moving a record from one slot to another one step for
	// Records. Never held across I/O.
	mirror sync.Mutex
}

// OpenWriter makes this process the writer of the holds file in dir, which is
// created (0711) if it is not there. The records of a whole file are kept. A
// file that is not a holds file of this version is renamed to
// holds.broken-<unix nanoseconds> and a new one started; that and every record
// that had to be dropped stand in Problems. The error wraps ErrLocked when
// there is another writer.
func OpenWriter(dir string) (*Writer, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("creating the directory of the holds file: %w", err)
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		dir:     dir,
		path:    filepath.Join(dir, FileName),
		lock:    lock,
		changed: make(chan struct{}, 1),
	}
	if err := w.load(); err != nil {
		if f := w.file.Load(); f != nil {
			_ = f.Close()
		}
		return nil, errors.Join(err, lock.Close())
	}
	w.pinPages()
	w.signal() // what is in the file may not be in the ledger yet
	return w, nil
}

// makeDir creates dir so that everybody can pass through it and nobody else
// can list it; a directory that is there keeps its mode.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711) // whatever the umask is
}

// Close gives up the file. The records stay in it and hold on.
func (w *Writer) Close() error {
	w.slow.Lock()
	defer w.slow.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	// The next writer goes on without a gap.
	w.idMark.Store(w.lastID.Load() + 1)
	err := w.storeMark()
	w.unpinPages()
	return errors.Join(err, w.file.Load().Close(), w.lock.Close())
}

// Problems lists what was wrong with the file when it was opened: records that
// were dropped, a file that was replaced.
func (w *Writer) Problems() []error { return slices.Clone(w.problems) }

// Changed is signalled after every change. It has room for one signal, so that
// nobody ever waits to send it.
func (w *Writer) Changed() <-chan struct{} { return w.changed }

func (w *Writer) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Records returns all records by ID. It reads memory, not the file.
func (w *Writer) Records() []Record {
	var found []*Prepared
	w.mirror.Lock()
	for i := range w.slots {
		if p := w.slots[i].record.Load(); p != nil {
			found = append(found, p)
		}
	}
	w.mirror.Unlock()
	records := make([]Record, 0, len(found))
	for _, p := range found {
		// It was encoded or checked by this process and is never changed.
		if r, _, err := decode(p.buf[:]); err == nil {
			records = append(records, r)
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return compareIDs(a.ID, b.ID) })
	return records
}

func compareIDs(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// idBlock is how many IDs one write of the mark covers; a crash leaves at most
// this gap.
const idBlock = 64

// NextID gives out an ID, greater than all before, also those before a restart.
func (w *Writer) NextID() uint64 {
	id := w.lastID.Add(1)
	// Failing to write the mark is no reason to have no ID: IDs that became
	// records rise across restarts all the same.
	_ = w.coverID(id)
	return id
}

// AdvanceID makes NextID give out only IDs above id. It is called with the
// ledger's greatest ID after a boot, when the holds file is new.
func (w *Writer) AdvanceID(id uint64) error {
	if id > maxID {
		return fmt.Errorf("%w: id %d is out of range", ErrInvalid, id)
	}
	for {
		last := w.lastID.Load()
		if last >= id || w.lastID.CompareAndSwap(last, id) {
			return w.coverID(id)
		}
	}
}

// coverID sees to it that the mark in the file is above id.
func (w *Writer) coverID(id uint64) error {
	for {
		mark := w.idMark.Load()
		if id < mark {
			return nil
		}
		if w.idMark.CompareAndSwap(mark, id+idBlock) {
			return w.storeMark()
		}
	}
}

// storeMark writes the mark. Two threads can be here at once and the slower one
// would write the smaller number last: each looks again after writing, so that
// the last one to write has written the latest.
func (w *Writer) storeMark() error {
	for {
		mark := w.idMark.Load()
		b := encodeMark(mark)
		if _, err := w.file.Load().WriteAt(b[:], offIDMark); err != nil {
			return fmt.Errorf("writing the mark of ids: %w", err)
		}
		if w.idMark.Load() == mark {
			return nil
		}
	}
}
