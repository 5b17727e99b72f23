package cutdisk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

func write(t *testing.T, d *Disk, at int64, b byte, n int) {
	t.Helper()
	if _, err := d.WriteAt(bytes.Repeat([]byte{b}, n), at); err != nil {
		t.Fatal(err)
	}
}

func dice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func TestFlushedStaysAndTheRestMayGo(t *testing.T) {
	lost, kept, torn := 0, 0, 0
	for seed := range uint64(200) {
		d := New(make([]byte, 16*SectorSize))
		write(t, d, 0, 'a', 2*SectorSize)
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		write(t, d, 0, 'b', SectorSize)              // over what was flushed
		write(t, d, 4*SectorSize, 'c', 4*SectorSize) // new
		d.Restore(dice(seed))
		b := make([]byte, d.Size())
		if _, err := d.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if b[SectorSize] != 'a' || b[0] != 'a' && b[0] != 'b' {
			t.Fatalf("seed %d: what was flushed is %q", seed, b[:2*SectorSize])
		}
		sectors := 0
		for i := 4; i < 8; i++ {
			s := b[i*SectorSize : (i+1)*SectorSize]
			if n := bytes.Count(s, []byte{'c'}); n != 0 && n != SectorSize {
				t.Fatalf("seed %d: a torn sector", seed)
			}
			if s[0] == 'c' {
				sectors++
			}
		}
		switch sectors {
		case 0:
			lost++
		case 4:
			kept++
		default:
			torn++
		}
	}
	if lost == 0 || kept == 0 || torn == 0 {
		t.Errorf("%d times lost, %d kept, %d torn", lost, kept, torn)
	}
}

func TestPowerGoesAtARequest(t *testing.T) {
	d := New(make([]byte, 4*SectorSize))
	d.CutAfter(2)
	write(t, d, 0, 'a', SectorSize)
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.Gone():
		t.Fatal("too early")
	default:
	}
	if err := d.Flush(); !errors.Is(err, ErrNoPower) {
		t.Errorf("a third request: %v", err)
	}
	<-d.Gone()
	if _, err := d.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrNoPower) {
		t.Errorf("reading: %v", err)
	}
	d.Restore(dice(1))
	b := make([]byte, 1)
	if _, err := d.ReadAt(b, 0); err != nil || b[0] != 'a' {
		t.Errorf("%q, %v", b, err)
	}
}

func TestPicturesOfEarlierMoments(t *testing.T) {
	d := New(make([]byte, SectorSize))
	write(t, d, 0, 'a', SectorSize)
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	write(t, d, 0, 'b', SectorSize)
	for n, want := range []byte{0, 'a', 'a', 'b'} {
		if got := d.After(n, nil)[0]; got != want {
			t.Errorf("after %d: %q, want %q", n, got, want)
		}
	}
	if d.Ops() != 3 || d.LastFlush(3) != 2 || d.LastFlush(1) != 0 {
		t.Errorf("%d changes, flushes %d, %d", d.Ops(), d.LastFlush(3), d.LastFlush(1))
	}
}

// client speaks NBD as qemu does.
func client(t *testing.T, d *Disk) (net.Conn, func(kind uint16, at uint64, length uint32, data []byte) (errno uint32, answer []byte)) {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- d.Serve(theirs) }()
	t.Cleanup(func() {
		_ = ours.Close()
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the server: %v", err)
		}
	})
	read := func(n int) []byte {
		t.Helper()
		b := make([]byte, n)
		if _, err := io.ReadFull(ours, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	say := func(fields ...any) {
		t.Helper()
		if err := send(ours, fields...); err != nil {
			t.Fatal(err)
		}
	}
	if string(read(18)[:8]) != "NBDMAGIC" {
		t.Fatal("no greeting")
	}
	say(uint32(1))
	say(uint64(nbdOptionMagic), uint32(8), uint32(0)) // structured replies
	if kind := binary.BigEndian.Uint32(read(20)[12:]); kind != replyUnsupported {
		t.Fatalf("option 8: %x", kind)
	}
	say(uint64(nbdOptionMagic), uint32(optionGo), uint32(6), uint32(0), uint16(0))
	info := read(20 + 12)
	if got := binary.BigEndian.Uint64(info[22:]); got != uint64(d.Size()) || info[31]&transmitSendFlush == 0 {
		t.Fatalf("size %d, flags %x", got, info[30:])
	}
	if ack := read(20); binary.BigEndian.Uint32(ack[12:]) != replyAck || binary.BigEndian.Uint32(ack[16:]) != 0 {
		t.Fatalf("ack %x", ack)
	}
	return ours, func(kind uint16, at uint64, length uint32, data []byte) (uint32, []byte) {
		t.Helper()
		say(uint32(nbdRequest), uint16(0), kind, uint64(77), at, length, data)
		head := read(16)
		if binary.BigEndian.Uint32(head) != nbdReply || binary.BigEndian.Uint64(head[8:]) != 77 {
			t.Fatalf("answer %x", head)
		}
		errno := binary.BigEndian.Uint32(head[4:])
		if kind == commandRead && errno == 0 {
			return errno, read(int(length))
		}
		return errno, nil
	}
}

func TestServe(t *testing.T) {
	d := New(make([]byte, 4*SectorSize))
	conn, ask := client(t, d)
	if errno, _ := ask(commandWrite, SectorSize, 3, []byte("abc")); errno != 0 {
		t.Errorf("write: %d", errno)
	}
	if errno, b := ask(commandRead, SectorSize-1, 5, nil); errno != 0 || string(b) != "\x00abc\x00" {
		t.Errorf("read: %d, %q", errno, b)
	}
	if d.LastFlush(d.Ops()) != 0 {
		t.Error("flushed without being asked")
	}
	if errno, _ := ask(commandFlush, 0, 0, nil); errno != 0 || d.LastFlush(d.Ops()) != 2 {
		t.Errorf("flush: %d", errno)
	}
	if errno, _ := ask(commandRead, 4*SectorSize, 1, nil); errno != errorIO {
		t.Errorf("behind the end: %d", errno)
	}
	if errno, _ := ask(9, 0, 0, nil); errno != errorInval {
		t.Errorf("an unknown command: %d", errno)
	}
	d.Cut()
	if err := send(conn, uint32(nbdRequest), uint16(0), uint16(commandRead), uint64(1), uint64(0), uint32(1)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("without power: %d bytes, %v", n, err)
	}
}
