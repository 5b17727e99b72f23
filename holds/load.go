package holds

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fileMode lets everybody read: the proxy may run as another user, and without
// capabilities even root needs the permission.
const fileMode = 0o644

// generationStep is how far a new writer moves the generation: farther than
// the last one can have got without it showing in the file.
const generationStep = 1 << 16

// uninterrupted is a system call that begins anew when a signal ended it: the Go
// runtime sends itself some, and allocating on a tmpfs ends at any.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// load opens the file or makes one, and fills the slots.
func (w *Writer) load() error {
	f, h, err := w.openExisting()
	if err != nil {
		return err
	}
	if f == nil {
		h = header{created: time.Now().UnixNano(), idMark: 1}
		// Readers that know an older file know it by its inode, but a
		// generation they have not seen costs nothing.
		h.generation = uint64(h.created)
		if f, err = w.create(h); err != nil {
			return err
		}
	}
	w.file.Store(f)
	w.created = h.created
	w.generation.Store(h.generation + generationStep)
	if h.idMark == 0 {
		w.problem(fmt.Errorf("%s: the mark of ids is damaged; going on after the greatest id in use", w.path))
		h.idMark = 1
	}
	w.idMark.Store(h.idMark)
	w.lastID.Store(h.idMark - 1)
	dropped, err := w.loadRecords(f)
	if err != nil {
		return err
	}
	var zero [RecordSize]byte
	for _, i := range dropped {
		if _, err := f.WriteAt(zero[:], slotOffset(i)); err != nil {
			return fmt.Errorf("dropping a record: %w", err)
		}
	}
	// The whole file gets its memory now: with the node out of memory a write
	// must not need a page.
	err = uninterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, fileSize) })
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("allocating %s: %w", w.path, err)
	}
	if err := w.storeMark(); err != nil {
		return err
	}
	if err := w.bump(f); err != nil {
		return fmt.Errorf("writing the generation: %w", err)
	}
	return nil
}

func (w *Writer) problem(err error) { w.problems = append(w.problems, err) }

// openExisting opens a file that can be gone on with. It returns nil when there
// is none; one that is none is renamed out of the way.
func (w *Writer) openExisting() (*os.File, header, error) {
	st, err := os.Lstat(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, header{}, nil
	}
	if err != nil {
		return nil, header{}, fmt.Errorf("opening the holds file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, header{}, w.moveAway(fmt.Errorf("%w: not a regular file but %v", ErrBadHeader, st.Mode().Type()))
	}
	f, err := os.OpenFile(w.path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, header{}, fmt.Errorf("opening the holds file: %w", err)
	}
	var b [headerSize]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, header{}, errors.Join(fmt.Errorf("reading the header: %w", err), f.Close())
	}
	h, err := decodeHeader(b[:n])
	if err != nil {
		return nil, header{}, errors.Join(f.Close(), w.moveAway(err))
	}
	switch {
	case st.Size() < fileSize:
		w.problem(fmt.Errorf("%s: %w: the file has %d bytes, want %d; records behind that are lost",
			w.path, ErrBadRecord, st.Size(), fileSize))
	case st.Size() > fileSize:
		w.problem(fmt.Errorf("%s: the file has %d bytes, want %d; cut to that", w.path, st.Size(), fileSize))
		if err := f.Truncate(fileSize); err != nil {
			return nil, header{}, errors.Join(fmt.Errorf("cutting the holds file: %w", err), f.Close())
		}
	}
	return f, h, nil
}

// moveAway renames what stands at the file's path, for a person to look at.
func (w *Writer) moveAway(why error) error {
	to := brokenName(w.path)
	if err := os.Rename(w.path, to); err != nil {
		return fmt.Errorf("moving a broken holds file away (%w): %w", why, err)
	}
	w.problem(fmt.Errorf("%s: %w; renamed to %s and a new file started", w.path, why, to))
	return nil
}

// create makes a whole file aside and puts it in place in one step: readers
// see the old one or the new one, never half of one.
func (w *Writer) create(h header) (_ *os.File, err error) {
	tmp := w.path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return nil, fmt.Errorf("creating the holds file: %w", err)
	}
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, fmt.Errorf("creating the holds file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("creating the holds file: %w", err), f.Close(), os.Remove(tmp))
		}
	}()
	if err := f.Chmod(fileMode); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(encodeHeader(h)[:], 0); err != nil {
		return nil, err
	}
	// Zeros rather than a hole, so that every page exists also where fallocate
	// does not.
	zero := make([]byte, 64*RecordSize)
	for at := int64(headerSize); at < fileSize; at += int64(len(zero)) {
		if _, err := f.WriteAt(zero, at); err != nil {
			return nil, err
		}
	}
	for i := range w.slots {
		if p := w.slots[i].record.Load(); p != nil {
			if _, err := f.WriteAt(p.buf[:], slotOffset(i)); err != nil {
				return nil, err
			}
		}
	}
	err = os.Rename(tmp, w.path)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EEXIST) {
		// Somebody made a directory there: it is put aside with what is in it.
		if err = os.Rename(w.path, brokenName(w.path)); err == nil {
			err = os.Rename(tmp, w.path)
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// brokenName is where what stands at path is put for a person to look at.
func brokenName(path string) string { return fmt.Sprintf("%s.broken-%d", path, time.Now().UnixNano()) }

// loadRecords fills the slots and returns those to clear: damaged ones and the
// older of two copies.
func (w *Writer) loadRecords(f *os.File) (dropped []int, err error) {
	byID := make(map[uint64]int)
	b := make([]byte, RecordSize)
	for i := range w.slots {
		n, err := f.ReadAt(b, slotOffset(i))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading slot %d: %w", i, err)
		}
		if n == 0 {
			break // the short file was reported
		}
		r, revision, err := decode(b[:n])
		if err != nil {
			w.problem(fmt.Errorf("%s: slot %d dropped: %w", w.path, i, err))
			dropped = append(dropped, i)
			continue
		}
		if r.State == Free {
			continue
		}
		if j, ok := byID[r.ID]; ok {
			// The last writer ended between writing the new copy and clearing
			// the old one.
			if w.slots[j].record.Load().revision() >= revision {
				dropped = append(dropped, i)
				continue
			}
			dropped = append(dropped, j)
			w.slots[j].record.Store(nil)
			w.slots[j].word.Store(word(0, slotFree))
		}
		byID[r.ID] = i
		p := new(Prepared)
		p.used.Store(true)
		copy(p.buf[:], b)
		w.slots[i].record.Store(p)
		w.slots[i].word.Store(word(0, slotLive))
		if r.ID > w.lastID.Load() {
			w.lastID.Store(r.ID)
		}
	}
	return dropped, nil
}
