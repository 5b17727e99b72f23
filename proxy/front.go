package proxy

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/cri-evictd/cri-evictd/internal/unixsock"
)

// frontLook is how often we look whether kubelet's socket is still there.
const frontLook = time.Second

// front is the socket kubelet connects to. If somebody removes the file, kubelet
// would be without a runtime until our next start; it is made anew instead. A
// file that somebody else put in its place is left alone.
type front struct {
	p       *Proxy
	owner   unixsock.Owner
	current atomic.Pointer[unixsock.Socket]
}

func (p *Proxy) newFront(owner unixsock.Owner) (*front, error) {
	sock, err := unixsock.Listen(p.opts.Listen.Path, owner, p.opts.Log)
	if err != nil {
		return nil, err
	}
	f := &front{p: p, owner: owner}
	f.current.Store(sock)
	return f, nil
}

// keep serves on a new socket whenever the file is gone, until ctx ends. The old
// listener stays open for the connections it has.
func (f *front) keep(ctx context.Context, server *grpc.Server, served chan<- error) {
	look := time.NewTicker(frontLook)
	defer look.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if !f.current.Load().Gone() {
			said = ""
			continue
		}
		sock, err := unixsock.Listen(f.p.opts.Listen.Path, f.owner, f.p.opts.Log)
		if err != nil {
			if said != err.Error() {
				said = err.Error()
				f.p.opts.Log.WithError(err).Error("the CRI socket was removed and cannot be made again: kubelet cannot connect")
			}
			continue
		}
		f.p.opts.Log.WithField("listen", f.p.opts.Listen.Path).Error("the CRI socket was removed by somebody; it was made anew")
		f.current.Store(sock)
		go func() {
			if err := server.Serve(bareListener{sock}); err != nil {
				select {
				case served <- err:
				default: // the end is under way already
				}
			}
		}()
	}
}

func (f *front) adopt(upstream string) { f.current.Load().Adopt(upstream) }

func (f *front) remove() { f.current.Load().Remove() }
