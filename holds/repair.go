package holds

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Repair puts the holds file back when somebody removed, replaced or cut it or
// its lock, as a clean-up of the run directory does; Reserve, Update, Put and
// Remove do the same first. It says whether something was mended. The error
// wraps ErrLocked when another process has become the writer meanwhile.
func (w *Writer) Repair() (bool, error) {
	w.slow.Lock()
	defer w.slow.Unlock()
	if w.closed {
		return false, fmt.Errorf("%s: writer: %w", w.path, ErrClosed)
	}
	return w.repair()
}

// repair is Repair without the lock.
func (w *Writer) repair() (bool, error) {
	mended, err := w.repairLock()
	if err != nil {
		return false, err
	}
	old := w.file.Load()
	if st, err := old.Stat(); err == nil && st.Mode().Perm() != fileMode {
		if err := old.Chmod(fileMode); err != nil {
			return false, fmt.Errorf("the mode of the holds file: %w", err)
		}
		mended = true
	}
	if w.sound(old) {
		return mended, nil
	}
	if err := makeDir(w.dir); err != nil {
		return false, fmt.Errorf("putting the holds file back: %w", err)
	}
	w.created = time.Now().UnixNano()
	f, err := w.create(header{
		created:    w.created,
		generation: w.generation.Add(generationStep),
		idMark:     w.idMark.Load(),
	})
	if err != nil {
		return false, fmt.Errorf("putting the holds file back: %w", err)
	}
	w.file.Store(f)
	// An intent written to the old file while the new one was filled is in
	// record by now, or its writer sees the new file and writes it again.
	for i := range w.slots {
		if p := w.slots[i].record.Load(); p != nil {
			if _, err := f.WriteAt(p.buf[:], slotOffset(i)); err != nil {
				return false, fmt.Errorf("putting the holds file back: %w", err)
			}
		}
	}
	if err := w.storeMark(); err != nil {
		return false, err
	}
	if err := w.bump(f); err != nil {
		return false, fmt.Errorf("putting the holds file back: %w", err)
	}
	w.unpinPages()
	w.pinPages()
	w.signal()
	return true, old.Close()
}

// sound says whether the path leads to f and f is whole.
func (w *Writer) sound(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || st.Size() != fileSize || !samePath(w.path, f) {
		return false
	}
	var b [headerUsed]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return false
	}
	h, err := decodeHeader(b[:])
	return err == nil && h.created == w.created
}

// repairLock takes the lock again when its file is gone: without it a second
// writer would find nobody.
func (w *Writer) repairLock() (bool, error) {
	if samePath(w.lock.Name(), w.lock) {
		return false, nil
	}
	if err := makeDir(w.dir); err != nil {
		return false, fmt.Errorf("putting the holds lock back: %w", err)
	}
	lock, err := takeLock(w.dir)
	if err != nil {
		return false, fmt.Errorf("putting the holds lock back: %w", err)
	}
	old := w.lock
	w.lock = lock
	return true, old.Close()
}

// pinPages keeps the file's pages in memory: tmpfs can be swapped out, and
// then writing an intent would wait for the swap device. The mapping is only a
// handle for mlock and is never read or written, so that cutting the file does
// no harm. Without the permission the file works all the same.
func (w *Writer) pinPages() {
	b, err := unix.Mmap(int(w.file.Load().Fd()), 0, fileSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return
	}
	if err := unix.Mlock(b); err != nil {
		_ = unix.Munmap(b)
		return
	}
	w.pin = b
}

func (w *Writer) unpinPages() {
	if w.pin != nil {
		_ = unix.Munmap(w.pin)
		w.pin = nil
	}
}
