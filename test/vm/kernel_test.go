package main

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// bzImage makes one with a payload at this offset behind the setup code.
func bzImage(sects byte, offset uint32, payload []byte) []byte {
	from := (int(sects)+1)*512 + int(offset)
	if sects == 0 {
		from = 5*512 + int(offset)
	}
	b := make([]byte, from, from+len(payload)+100)
	b[0x1f1] = sects
	copy(b[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(b[0x206:], 0x20f)
	binary.LittleEndian.PutUint32(b[0x248:], offset)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(payload)))
	return append(append(b, payload...), make([]byte, 100)...)
}

func TestPayload(t *testing.T) {
	want := []byte("\xfd7zXZ\x00 and so on")
	for _, sects := range []byte{0, 4, 30} {
		got, err := payload(bzImage(sects, 715, want))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d sectors: %q, %v", sects, got, err)
		}
	}
	old := bzImage(4, 0, want)
	old[0x206] = 7
	long := bzImage(4, 0, want)
	long[0x24f] = 0xff
	for name, b := range map[string][]byte{"empty": nil, "no kernel": make([]byte, 4096), "old": old, "too long": long, "cut": bzImage(4, 0, want)[:600]} {
		if got, err := payload(b); err == nil {
			t.Errorf("%s: %d bytes and no error", name, len(got))
		}
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(bzImage(4, 10, []byte("x")))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = payload(b) })
}
