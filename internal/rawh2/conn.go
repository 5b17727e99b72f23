package rawh2

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// initialWindow is HTTP/2's own for connections, and for streams unless the
	// settings say otherwise, in bytes.
	initialWindow = 65535
	// freeWindow is what a peer gets that is not held, so that tests do not
	// wait for each other's window updates.
	freeWindow    = 4 << 20
	maxFrame      = 16384
	maxHeaderList = 16 << 20
	maxRoom       = 128 << 20
)

// ErrClosed is the error of a connection that was closed on this side.
var ErrClosed = errors.New("connection closed")

// Options of a connection.
type Options struct {
	// Hold never gives the peer's window back: it may send 65,535 bytes of DATA
	// on the connection and then has to wait. Else all is given back at once.
	Hold bool
}

// Conn is one HTTP/2 connection. All methods are safe for concurrent use.
type Conn struct {
	nc     net.Conn
	opts   Options
	accept func(*Stream) // of a server
	done   sync.WaitGroup

	mu          sync.Mutex
	change      chan struct{} // closed and replaced whenever anything happens
	queue       []func(*writer) error
	streams     map[uint32]*Stream
	nextID      uint32
	sendWindow  int64 // of the connection, bytes
	peerInitial int64 // of new streams, bytes
	goAway      bool
	owed        uint32 // window that Hold kept from the peer
	err         error
}

// Dial connects to a server's socket.
func Dial(path string, opts Options) (*Conn, error) {
	nc, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", path, err)
	}
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		return nil, errors.Join(fmt.Errorf("preface: %w", err), nc.Close())
	}
	return newConn(nc, nc, opts, nil), nil
}

func newConn(nc net.Conn, in io.Reader, opts Options, accept func(*Stream)) *Conn {
	c := &Conn{
		nc: nc, opts: opts, accept: accept, change: make(chan struct{}), streams: make(map[uint32]*Stream),
		nextID: 1, sendWindow: initialWindow, peerInitial: initialWindow,
	}
	settings := []http2.Setting{{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList}}
	if !opts.Hold {
		settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: freeWindow})
	}
	c.enqueue(func(w *writer) error {
		if err := w.fr.WriteSettings(settings...); err != nil || opts.Hold {
			return err
		}
		return w.fr.WriteWindowUpdate(0, freeWindow)
	})
	c.done.Go(func() { c.fail(c.readAll(bufio.NewReaderSize(in, 64<<10))) })
	c.done.Go(c.writeAll)
	return c
}

// Close ends the connection at once, without GOAWAY, as a killed process does.
func (c *Conn) Close() {
	c.Cut()
	c.done.Wait()
}

// Cut is Close for a stream's handler, which Close would wait for.
func (c *Conn) Cut() { c.fail(ErrClosed) }

// Err is why the connection ended, nil while it is up.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Await waits until the connection has ended.
func (c *Conn) Await(ctx context.Context) error {
	for {
		c.mu.Lock()
		err, change := c.err, c.change
		c.mu.Unlock()
		if err != nil {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.changedLocked()
	c.mu.Unlock()
	_ = c.nc.Close() // whatever it says, it is over
}

func (c *Conn) changedLocked() {
	close(c.change)
	c.change = make(chan struct{})
}

// writer is what the writing goroutine owns.
type writer struct {
	fr  *http2.Framer
	enc *hpack.Encoder
	buf *bytes.Buffer
	out *bufio.Writer
}

// enqueue hands something to the writing goroutine; it never waits, so that the
// reader never waits for the writer.
func (c *Conn) enqueue(f func(*writer) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enqueueLocked(f)
}

func (c *Conn) enqueueLocked(f func(*writer) error) {
	c.queue = append(c.queue, f)
	c.changedLocked()
}

func (c *Conn) writeAll() {
	buf := new(bytes.Buffer)
	out := bufio.NewWriterSize(c.nc, 64<<10)
	w := &writer{fr: http2.NewFramer(out, nil), enc: hpack.NewEncoder(buf), buf: buf, out: out}
	for {
		c.mu.Lock()
		queue, change, err := c.queue, c.change, c.err
		c.queue = nil
		c.mu.Unlock()
		if err != nil {
			return
		}
		for _, f := range queue {
			if err := f(w); err != nil {
				c.fail(err)
				return
			}
		}
		if len(queue) > 0 {
			continue
		}
		if err := out.Flush(); err != nil {
			c.fail(err)
			return
		}
		<-change
	}
}

func (c *Conn) readAll(in io.Reader) error {
	fr := http2.NewFramer(nil, in)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	fr.MaxHeaderListSize = maxHeaderList
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return err
		}
		if err := c.take(f); err != nil {
			return err
		}
	}
}

