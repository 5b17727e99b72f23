package holds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
)

func TestHeaderRoundTrip(t *testing.T) {
	want := header{created: 12345, generation: 1 << 60, idMark: 99}
	got, err := decodeHeader(encodeHeader(want)[:])
	must(t, err)
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHeaderFlips(t *testing.T) {
	h := header{created: 12345, generation: 77, idMark: 99}
	whole := encodeHeader(h)
	for at := range headerUsed {
		b := bytes.Clone(whole[:])
		b[at] ^= 0x10
		got, err := decodeHeader(b)
		switch {
		case at < 64:
			if !errors.Is(err, ErrBadHeader) {
				t.Errorf("byte %d: %v, want ErrBadHeader", at, err)
			}
		case err != nil:
			t.Errorf("byte %d is not covered by the checksum, got %v", at, err)
		case at >= offIDMark && at < offIDMark+16 && got.idMark != 0:
			t.Errorf("byte %d: mark %d was taken as whole", at, got.idMark)
		case at >= offGeneration && at < offGeneration+8 && got.generation == h.generation:
			t.Errorf("byte %d: generation unchanged", at)
		}
	}
	for n := range headerUsed {
		if _, err := decodeHeader(whole[:n]); !errors.Is(err, ErrBadHeader) {
			t.Errorf("%d bytes: %v, want ErrBadHeader", n, err)
		}
	}
}

// A file of another version has a right checksum and must be refused by name.
func TestHeaderOfAnotherVersion(t *testing.T) {
	for name, off := range map[string]int{
		"format version": offVersion, "header size": offHeaderSize, "record size": offRecordSize, "slots": offSlots,
	} {
		b := encodeHeader(header{idMark: 1})
		binary.LittleEndian.PutUint32(b[off:], 7)
		binary.LittleEndian.PutUint32(b[offHeaderCRC:], crc32.Checksum(b[:offHeaderCRC], castagnoli))
		_, err := decodeHeader(b[:])
		if !errors.Is(err, ErrBadHeader) || !bytes.Contains([]byte(err.Error()), []byte(name+" 7")) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func FuzzDecodeHeader(f *testing.F) {
	whole := encodeHeader(header{created: 1, generation: 2, idMark: 3})
	f.Add(bytes.Clone(whole[:]))
	f.Add(bytes.Clone(whole[:headerUsed]))
	f.Add(bytes.Clone(whole[:100]))
	f.Add([]byte("CRIEVHLD"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHeader(b)
		if err != nil {
			if !errors.Is(err, ErrBadHeader) || h != (header{}) {
				t.Fatalf("%+v with error %v", h, err)
			}
			return
		}
		again := encodeHeader(h)
		if !bytes.Equal(again[:offHeaderCRC], b[:offHeaderCRC]) && isZero(b[32:offHeaderCRC]) {
			t.Fatalf("%+v encodes to another header", h)
		}
		if h.idMark > maxID {
			t.Fatalf("mark %d", h.idMark)
		}
	})
}
