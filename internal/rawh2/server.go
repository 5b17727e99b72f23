package rawh2

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
)

// Server accepts connections on a unix socket.
type Server struct {
	l      net.Listener
	opts   Options
	handle func(*Stream)
	done   sync.WaitGroup

	mu     sync.Mutex
	conns  []*Conn
	closed bool
}

// Listen serves on path; handle runs in a goroutine of its own for each stream,
// as soon as its first header block is there.
func Listen(path string, opts Options, handle func(*Stream)) (*Server, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	s := &Server{l: l, opts: opts, handle: handle}
	s.done.Go(s.acceptAll)
	return s, nil
}

func (s *Server) acceptAll() {
	for {
		nc, err := s.l.Accept()
		if err != nil {
			return
		}
		s.done.Go(func() {
			in := bufio.NewReader(nc)
			preface := make([]byte, len(http2.ClientPreface))
			if _, err := io.ReadFull(in, preface); err != nil || string(preface) != http2.ClientPreface {
				_ = nc.Close() // not HTTP/2
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.closed {
				_ = nc.Close() // too late
				return
			}
			s.conns = append(s.conns, newConn(nc, in, s.opts, s.handle))
		})
	}
}

// Conns are all connections ever accepted.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Conn{}, s.conns...)
}

// Close ends everything; the handlers have to end by themselves when their
// connection does.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.l.Close()
	for _, c := range s.Conns() {
		c.Close()
	}
	s.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
