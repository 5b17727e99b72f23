package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"github.com/cri-evictd/cri-evictd/cri"
)

// pingMethod is the one call that is answered here and not by the runtime. It is
// known on the proxy's own connection to itself only.
const pingMethod = "/cri-evictd.Proxy/Ping"

// Ping makes a call to the proxy itself, by way of its server and of what every
// forwarded call takes part in, the runtime excepted. An error means that calls are
// not being forwarded.
func (p *Proxy) Ping(ctx context.Context) error {
	in, out := frame{data: mem.BufferSlice{mem.SliceBuffer{}}}, frame{}
	if err := p.self.conn.Invoke(ctx, pingMethod, &in, &out, grpc.ForceCodecV2(rawCodec{})); err != nil {
		return fmt.Errorf("calls are not forwarded: %w", err)
	}
	out.free()
	return nil
}

// pong answers a Ping.
func (p *Proxy) pong(ss grpc.ServerStream) error {
	f := &frame{}
	if err := ss.RecvMsg(f); err != nil {
		return err
	}
	defer f.free()
	c := &call{shape: shapeUnary, cancel: func(error) {}}
	if p.calls.add(c) {
		defer p.calls.remove(c)
	}
	if p.opts.Holds != nil {
		p.opts.Holds.Held("")
	}
	return ss.SendMsg(f)
}

// fromOurselves says whether a call came by the proxy's own connection.
func fromOurselves(ctx context.Context) bool {
	from, ok := peer.FromContext(ctx)
	return ok && from.Addr.Network() == selfNetwork
}

// selfNetwork is how net.Pipe's addresses call their network.
const selfNetwork = "pipe"

// self is the proxy's connection to itself: a listener that only it can reach.
type self struct {
	conn   *grpc.ClientConn
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

func newSelf() (*self, error) {
	s := &self{dialed: make(chan net.Conn), closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	conn, err := grpc.NewClient(cri.Target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(s.dial))
	if err != nil {
		return nil, fmt.Errorf("client for the proxy itself: %w", err)
	}
	s.conn = conn
	return s, nil
}

func (s *self) dial(ctx context.Context, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case s.dialed <- server:
		return client, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (s *self) Accept() (net.Conn, error) {
	select {
	case c := <-s.dialed:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *self) Close() error {
	s.close()
	return nil
}

// Addr implements net.Listener.
func (s *self) Addr() net.Addr { return selfAddr{} }

// end closes both ends.
func (s *self) end() { _ = errors.Join(s.Close(), s.conn.Close()) } // nothing is under way

type selfAddr struct{}

func (selfAddr) Network() string { return selfNetwork }
func (selfAddr) String() string  { return "itself" }
