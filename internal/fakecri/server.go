package fakecri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
)

// maxMessage is more than anything in front of this server may pass.
const maxMessage = 128 << 20

// Options of a server; the zero value is fine.
type Options struct {
	// Dir is where the socket "cri.sock" is made; empty: a new short one, which
	// Close removes.
	Dir string
	// Now is the clock of created, started and finished times.
	Now func() time.Time
	// Without lists services that answer Unimplemented, by their full name.
	Without []string
}

// Server is the fake runtime.
type Server struct {
	opts    Options
	path    string
	ownsDir bool

	mu     sync.Mutex
	grpc   *grpc.Server // nil while down
	served chan struct{}
	mute   net.Listener // of Silent
	conns  map[net.Conn]struct{}
	dials  int
	calls  []*Call
	change chan struct{} // closed and replaced at each recorded call
	faults map[string][]*Fault

	state state
}

// Start makes a server and serves at once.
func Start(opts Options) (*Server, error) {
	s := &Server{opts: opts, faults: make(map[string][]*Fault), change: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	s.state.init(s.opts.Now)
	dir := opts.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "fc"); err != nil {
			return nil, fmt.Errorf("directory of the fake runtime: %w", err)
		}
		s.ownsDir = true
	}
	s.path = filepath.Join(dir, "cri.sock")
	if err := s.Up(); err != nil {
		return nil, err
	}
	return s, nil
}

// Endpoint is where it listens.
func (s *Server) Endpoint() cri.Endpoint { return cri.Endpoint{Path: s.path} }

// Up serves (again) after Crash; what it knows of sandboxes is kept, as
// containerd's does.
func (s *Server) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return errors.New("fake runtime is up already")
	}
	s.endMuteLocked()
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(false)
	server := grpc.NewServer(
		grpc.UnknownServiceHandler(s.handle),
		grpc.ForceServerCodecV2(Codec{}),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
	)
	served := make(chan struct{})
	s.grpc, s.served = server, served
	go func() {
		defer close(served)
		// The error is that of a closed listener.
		_ = server.Serve(countingListener{l, s})
	}()
	return nil
}

// Crash closes the listener and every connection at once and leaves the socket
// file behind, as a killed process does.
func (s *Server) Crash() {
	s.mu.Lock()
	server, served := s.grpc, s.served
	s.grpc = nil
	conns := s.conns
	s.conns = make(map[net.Conn]struct{})
	s.mu.Unlock()
	if server == nil {
		return
	}
	for c := range conns {
		_ = c.Close()
	}
	server.Stop()
	<-served
}

// Cut closes every connection and goes on accepting new ones.
func (s *Server) Cut() {
	s.mu.Lock()
	conns := s.conns
	s.conns = make(map[net.Conn]struct{})
	s.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// Silent is Crash and then a listener at the same path that takes connections
// and never says a word, as a hung process does, until Up.
func (s *Server) Silent() error {
	s.Crash()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(false)
	s.mute = l
	accepting := countingListener{l, s}
	go func() {
		for {
			if _, err := accepting.Accept(); err != nil { // kept in s.conns for endMute
				return
			}
		}
	}()
	return nil
}

// endMuteLocked ends what Silent began and its connections.
func (s *Server) endMuteLocked() {
	if s.mute == nil {
		return
	}
	_ = s.mute.Close()
	s.mute = nil
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = make(map[net.Conn]struct{})
}

// Close ends the server and removes its socket.
func (s *Server) Close() {
	s.Crash()
	s.mu.Lock()
	s.endMuteLocked()
	s.mu.Unlock()
	_ = os.Remove(s.path)
	if s.ownsDir {
		_ = os.RemoveAll(filepath.Dir(s.path))
	}
}

// Dials is how many connections were ever accepted.
func (s *Server) Dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

// countingListener keeps the accepted connections so that Crash can cut them.
type countingListener struct {
	net.Listener
	s *Server
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.dials++
	l.s.conns[c] = struct{}{}
	return trackedConn{c, l.s}, nil
}

type trackedConn struct {
	net.Conn
	s *Server
}

func (c trackedConn) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c.Conn)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// handle answers every method of every service.
func (s *Server) handle(_ any, ss grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(ss)
	var req Raw
	if err := ss.RecvMsg(&req); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	md, _ := metadata.FromIncomingContext(ss.Context())
	call := s.record(full, req, md)
	defer s.finish(call)
	f := s.fault(full)
	if f != nil {
		if done, err := f.apply(s, ss, req); done {
			return err
		}
	}
	err := s.serve(full, req, ss)
	if f != nil && f.ErrAfter != nil {
		return f.ErrAfter
	}
	return err
}

// serve runs the implementation of a method of the compiled API.
func (s *Server) serve(full string, req Raw, ss grpc.ServerStream) error {
	service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	for _, w := range s.opts.Without {
		if w == service {
			return status.Errorf(codes.Unimplemented, "unknown service %s", service)
		}
	}
	var impl any = &runtimeService{s: s}
	desc := &runtimeapi.RuntimeService_ServiceDesc
	switch service {
	case desc.ServiceName:
	case runtimeapi.ImageService_ServiceDesc.ServiceName:
		desc, impl = &runtimeapi.ImageService_ServiceDesc, &imageService{s: s}
	default:
		return status.Errorf(codes.Unimplemented, "unknown service %s", service)
	}
	for _, m := range desc.Methods {
		if m.MethodName != method {
			continue
		}
		decode := func(v any) error { return proto.Unmarshal(req, v.(proto.Message)) }
		resp, err := m.Handler(impl, ss.Context(), decode, nil)
		if err != nil {
			return err
		}
		return ss.SendMsg(resp)
	}
	for _, st := range desc.Streams {
		if st.StreamName == method {
			return st.Handler(impl, &replay{ServerStream: ss, req: req})
		}
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s for service %s", method, service)
}

// replay gives the generated handler of a stream the request read already.
type replay struct {
	grpc.ServerStream
	req  Raw
	read bool
}

func (r *replay) RecvMsg(v any) error {
	if r.read {
		return r.ServerStream.RecvMsg(v)
	}
	r.read = true
	return proto.Unmarshal(r.req, v.(proto.Message))
}

// Client dials the server with the generated clients; for tests that set up
// state without the part under test.
func (s *Server) Client() (*cri.Client, error) { return cri.Dial(s.Endpoint()) }

// wait is like <-c, but ends with ctx.
func wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
