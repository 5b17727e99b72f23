package holds

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	headerSize    = 4096
	fileSize      = headerSize + Slots*RecordSize
	formatVersion = 1
	magic         = "CRIEVHLD"

	offVersion    = 8
	offHeaderSize = 12
	offRecordSize = 16
	offSlots      = 20
	offCreated    = 24
	offHeaderCRC  = 60
	// offConditions is where the node's conditions stand (64 bytes). They change
	// while the daemon runs, therefore the checksum does not cover them.
	offConditions = 64
	offGeneration = 128
	// offIDMark stands in a cache line of its own: it is written by another
	// thread than the generation.
	offIDMark = 192
	// headerUsed is how much of the header readers look at.
	headerUsed = 256
)

// header is what a holds file says about itself.
type header struct {
	created    int64 // unix nanoseconds
	generation uint64
	// idMark is an exclusive upper bound of the IDs given out; 0 means that the
	// field is damaged.
	idMark uint64
}

// slotOffset is where a slot's record starts, in bytes.
func slotOffset(i int) int64 { return headerSize + int64(i)*RecordSize }

func encodeHeader(h header) *[headerSize]byte {
	b := new([headerSize]byte)
	copy(b[:], magic)
	binary.LittleEndian.PutUint32(b[offVersion:], formatVersion)
	binary.LittleEndian.PutUint32(b[offHeaderSize:], headerSize)
	binary.LittleEndian.PutUint32(b[offRecordSize:], RecordSize)
	binary.LittleEndian.PutUint32(b[offSlots:], Slots)
	binary.LittleEndian.PutUint64(b[offCreated:], uint64(h.created))
	binary.LittleEndian.PutUint32(b[offHeaderCRC:], crc32.Checksum(b[:offHeaderCRC], castagnoli))
	binary.LittleEndian.PutUint64(b[offGeneration:], h.generation)
	mark := encodeMark(h.idMark)
	copy(b[offIDMark:], mark[:])
	return b
}

// decodeHeader reads the part of the header that readers need. The error wraps
// ErrBadHeader.
func decodeHeader(b []byte) (header, error) {
	var h header
	if len(b) < headerUsed {
		return h, fmt.Errorf("%w: %d bytes, want at least %d", ErrBadHeader, len(b), headerUsed)
	}
	if string(b[:len(magic)]) != magic {
		return h, fmt.Errorf("%w: magic %q, want %q", ErrBadHeader, b[:len(magic)], magic)
	}
	want, got := binary.LittleEndian.Uint32(b[offHeaderCRC:]), crc32.Checksum(b[:offHeaderCRC], castagnoli)
	if want != got {
		return h, fmt.Errorf("%w: checksum %08x, computed %08x", ErrBadHeader, want, got)
	}
	for _, f := range []struct {
		name string
		off  int
		want uint32
	}{
		{"format version", offVersion, formatVersion},
		{"header size", offHeaderSize, headerSize},
		{"record size", offRecordSize, RecordSize},
		{"slots", offSlots, Slots},
	} {
		if got := binary.LittleEndian.Uint32(b[f.off:]); got != f.want {
			return h, fmt.Errorf("%w: %s %d, want %d", ErrBadHeader, f.name, got, f.want)
		}
	}
	h.created = int64(binary.LittleEndian.Uint64(b[offCreated:]))
	h.generation = binary.LittleEndian.Uint64(b[offGeneration:])
	mark := binary.LittleEndian.Uint64(b[offIDMark:])
	if mark == ^binary.LittleEndian.Uint64(b[offIDMark+8:]) && mark <= maxID {
		h.idMark = mark
	}
	return h, nil
}

func encodeMark(mark uint64) [16]byte {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], mark)
	binary.LittleEndian.PutUint64(b[8:], ^mark)
	return b
}
