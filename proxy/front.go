package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/cri-evictd/cri-evictd/internal/unixsock"
)

// front is the socket kubelet connects to. If somebody removes the file, kubelet
// would be without a runtime until our next start; it is made anew instead. A
// file that somebody else put in its place is left alone.
type front struct {
	p       *Proxy
	owner   unixsock.Owner
	current atomic.Pointer[unixsock.Socket]
	// served gets why a listener ended by itself.
	served chan error

	mu     sync.Mutex
	all    []*unixsock.Socket
	closed bool
	// accepting are the loops of the listeners, arriving the connections that were
	// accepted and are not the server's yet.
	accepting, arriving sync.WaitGroup
}

func (p *Proxy) newFront(owner unixsock.Owner) (*front, error) {
	var sock *unixsock.Socket
	var err error
	if f := p.opts.Sockets.Front; f != nil {
		sock, err = unixsock.Inherit(f, p.opts.Sockets.FrontIsOurs, p.opts.Log)
	} else {
		sock, err = unixsock.Listen(p.opts.Listen.Path, owner, p.opts.Log)
	}
	if err != nil {
		return nil, err
	}
	f := &front{p: p, owner: owner, served: make(chan error, 1)}
	f.current.Store(sock)
	return f, nil
}

// serve accepts connections for server until close.
func (f *front) serve(server *grpc.Server, sock *unixsock.Socket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = sock.Close() // nobody has connected
		return
	}
	f.all = append(f.all, sock)
	f.accepting.Go(func() {
		err := server.Serve(countedListener{sock, &f.arriving})
		f.mu.Lock()
		closed := f.closed
		f.mu.Unlock()
		if closed {
			return
		}
		if err == nil {
			err = fmt.Errorf("listener %s closed", sock.Path())
		}
		select {
		case f.served <- err:
		default: // one is enough
		}
	})
}

// keep serves on a new socket whenever the file is gone, until ctx ends. The old
// listener stays open for the connections it has.
func (f *front) keep(ctx context.Context, server *grpc.Server) {
	unixsock.Keep(ctx, f.current.Load(), f.owner, "the CRI socket", f.p.opts.Log, func(s *unixsock.Socket) {
		f.current.Store(s)
		f.serve(server, s)
	})
}

// close accepts nothing more and returns when the server has every connection that
// was accepted: it tells each of them to go elsewhere, whereas one that it did not
// have yet would just break.
func (f *front) close() {
	f.mu.Lock()
	f.closed = true
	all := f.all
	f.mu.Unlock()
	for _, s := range all {
		_ = s.Close() // only that nobody accepts any more matters
	}
	f.accepting.Wait()
	f.arriving.Wait()
}

func (f *front) adopt(upstream string) { f.current.Load().Adopt(upstream) }

func (f *front) remove() { f.current.Load().Remove() }

// countedListener counts connections from accept to the first time the server
// reads from them.
type countedListener struct {
	net.Listener
	arriving *sync.WaitGroup
}

// Accept implements net.Listener.
func (l countedListener) Accept() (net.Conn, error) {
	c, err := bareListener{l.Listener}.Accept()
	if err != nil {
		return nil, err
	}
	if b, ok := c.(*bareConn); ok {
		l.arriving.Add(1)
		b.arriving = l.arriving
	}
	return c, nil
}
