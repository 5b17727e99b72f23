package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
)

// barePair is a connection as the proxy has it and its other end.
func barePair(t *testing.T) (ours, other net.Conn) {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	plain, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l := bareListener{plain}
	defer func() { _ = l.Close() }()
	if other, err = net.Dial("unix", path); err != nil {
		t.Fatal(err)
	}
	if ours, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(); _ = other.Close() })
	if _, ok := ours.(*bareConn); !ok {
		t.Fatalf("accepted a %T", ours)
	}
	return ours, other
}

func TestBareConnCarriesEveryByteBothWays(t *testing.T) {
	ours, other := barePair(t)
	// Far more than the socket holds: both sides wait for each other often.
	sent := bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16)
	for name, ends := range map[string][2]net.Conn{"written": {ours, other}, "read": {other, ours}} {
		failed := make(chan error, 1)
		go func() {
			n, err := ends[0].Write(sent)
			if err == nil && n != len(sent) {
				err = io.ErrShortWrite
			}
			failed <- err
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(ends[1], got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := <-failed; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("%s: not what was sent", name)
		}
	}
}

func TestBareConnEnds(t *testing.T) {
	t.Run("by the other side", func(t *testing.T) {
		ours, other := barePair(t)
		if _, err := other.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		_ = other.Close()
		if got, err := io.ReadAll(ours); err != nil || string(got) != "last" {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := ours.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
	})
	t.Run("by us while both wait", func(t *testing.T) {
		ours, _ := barePair(t)
		failed := make(chan error, 2)
		go func() { _, err := ours.Read(make([]byte, 1)); failed <- err }()
		go func() { _, err := ours.Write(make([]byte, 64<<20)); failed <- err }()
		_ = ours.Close()
		for range 2 {
			if err := <-failed; !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run("at the deadline", func(t *testing.T) {
		ours, other := barePair(t)
		if err := ours.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		n, err := ours.Write(make([]byte, 64<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n >= 64<<20 {
			t.Errorf("write: %d, %v", n, err)
		}
		if err := ours.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Write([]byte{7}); err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Read(make([]byte, 1)); err != nil {
			t.Errorf("after the deadline was taken away: %v", err)
		}
	})
}

func TestBareConnMovesNothingForNothing(t *testing.T) {
	ours, _ := barePair(t)
	if n, err := ours.Read(nil); n != 0 || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := ours.Write(nil); n != 0 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
}

func TestBareConnDoesNotAllocate(t *testing.T) {
	ours, other := barePair(t)
	buf := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := ours.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(other, buf); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(ours, buf); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// countingPool is a pool that knows how many of its buffers are out.
type countingPool struct {
	asked, out atomic.Int32
	buf        []byte
}

func (p *countingPool) Get(n int) *[]byte { p.out.Add(1); p.asked.Add(1); b := p.buf[:n]; return &b }
func (p *countingPool) Put(*[]byte)       { p.out.Add(-1) }

// gRPC really uses the method, and a connection at rest has no buffer.
func TestBareConnTakesABufferOnlyWhenThereIsSomething(t *testing.T) {
	ours, other := barePair(t)
	r, ok := ours.(interface {
		ReadOnReady(int, mem.BufferPool) (*[]byte, int, error)
	})
	if !ok {
		t.Fatal("not a reader of the kind gRPC looks for")
	}
	p := &countingPool{buf: make([]byte, 64)}
	type result struct {
		text string
		n    int
		err  error
	}
	results := make(chan result)
	read := func() {
		b, n, err := r.ReadOnReady(64, p)
		if b == nil {
			results <- result{n: n, err: err}
			return
		}
		results <- result{string((*b)[:n]), n, err}
		p.Put(b)
	}
	go read()
	eventually(t, "no buffer taken by a connection that waits", func() bool { return p.asked.Load() > 0 && p.out.Load() == 0 })
	if _, err := other.Write([]byte("now")); err != nil {
		t.Fatal(err)
	}
	if got := <-results; got.text != "now" || got.err != nil {
		t.Errorf("got %+v", got)
	}
	_ = other.Close()
	go read()
	if got := <-results; got.n != 0 || got.err != io.EOF {
		t.Errorf("at the end: %+v", got)
	}
	_ = ours.Close()
	go read()
	if got := <-results; got.n != 0 || !errors.Is(got.err, net.ErrClosed) {
		t.Errorf("when closed: %+v", got)
	}
	if n := p.out.Load(); n != 0 {
		t.Errorf("%d buffers lost", n)
	}
}

func TestBareLeavesOtherConnectionsAlone(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _ = a.Close(); _ = b.Close() }()
	if bare(a) != a {
		t.Error("wrapped")
	}
}
