package holds

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"
)

// Where the fields of a record stand. Texts have a fixed place and a separate
// length, so that the real-time half overwrites numbers and the signal only.
const (
	offCRC       = 0 // CRC-32C of bytes 4 to 1023
	offLayout    = 4
	offState     = 5
	offFlags     = 6
	offID        = 8
	offInode     = 16
	offThreshold = 24
	offAvailable = 32
	offKubelet   = 40
	offUsage     = 48
	offRequest   = 56
	offDecided   = 64
	offKilled    = 72
	offReleased  = 80
	offPriority  = 88
	offRepeat    = 92
	offRevision  = 96
	offLengths   = 100 // seven uint16
	offTexts     = 116

	// the sixth text is the signal
	offSignalLength = offLengths + 2*5
	offSignal       = offTexts + MaxUID + MaxNamespace + MaxName + MaxSandboxID + MaxCgroup

	recordLayout = 1
	flagFrozen   = 1
	flagSoft     = 2
)

// castagnoli is never written to; MakeTable picks the processor's own CRC-32C
// instruction where there is one.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// text is one text field of a record: its name, the most bytes, and its place.
type text struct {
	name string
	max  int
	of   func(*Record) *string
}

// texts returns the text fields in the order they stand in a record.
func texts() [7]text {
	return [7]text{
		{"uid", MaxUID, func(r *Record) *string { return &r.UID }},
		{"namespace", MaxNamespace, func(r *Record) *string { return &r.Namespace }},
		{"name", MaxName, func(r *Record) *string { return &r.Name }},
		{"sandboxID", MaxSandboxID, func(r *Record) *string { return &r.SandboxID }},
		{"cgroup", MaxCgroup, func(r *Record) *string { return &r.Cgroup }},
		{"signal", MaxSignal, func(r *Record) *string { return &r.Signal }},
		{"releaseReason", MaxReleaseReason, func(r *Record) *string { return &r.ReleaseReason }},
	}
}

// Prepared is an encoded record that only lacks the numbers of the decision.
// It can be written once; from then on it belongs to the Writer.
type Prepared struct {
	buf        [RecordSize]byte
	generation [8]byte // what is written with it to the header
	used       atomic.Bool
}

// Prepare encodes a record ahead of a decision. The error wraps ErrInvalid and
// names the field.
func Prepare(r Record) (*Prepared, error) {
	if r.State == Free {
		r.State = Intent
	}
	p := new(Prepared)
	if err := encode(&p.buf, r, 0); err != nil {
		return nil, err
	}
	return p, nil
}

// encode fills buf with r. The ID is not looked at: a Prepared gets its own
// later.
func encode(buf *[RecordSize]byte, r Record, revision uint32) error {
	if r.State < Intent || r.State > Released {
		return fmt.Errorf("%w: state %v cannot be stored", ErrInvalid, r.State)
	}
	if r.UID == "" {
		return fmt.Errorf("%w: uid is empty", ErrInvalid)
	}
	clear(buf[:])
	at := offTexts
	for i, t := range texts() {
		s := *t.of(&r)
		if len(s) > t.max {
			return fmt.Errorf("%w: %s has %d bytes, at most %d fit", ErrInvalid, t.name, len(s), t.max)
		}
		binary.LittleEndian.PutUint16(buf[offLengths+2*i:], uint16(len(s)))
		copy(buf[at:], s)
		at += t.max
	}
	for _, m := range []struct {
		name string
		off  int
		t    time.Time
	}{{"decided", offDecided, r.Decided}, {"killedAt", offKilled, r.KilledAt}, {"releasedAt", offReleased, r.ReleasedAt}} {
		ns, err := unixNano(m.t)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, m.name, err)
		}
		putInt64(buf, m.off, ns)
	}
	buf[offLayout] = recordLayout
	buf[offState] = byte(r.State)
	if r.Frozen {
		buf[offFlags] |= flagFrozen
	}
	if r.Soft {
		buf[offFlags] |= flagSoft
	}
	binary.LittleEndian.PutUint64(buf[offID:], r.ID)
	binary.LittleEndian.PutUint64(buf[offInode:], r.CgroupInode)
	putInt64(buf, offThreshold, r.Threshold)
	putInt64(buf, offAvailable, r.Available)
	putInt64(buf, offKubelet, r.AvailableKubelet)
	putInt64(buf, offUsage, r.Usage)
	putInt64(buf, offRequest, r.Request)
	binary.LittleEndian.PutUint32(buf[offPriority:], uint32(r.Priority))
	binary.LittleEndian.PutUint32(buf[offRepeat:], r.Repeat)
	binary.LittleEndian.PutUint32(buf[offRevision:], revision)
	seal(buf)
	return nil
}

