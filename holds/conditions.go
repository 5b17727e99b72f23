package holds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Conditions are the node's pressures as the evictor sees them. They are for
// the proxy's admission of new pods and mean nothing once they expired: an
// evictor that is gone must not keep pods out.
type Conditions struct {
	Memory, Disk, PID bool
	// Since is when the oldest of them began.
	Since time.Time
	// Expires is when they end unless they are set again.
	Expires time.Time
}

// Any says whether the node is under any pressure.
func (c Conditions) Any() bool { return c.Memory || c.Disk || c.PID }

// ConditionsLifetime is the most that Expires may lie ahead. It bounds what a
// clock that was set back can make of conditions nobody renews.
const ConditionsLifetime = time.Minute

// ErrBadConditions says that the conditions in the file are torn or otherwise
// damaged.
var ErrBadConditions = errors.New("bad conditions in the holds file")

// The field of the header: layout and flags, two times, and a checksum of its
// own, because it changes while the daemon runs and the header's does not.
const (
	conditionsSize   = 64
	conditionsLayout = 1

	offCondLayout  = 0
	offCondFlags   = 1
	offCondSince   = 8
	offCondExpires = 16
	offCondCRC     = 60

	flagMemory = 1
	flagDisk   = 2
	flagPID    = 4
)

// encodeConditions returns the field; all zeros without a condition.
func encodeConditions(c Conditions) ([conditionsSize]byte, error) {
	var b [conditionsSize]byte
	if !c.Any() {
		return b, nil
	}
	since, err := unixNano(c.Since)
	if err != nil {
		return b, fmt.Errorf("%w: since: %w", ErrInvalid, err)
	}
	expires, err := unixNano(c.Expires)
	switch {
	case err != nil:
		return b, fmt.Errorf("%w: expires: %w", ErrInvalid, err)
	case expires == 0 || expires <= since:
		return b, fmt.Errorf("%w: conditions that end before they begin", ErrInvalid)
	}
	b[offCondLayout] = conditionsLayout
	for _, f := range []struct {
		on   bool
		flag byte
	}{{c.Memory, flagMemory}, {c.Disk, flagDisk}, {c.PID, flagPID}} {
		if f.on {
			b[offCondFlags] |= f.flag
		}
	}
	binary.LittleEndian.PutUint64(b[offCondSince:], uint64(since))
	binary.LittleEndian.PutUint64(b[offCondExpires:], uint64(expires))
	sealConditions(b[:])
	return b, nil
}

func sealConditions(b []byte) {
	binary.LittleEndian.PutUint32(b[offCondCRC:], crc32.Checksum(b[:offCondCRC], castagnoli))
}

// decodeConditions reads the field. Zeros are no condition; what is not whole is
// ErrBadConditions.
func decodeConditions(b []byte) (Conditions, error) {
	if len(b) != conditionsSize {
		return Conditions{}, fmt.Errorf("%w: %d bytes, want %d", ErrBadConditions, len(b), conditionsSize)
	}
	if isZero(b) {
		return Conditions{}, nil
	}
	want, got := binary.LittleEndian.Uint32(b[offCondCRC:]), crc32.Checksum(b[:offCondCRC], castagnoli)
	if want != got {
		return Conditions{}, fmt.Errorf("%w: checksum %08x, computed %08x", ErrBadConditions, want, got)
	}
	// Another version may know conditions that this one does not; what this one
	// does not know must not keep pods out.
	if b[offCondLayout] != conditionsLayout {
		return Conditions{}, fmt.Errorf("%w: layout %d, want %d", ErrBadConditions, b[offCondLayout], conditionsLayout)
	}
	flags := b[offCondFlags]
	c := Conditions{
		Memory: flags&flagMemory != 0, Disk: flags&flagDisk != 0, PID: flags&flagPID != 0,
		Since: fromUnixNano(getInt64(b, offCondSince)), Expires: fromUnixNano(getInt64(b, offCondExpires)),
	}
	if _, err := encodeConditions(c); err != nil { // what could not have been written
		return Conditions{}, fmt.Errorf("%w: %w", ErrBadConditions, err)
	}
	if !c.Any() {
		return Conditions{}, nil
	}
	return c, nil
}

// valid returns the conditions if they hold at now, otherwise none.
func (c Conditions) valid(now time.Time) Conditions {
	if !now.Before(c.Expires) || c.Expires.Sub(now) > ConditionsLifetime {
		return Conditions{}
	}
	return c
}

// SetConditions publishes the node's conditions until c.Expires, which may lie
// at most ConditionsLifetime ahead; it is called again while they last. The
// zero value takes them back. The error wraps ErrInvalid for times that cannot
// be stored.
//
// The generation stays as it is: conditions are read on their own.
func (w *Writer) SetConditions(c Conditions) error {
	b, err := encodeConditions(c)
	if err != nil {
		return err
	}
	w.slow.Lock()
	defer w.slow.Unlock()
	if err := w.ready(); err != nil {
		return err
	}
	if !c.Any() && w.noConditions {
		return nil // each write makes readers look at the records again
	}
	w.noConditions = false
	if _, err := w.file.Load().WriteAt(b[:], offConditions); err != nil {
		return fmt.Errorf("writing the conditions: %w", err)
	}
	w.noConditions = !c.Any()
	return nil
}

// Conditions returns the node's conditions. Like a lookup it never fails: no
// file, a damaged field and conditions that expired are none. ConditionsProblem
// tells why.
func (r *Reader) Conditions() Conditions {
	c, err := r.conditionsNow()
	if err != nil {
		r.conditionsProblem.Store(&problem{err: fmt.Errorf("%s: %w", r.path, err)})
	} else if r.conditionsProblem.Load() != nil {
		r.conditionsProblem.Store(nil)
	}
	return c.valid(time.Now())
}

// conditionsNow reads the conditions that stand in the file.
func (r *Reader) conditionsNow() (Conditions, error) {
	if r.closed.Load() {
		return Conditions{}, nil
	}
	var st unix.Stat_t
	if err := statRetry(r.path, &st); err != nil {
		return Conditions{}, r.missing(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Conditions{}, fmt.Errorf("%w: not a regular file", ErrBadHeader)
	}
	// A descriptor of its own: this is asked for new pods only, and then there
	// is no descriptor that another lookup could close meanwhile.
	f, err := r.open(&st, true)
	if err != nil {
		return Conditions{}, r.missing(err)
	}
	defer func() { _ = f.f.Close() }() // read only: nothing can be lost
	for attempt := 0; ; attempt++ {
		c, err := readConditions(f)
		if err == nil || !errors.Is(err, ErrBadConditions) || attempt == tornAttempts {
			return c, err
		}
		runtime.Gosched() // the writer may be in the middle of it
	}
}

func readConditions(f *readerFile) (Conditions, error) {
	var b [headerUsed]byte
	n, err := f.f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Conditions{}, err
	}
	if _, err := decodeHeader(b[:n]); err != nil {
		return Conditions{}, err
	}
	return decodeConditions(b[offConditions : offConditions+conditionsSize])
}

// ConditionsProblem returns what was wrong with the conditions when they were
// last asked for; nil when they were whole or the file is not there.
func (r *Reader) ConditionsProblem() error {
	if p := r.conditionsProblem.Load(); p != nil {
		return p.err
	}
	return nil
}
