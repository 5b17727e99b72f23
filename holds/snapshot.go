package holds

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// snapshot is the content of a holds file at one moment. It is never changed.
type snapshot struct {
	file       *readerFile
	size       int64
	changed    unix.Timespec // the time of the last write, whoever did it
	generation uint64

	records   []Record // newest first
	byUID     map[string][]Record
	bySandbox map[string][]Record
	problem   error // damaged records
}

// scanAttempts is how often a file is read because it changed during the
// reading. One takes about 200 µs, and a writer that changes holds all that
// time is not to be expected; but then a hold that moves between the ends of
// the file all the time is missed by one reading in four.
const scanAttempts = 16

// tornAttempts is how often a record is read again that may just be being
// written.
const tornAttempts = 4

// chunk is how much is read at once, in bytes.
const chunk = 64 * RecordSize

// revised is a record with what tells two copies of it apart.
type revised struct {
	record   Record
	revision uint32
}

// read returns the content of f.
func (r *Reader) read(f *readerFile, st *unix.Stat_t) (*snapshot, error) {
	known := r.known.Load()
	var buf []byte
	var all map[uint64]revised
	for attempt := 0; ; attempt++ {
		before, err := readHeader(f)
		if err != nil {
			return nil, err
		}
		if known != nil && known.file == f && known.generation == before.generation &&
			known.size == st.Size && known.changed == st.Mtim {
			return known, nil
		}
		if buf == nil {
			buf = make([]byte, chunk)
			all = make(map[uint64]revised)
		}
		found := make(map[uint64]revised)
		problem, err := scan(f, buf, found)
		if err != nil {
			return nil, err
		}
		after, err := readHeader(f)
		if err != nil {
			return nil, err
		}
		if before.generation == after.generation {
			s := index(found)
			s.file, s.size, s.changed, s.generation = f, st.Size, st.Mtim, before.generation
			s.problem = problem
			r.known.Store(s)
			return s, nil
		}
		// The writer moves changed records to other slots, so one that moved
		// against the direction of reading is missed. What any of the readings
		// saw was there while this lookup ran.
		for id, v := range found {
			if have, ok := all[id]; !ok || v.revision > have.revision {
				all[id] = v
			}
		}
		if attempt == scanAttempts-1 {
			return index(all), nil // not kept: the next lookup reads again
		}
	}
}

// readHeader reads and checks the header.
func readHeader(f *readerFile) (header, error) {
	var b [headerUsed]byte
	n, err := f.f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, err
	}
	return decodeHeader(b[:n])
}

// scan reads all records into found. What is damaged is reported as the first
// value and left out; the second is an error of reading.
func scan(f *readerFile, buf []byte, found map[uint64]revised) (damaged, err error) {
	for first := 0; first < Slots; first += chunk / RecordSize {
		n, err := f.f.ReadAt(buf, slotOffset(first))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		for i := 0; i < chunk/RecordSize; i++ {
			from := i * RecordSize
			if from >= n {
				return errors.Join(damaged, fmt.Errorf("%w: the file ends before slot %d", ErrBadRecord, first+i)), nil
			}
			to := min(from+RecordSize, n)
			v, err := decodeAgain(f, first+i, buf[from:to])
			if err != nil {
				// One is enough to tell, and a file of garbage has a thousand.
				if damaged == nil {
					damaged = fmt.Errorf("slot %d: %w", first+i, err)
				}
				continue
			}
			if v.record.State == Free {
				continue
			}
			if have, ok := found[v.record.ID]; !ok || v.revision > have.revision {
				found[v.record.ID] = v
			}
		}
	}
	return damaged, nil
}

// decodeAgain decodes a record, and reads it again a few times when it is not
// whole: the writer may be in the middle of it.
func decodeAgain(f *readerFile, i int, b []byte) (revised, error) {
	for attempt := 0; ; attempt++ {
		record, revision, err := decode(b)
		if err == nil || attempt == tornAttempts || len(b) < RecordSize {
			return revised{record, revision}, err
		}
		runtime.Gosched()
		n, readErr := f.f.ReadAt(b, slotOffset(i))
		if readErr != nil || n < RecordSize {
			return revised{}, err
		}
	}
}

// index builds the maps of a snapshot.
func index(found map[uint64]revised) *snapshot {
	s := &snapshot{
		records:   make([]Record, 0, len(found)),
		byUID:     make(map[string][]Record, len(found)),
		bySandbox: make(map[string][]Record, len(found)),
	}
	for _, v := range found {
		s.records = append(s.records, v.record)
	}
	slices.SortFunc(s.records, func(a, b Record) int { return compareIDs(b.ID, a.ID) })
	for _, rec := range s.records {
		s.byUID[rec.UID] = append(s.byUID[rec.UID], rec)
		if rec.SandboxID != "" {
			s.bySandbox[rec.SandboxID] = append(s.bySandbox[rec.SandboxID], rec)
		}
	}
	return s
}