// complete turns a prepared record into the intent of one decision. It runs on
// the real-time thread: no allocation, no error.
func (p *Prepared) complete(n *Numbers) {
	p.buf[offState] = byte(Intent)
	p.buf[offFlags] = 0
	if n.Frozen {
		p.buf[offFlags] = flagFrozen
	}
	binary.LittleEndian.PutUint64(p.buf[offID:], n.ID)
	putInt64(&p.buf, offThreshold, n.Threshold)
	putInt64(&p.buf, offAvailable, n.Available)
	putInt64(&p.buf, offKubelet, n.AvailableKubelet)
	putInt64(&p.buf, offUsage, n.Usage)
	putInt64(&p.buf, offDecided, n.Decided)
	putInt64(&p.buf, offKilled, 0)
	putInt64(&p.buf, offReleased, 0)
	if n.Signal != "" {
		place := p.buf[offSignal : offSignal+MaxSignal]
		clear(place)
		binary.LittleEndian.PutUint16(p.buf[offSignalLength:], uint16(copy(place, n.Signal)))
	}
	seal(&p.buf)
}

func (p *Prepared) id() uint64       { return binary.LittleEndian.Uint64(p.buf[offID:]) }
func (p *Prepared) revision() uint32 { return binary.LittleEndian.Uint32(p.buf[offRevision:]) }
func (p *Prepared) state() State     { return State(p.buf[offState]) }
func (p *Prepared) releasedAt() int64 {
	return int64(binary.LittleEndian.Uint64(p.buf[offReleased:]))
}

func seal(buf *[RecordSize]byte) {
	binary.LittleEndian.PutUint32(buf[offCRC:], crc32.Checksum(buf[offCRC+4:], castagnoli))
}

// decode reads a record and its revision. A slot of zeros is Free without an
// error; anything else that is not a whole record is ErrBadRecord.
func decode(b []byte) (Record, uint32, error) {
	if len(b) != RecordSize {
		return Record{}, 0, fmt.Errorf("%w: %d bytes, want %d", ErrBadRecord, len(b), RecordSize)
	}
	if isZero(b) {
		return Record{}, 0, nil
	}
	return decodeUsed(b)
}

// decodeUsed is decode for a slot that is not free. It is on its own because
// its record has to be allocated, and a file is nearly all free slots.
func decodeUsed(b []byte) (Record, uint32, error) {
	var r Record
	want, got := binary.LittleEndian.Uint32(b[offCRC:]), crc32.Checksum(b[offCRC+4:], castagnoli)
	if want != got {
		return r, 0, fmt.Errorf("%w: checksum %08x, computed %08x", ErrBadRecord, want, got)
	}
	if b[offLayout] != recordLayout {
		return r, 0, fmt.Errorf("%w: layout %d, want %d", ErrBadRecord, b[offLayout], recordLayout)
	}
	r.State = State(b[offState])
	r.ID = binary.LittleEndian.Uint64(b[offID:])
	if r.State < Intent || r.State > Released || r.ID == 0 || r.ID > maxID {
		return Record{}, 0, fmt.Errorf("%w: state %v, id %d", ErrBadRecord, r.State, r.ID)
	}
	at := offTexts
	for i, t := range texts() {
		n := int(binary.LittleEndian.Uint16(b[offLengths+2*i:]))
		if n > t.max {
			return Record{}, 0, fmt.Errorf("%w: %s says %d bytes, at most %d fit", ErrBadRecord, t.name, n, t.max)
		}
		*t.of(&r) = string(b[at : at+n])
		at += t.max
	}
	if r.UID == "" {
		return Record{}, 0, fmt.Errorf("%w: uid is empty", ErrBadRecord)
	}
	r.Frozen = b[offFlags]&flagFrozen != 0
	r.Soft = b[offFlags]&flagSoft != 0
	r.CgroupInode = binary.LittleEndian.Uint64(b[offInode:])
	r.Threshold = getInt64(b, offThreshold)
	r.Available = getInt64(b, offAvailable)
	r.AvailableKubelet = getInt64(b, offKubelet)
	r.Usage = getInt64(b, offUsage)
	r.Request = getInt64(b, offRequest)
	r.Decided = fromUnixNano(getInt64(b, offDecided))
	r.KilledAt = fromUnixNano(getInt64(b, offKilled))
	r.ReleasedAt = fromUnixNano(getInt64(b, offReleased))
	r.Priority = int32(binary.LittleEndian.Uint32(b[offPriority:]))
	r.Repeat = binary.LittleEndian.Uint32(b[offRepeat:])
	return r, binary.LittleEndian.Uint32(b[offRevision:]), nil
}

// isZero says whether b is all zeros: its first byte is, and each other equals
// the one before. Comparing is what the runtime does fastest.
func isZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

func putInt64(buf *[RecordSize]byte, off int, v int64) {
	binary.LittleEndian.PutUint64(buf[off:], uint64(v))
}

func getInt64(b []byte, off int) int64 { return int64(binary.LittleEndian.Uint64(b[off:])) }

// unixNano is t in unix nanoseconds, 0 for "not yet". Outside of 1970 to 2262
// UnixNano is undefined and 0 has another meaning here, so both are refused.
func unixNano(t time.Time) (int64, error) {
	if t.IsZero() {
		return 0, nil
	}
	if t.Unix() < 0 || t.Year() > 2261 || t.UnixNano() == 0 {
		return 0, fmt.Errorf("time %s is out of range", t.UTC().Format(time.RFC3339))
	}
	return t.UnixNano(), nil
}

func fromUnixNano(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
