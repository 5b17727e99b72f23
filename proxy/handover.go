package proxy

import (
	"errors"
	"os"
	"time"
)

// DefaultHandOverTimeout is how long calls may go on after a hand-over when nothing
// else was said.
const DefaultHandOverTimeout = 2 * time.Minute

// errNotServing is returned for what needs a proxy that serves.
var errNotServing = errors.New("the proxy does not serve")

// Sockets are listening sockets for a proxy that need not, or must not, make its
// own: the service manager's, or those of the process before this one. Nil ones are
// made.
type Sockets struct {
	// Front is what kubelet connects to. FrontIsOurs says that its file is to be
	// removed at the end; the service manager's is not.
	Front       *os.File
	FrontIsOurs bool
	// Events is the socket for the evictor.
	Events *os.File
}

// Close closes those that are there.
func (s Sockets) Close() {
	for _, f := range []*os.File{s.Front, s.Events} {
		if f != nil {
			_ = f.Close() // a copy, of which nothing was read
		}
	}
}

// Sockets returns copies of the proxy's sockets, for a process that is to take
// over. The caller closes them.
func (p *Proxy) Sockets() (Sockets, error) {
	front := p.front.Load()
	if front == nil {
		return Sockets{}, errNotServing
	}
	sock := front.current.Load()
	var s Sockets
	var err error
	if s.Front, err = sock.File(); err != nil {
		return Sockets{}, err
	}
	s.FrontIsOurs = sock.Ours()
	if events := p.eventsService.Load(); events != nil {
		if s.Events, err = events.sock.Load().File(); err != nil {
			s.Close()
			return Sockets{}, err
		}
	}
	return s, nil
}

// HandOver ends the proxy because another process serves its Sockets already: it
// accepts nothing more, sends its callers there, and Run returns when all calls
// have ended. Calls, endless streams among them, may take up to limit; what has not
// ended then fails with Unavailable. The sockets' files stay. Only the first call
// counts.
func (p *Proxy) HandOver(limit time.Duration) {
	select {
	case p.handOver <- limit:
	default:
	}
}

// Connected is closed when the runtime was reached for the first time.
func (p *Proxy) Connected() <-chan struct{} { return p.upstream.reached }