// take handles one frame.
func (c *Conn) take(f http2.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changedLocked()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for _, s := range c.streams {
				s.window += int64(v) - c.peerInitial
			}
			c.peerInitial = int64(v)
		}
		c.enqueueLocked(func(w *writer) error { return w.fr.WriteSettingsAck() })
	case *http2.PingFrame:
		if data := f.Data; !f.IsAck() {
			c.enqueueLocked(func(w *writer) error { return w.fr.WritePing(true, data) })
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.sendWindow += int64(f.Increment)
		} else if s := c.streams[f.StreamID]; s != nil {
			s.window += int64(f.Increment)
		}
	case *http2.GoAwayFrame:
		c.goAway = true
	case *http2.MetaHeadersFrame:
		c.takeHeadersLocked(f)
	case *http2.DataFrame:
		c.takeDataLocked(f)
	case *http2.RSTStreamFrame:
		if s := c.streams[f.StreamID]; s != nil {
			s.got.Parts = append(s.got.Parts, Part{Kind: Reset, Code: f.ErrCode})
			s.got.Reset = true
		}
	}
	return nil
}

func (c *Conn) takeHeadersLocked(f *http2.MetaHeadersFrame) {
	s := c.streams[f.StreamID]
	if s == nil {
		if c.accept == nil {
			return
		}
		s = c.newStreamLocked(f.StreamID)
		defer c.done.Go(func() { c.accept(s) })
	}
	fields := make([]Field, len(f.Fields))
	for i, h := range f.Fields {
		fields[i] = Field{h.Name, h.Value}
	}
	s.got.Parts = append(s.got.Parts, Part{Kind: Headers, Fields: fields, End: f.StreamEnded()})
	s.got.Ended = s.got.Ended || f.StreamEnded()
}

func (c *Conn) takeDataLocked(f *http2.DataFrame) {
	if n := f.Length; n > 0 && c.opts.Hold {
		c.owed += n
	} else if n > 0 {
		id, ended := f.StreamID, f.StreamEnded()
		c.enqueueLocked(func(w *writer) error {
			if err := w.fr.WriteWindowUpdate(0, n); err != nil || ended {
				return err
			}
			return w.fr.WriteWindowUpdate(id, n)
		})
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return
	}
	s.got.Ended = s.got.Ended || f.StreamEnded()
	if last := len(s.got.Parts) - 1; last >= 0 && s.got.Parts[last].Kind == Data {
		// Where DATA frames are cut is the business of each hop.
		p := &s.got.Parts[last]
		p.Data = append(p.Data, f.Data()...)
		p.End = p.End || f.StreamEnded()
		return
	}
	// Room for the whole first message, else a large one is copied many times.
	room := len(f.Data())
	if room >= prefixLen {
		room = max(room, min(prefixLen+int(binary.BigEndian.Uint32(f.Data()[1:])), maxRoom))
	}
	s.got.Parts = append(s.got.Parts, Part{Kind: Data, Data: append(make([]byte, 0, room), f.Data()...), End: f.StreamEnded()})
}
