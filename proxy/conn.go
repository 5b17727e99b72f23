package proxy

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/mem"
)

// bareConn is a unix connection whose reads and writes do not tell Go's scheduler
// that a system call is under way. They need not: the descriptor is non-blocking,
// so that each returns at once, and waiting is the poller's as always. What it
// saves is Go's monitor thread, which every announced system call of an idle
// process wakes, and which then polls every 20 us beside the call it was woken
// for: a fifth of the CPU time of a short call, and a second thread on its way.
//
// Fairness needs that thread, though: it interrupts a goroutine that runs on and
// on, and looks after the other connections meanwhile. So of a peer that never
// makes us wait one read in announceEvery is announced after all. Writes follow
// from reads: without window updates they end.
type bareConn struct {
	net.Conn
	raw         syscall.RawConn
	read, write transfer
	// arriving, if not nil, counts connections that nobody has read from yet.
	arriving *sync.WaitGroup
	arrived  atomic.Bool
}

// announceEvery is larger than what a call of usual size takes: 512 KiB.
const announceEvery = 16

// transfer is one direction. The callback for the poller is made once, so that
// a read or write allocates nothing.
type transfer struct {
	mu   sync.Mutex
	step func(fd uintptr) (done bool)
	buf  []byte
	n    int // of buf, moved so far
	err  error
	// row is how many reads have been made without a wait.
	row int

	// Of ReadOnReady: where buf comes from when there is something to read.
	size   int
	pool   mem.BufferPool
	pooled *[]byte
}

// bare wraps c if it is a unix connection and returns it as it is otherwise.
func bare(c net.Conn) net.Conn {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return c
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return c
	}
	b := &bareConn{Conn: u, raw: raw}
	b.read.step = b.read.receive
	b.write.step = b.write.send
	return b
}

// Read implements net.Conn.
func (c *bareConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.arrive()
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	return c.read.run(c.raw.Read, p, "read")
}

// ReadOnReady reads into a buffer that it takes from pool only when there is
// something to read: grpc-go looks for this method and so keeps no buffer for a
// connection that is idle, as with Go's own connections.
func (c *bareConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	c.arrive()
	t := &c.read
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size, t.pool = size, pool
	n, err := t.run(c.raw.Read, nil, "read")
	b := t.pooled
	t.pool, t.pooled = nil, nil
	if n == 0 && b != nil {
		pool.Put(b)
		b = nil
	}
	return b, n, err
}

// arrive notes that somebody reads from the connection, or never will.
func (c *bareConn) arrive() {
	if c.arriving != nil && !c.arrived.Load() && !c.arrived.Swap(true) {
		c.arriving.Done()
	}
}

// Close implements net.Conn.
func (c *bareConn) Close() error {
	c.arrive()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *bareConn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.write.mu.Lock()
	defer c.write.mu.Unlock()
	return c.write.run(c.raw.Write, p, "write")
}

// run calls step by way of the poller until it is done. The caller holds mu.
func (t *transfer) run(poll func(func(uintptr) bool) error, p []byte, call string) (int, error) {
	t.buf, t.n, t.err = p, 0, nil
	err := poll(t.step)
	n := t.n
	t.buf = nil
	switch {
	case err != nil: // closed, or the deadline
		return n, err
	case t.err != nil:
		return n, os.NewSyscallError(call, t.err)
	case n == 0: // only at the end of what the peer sends: p is not empty
		return n, io.EOF
	}
	return n, nil
}

// call is one system call on the rest of buf, which stays where it is: it is in t.
func (t *transfer) call(number, fd uintptr) (int, unix.Errno) {
	rest := t.buf[t.n:]
	var n uintptr
	var errno unix.Errno
	if t.row == announceEvery {
		t.row = 0
		n, _, errno = unix.Syscall(number, fd, uintptr(unsafe.Pointer(&rest[0])), uintptr(len(rest)))
	} else {
		n, _, errno = unix.RawSyscall(number, fd, uintptr(unsafe.Pointer(&rest[0])), uintptr(len(rest)))
	}
	return int(n), errno
}

// receive is one attempt to read something; false means wait for more.
func (t *transfer) receive(fd uintptr) bool {
	if t.pool != nil {
		t.pooled = t.pool.Get(t.size)
		t.buf = *t.pooled
	}
	for {
		t.row++
		n, errno := t.call(unix.SYS_READ, fd)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			t.row = 0
			if t.pool != nil {
				t.pool.Put(t.pooled)
				t.pooled, t.buf = nil, nil
			}
			return false
		case errno != 0:
			t.err = errno
			return true
		default:
			t.n = n
			return true
		}
	}
}

// send writes as much as goes; false means wait for room.
func (t *transfer) send(fd uintptr) bool {
	for t.n < len(t.buf) {
		n, errno := t.call(unix.SYS_WRITE, fd)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return false
		case errno != 0:
			t.err = errno
			return true
		default:
			t.n += n
		}
	}
	return true
}

// bareListener wraps every connection it accepts.
type bareListener struct{ net.Listener }

// Accept implements net.Listener.
func (l bareListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return bare(c), nil
}
