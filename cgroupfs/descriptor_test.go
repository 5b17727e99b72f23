package cgroupfs

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"
)

// A /proc file of many records answers one page per system call.
func TestReadWholeReadsBeyondAPage(t *testing.T) {
	fd, err := openAt(unix.AT_FDCWD, "/proc/self/smaps", unix.O_RDONLY)
	if err != nil {
		t.Skipf("needs /proc/self/smaps: %v", err)
	}
	defer func() { _ = unix.Close(fd) }() // read only
	one := make([]byte, 1<<20)
	n, err := readOnce(fd, one)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readWhole(fd, make([]byte, 4<<20))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) <= n || len(all) < 4096 || !bytes.HasSuffix(all, []byte("\n")) {
		t.Errorf("%d bytes, one read gives %d", len(all), n)
	}
	if _, err := readWhole(fd, make([]byte, 100)); !errors.Is(err, errTooLong) {
		t.Errorf("small buffer: %v", err)
	}
}

func TestGuard(t *testing.T) {
	var g guard
	for range 2 {
		if !g.acquire() {
			t.Fatal("an open guard refuses")
		}
	}
	if last, err := g.shut(); last || err != nil {
		t.Errorf("shut with two users: last %v, %v", last, err)
	}
	if g.acquire() {
		t.Error("a shut guard lets somebody in")
	}
	if g.release() {
		t.Error("the first of two is not the last")
	}
	if !g.release() {
		t.Error("the last does not know it")
	}
	if _, err := g.shut(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second shut: %v", err)
	}
	var idle guard
	if last, err := idle.shut(); !last || err != nil {
		t.Errorf("shut without users: last %v, %v", last, err)
	}
}

func TestScratchIsNeverShared(t *testing.T) {
	s := newScratch()
	a, b := s.take(), s.take()
	if a == b {
		t.Fatal("two users have one buffer")
	}
	s.give(a)
	if s.take() != a {
		t.Error("the buffer was not kept")
	}
}
