package rawh2

import (
	"context"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Field is one header field; the value of a "-bin" field is as on the wire.
type Field struct{ Name, Value string }

// Kind tells the parts of a stream from each other.
type Kind uint8

// The parts.
const (
	Headers Kind = iota
	Data
	Reset
)

// Part is a header block, a run of DATA frames, or a reset.
type Part struct {
	Kind   Kind
	Fields []Field       // of Headers, in order
	Data   []byte        // of Data
	End    bool          // END_STREAM was set (on the last frame)
	Code   http2.ErrCode // of Reset
}

// Record is all that was received on a stream.
type Record struct {
	Parts []Part
	Ended bool // by END_STREAM
	Reset bool
}

// Over tells whether nothing can follow.
func (r *Record) Over() bool { return r.Ended || r.Reset }

// Pattern is the order of the parts: H, D, R, each with a dot if it ended the
// stream. A unary call's answer is "HDH.", a trailers-only one "H.". Empty DATA
// that only ends the stream is shown as D as well.
func (r *Record) Pattern() string {
	var b []byte
	for _, p := range r.Parts {
		b = append(b, "HDR"[p.Kind])
		if p.End {
			b = append(b, '.')
		}
	}
	return string(b)
}

// Blocks are the header blocks.
func (r *Record) Blocks() [][]Field {
	var out [][]Field
	for _, p := range r.Parts {
		if p.Kind == Headers {
			out = append(out, p.Fields)
		}
	}
	return out
}

// Bytes are the contents of all DATA frames.
func (r *Record) Bytes() []byte {
	var out []byte
	for _, p := range r.Parts {
		if p.Kind == Data {
			if out == nil {
				out = p.Data
				continue
			}
			out = append(slices.Clip(out), p.Data...)
		}
	}
	return out
}

// Get returns the last value of a field, whichever block it is in.
func (r *Record) Get(name string) string {
	value := ""
	for _, block := range r.Blocks() {
		for _, f := range block {
			if f.Name == name {
				value = f.Value
			}
		}
	}
	return value
}

// Stream is one stream of a connection.
type Stream struct {
	c      *Conn
	id     uint32
	window int64 // left for sending, guarded by c.mu
	sent   int64
	got    Record
}

func (c *Conn) newStreamLocked(id uint32) *Stream {
	s := &Stream{c: c, id: id, window: c.peerInitial}
	c.streams[id] = s
	return s
}

// Open begins a stream with a header block.
func (c *Conn) Open(end bool, fields ...Field) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.newStreamLocked(c.nextID)
	c.nextID += 2
	s.headersLocked(end, fields)
	return s
}

// Conn is the stream's connection.
func (s *Stream) Conn() *Conn { return s.c }

// Headers sends a header block.
func (s *Stream) Headers(end bool, fields ...Field) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.headersLocked(end, fields)
}

func (s *Stream) headersLocked(end bool, fields []Field) {
	id := s.id
	s.c.enqueueLocked(func(w *writer) error {
		w.buf.Reset()
		for _, f := range fields {
			if err := w.enc.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value}); err != nil {
				return err
			}
		}
		block := w.buf.Bytes()
		n := min(len(block), maxFrame)
		err := w.fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block[:n], EndStream: end, EndHeaders: n == len(block),
		})
		for block = block[n:]; err == nil && len(block) > 0; block = block[n:] {
			n = min(len(block), maxFrame)
			err = w.fr.WriteContinuation(id, n == len(block), block[:n])
		}
		return err
	})
}

// Data sends bytes as far as the windows allow and waits for the rest. It
// returns when all was handed to the writer, when the peer has reset or ended
// the stream (no error), or with the error of ctx or the connection.
func (s *Stream) Data(ctx context.Context, end bool, b []byte) error {
	for {
		s.c.mu.Lock()
		if s.c.err != nil || s.got.Reset {
			err := s.c.err
			s.c.mu.Unlock()
			return err
		}
		n := int(min(int64(len(b)), s.window, s.c.sendWindow, maxFrame))
		if n > 0 || len(b) == 0 {
			part, id, last := b[:n], s.id, end && n == len(b)
			b = b[n:]
			s.window -= int64(n)
			s.c.sendWindow -= int64(n)
			s.sent += int64(n)
			s.c.enqueueLocked(func(w *writer) error { return w.fr.WriteData(id, last, part) })
			s.c.mu.Unlock()
			if len(b) == 0 {
				return nil
			}
			continue
		}
		change := s.c.change
		s.c.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Sent is how many bytes of DATA went out.
func (s *Stream) Sent() int64 {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.sent
}

// Reset sends RST_STREAM.
func (s *Stream) Reset(code http2.ErrCode) {
	id := s.id
	s.c.enqueue(func(w *writer) error { return w.fr.WriteRSTStream(id, code) })
}

// Record is what was received so far.
func (s *Stream) Record() Record {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.recordLocked()
}

func (s *Stream) recordLocked() Record {
	r := s.got
	r.Parts = slices.Clone(r.Parts)
	return r
}

// Await waits until what was received satisfies cond, which must not keep the
// record. It returns the record also with an error.
func (s *Stream) Await(ctx context.Context, cond func(*Record) bool) (Record, error) {
	for {
		s.c.mu.Lock()
		ok, err, change, r := cond(&s.got), s.c.err, s.c.change, s.recordLocked()
		s.c.mu.Unlock()
		switch {
		case ok:
			return r, nil
		case err != nil:
			return r, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// Over waits for the end of what the peer sends.
func (s *Stream) Over(ctx context.Context) (Record, error) { return s.Await(ctx, (*Record).Over) }

// Flush waits until all that was sent so far was written to the connection.
func (s *Stream) Flush(ctx context.Context) {
	done := make(chan struct{})
	s.c.enqueue(func(w *writer) error {
		defer close(done)
		return w.out.Flush() // what is queued may be in the buffer still
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Release ends Hold on the stream's connection, which must have this stream
// only: the peer gets back what it was not given so far, and freeWindow more.
func (s *Stream) Release() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.opts.Hold = false
	id, n := s.id, s.c.owed+freeWindow
	s.c.owed = 0
	s.c.enqueueLocked(func(w *writer) error {
		if err := w.fr.WriteWindowUpdate(0, n); err != nil {
			return err
		}
		return w.fr.WriteWindowUpdate(id, n)
	})
}
