package fakecri

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Call is one call the server has received, in order of arrival.
type Call struct {
	// Method is the full name, "/runtime.v1.RuntimeService/Version".
	Method   string
	Request  []byte
	Metadata metadata.MD
	Began    time.Time
	// Ended is zero while the call goes on.
	Ended time.Time
}

// Short is the method without its service.
func (c Call) Short() string { return c.Method[strings.LastIndexByte(c.Method, '/')+1:] }

// Decode reads the request into m.
func (c Call) Decode(m proto.Message) error { return proto.Unmarshal(c.Request, m) }

func (s *Server) record(method string, req []byte, md metadata.MD) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Call{Method: method, Request: req, Metadata: md, Began: time.Now()}
	s.calls = append(s.calls, c)
	s.changedLocked()
	return c
}

func (s *Server) finish(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Ended = time.Now()
	s.changedLocked()
}

func (s *Server) changedLocked() {
	close(s.change)
	s.change = make(chan struct{})
}

// Calls are the calls so far; with names, those of these methods only ("Version"
// or the full name).
func (s *Server) Calls(names ...string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range s.calls {
		if len(names) == 0 || slices.Contains(names, c.Short()) || slices.Contains(names, c.Method) {
			out = append(out, *c)
		}
	}
	return out
}

// Forget drops the recorded calls.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// Until waits until cond is true, looking again after each begin and end of a
// call. It returns ctx's error if that ends first.
func (s *Server) Until(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		change := s.change
		s.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
