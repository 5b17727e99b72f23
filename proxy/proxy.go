package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/unixsock"
)

const (
	// DefaultDrainTimeout is what Options.DrainTimeout means when it is zero.
	DefaultDrainTimeout = 10 * time.Second
	// likelyStreamGrace is how long the rest of an answer of an unknown method
	// may take before it is taken for an endless stream when draining.
	likelyStreamGrace = 100 * time.Millisecond
	// flushGrace is how long cancelled calls have to tell their callers.
	flushGrace = time.Second
	// handshakeTimeout is for the HTTP/2 greeting of a caller, kubelet's own
	// timeout for it. A caller that connects and says nothing would else hold up
	// the end of the server for the two minutes gRPC allows.
	handshakeTimeout = 5 * time.Second
	// streamWorkers is how many handlers keep their goroutine, and with it a
	// stack that has grown already. More calls than that get new ones; more
	// workers than calls take turns and are never warm.
	streamWorkers = 4
	// maxHeaderList keeps the limit grpc-go had before it lowered its default.
	maxHeaderList = 16 << 20
)

// Holds is what the proxy asks about evicted pods; *holds.Reader implements it.
// It must answer at once and must not fail: what is not surely held is free.
type Holds interface {
	Held(uid string) (holds.Record, bool)
	HeldSandbox(id string) (holds.Record, bool)
	Lookup(uid string) []holds.Record
}

// Options configure a Proxy.
type Options struct {
	// Listen is where kubelet connects, Upstream where the runtime listens.
	Listen, Upstream cri.Endpoint
	// Holds may be nil: then nothing is refused and nothing is decorated.
	Holds Holds
	// EventsSocket is the path of the socket for the evictor, empty for none.
	EventsSocket string
	Log          logrus.FieldLogger
	// Admission may be nil: then every new pod is admitted.
	Admission *Admission
	// DecorateStatus adds the reason of an eviction to status answers.
	DecorateStatus bool
	// DrainTimeout is how long calls may go on after the end was asked for.
	DrainTimeout time.Duration
	// Sockets are those that are there already. The proxy closes them.
	Sockets Sockets
	// AfterUpstream accepts no connection before the runtime was reached: somebody
	// else still does.
	AfterUpstream bool
	// Predecessor is closed when the process before this one has finished its calls;
	// nil: there was none. Until then no image is reserved.
	Predecessor <-chan struct{}
	// Upgrade handles requests to hand over to a new process; nil: there are none.
	Upgrade http.Handler
}

// Proxy forwards CRI calls; see the package comment.
type Proxy struct {
	opts     Options
	upstream *upstream
	calls    *calls
	stats    *statistics
	methods  map[string]knowledge
	pool     *pool
	// bidirectional is how every call is opened upstream: any number of messages
	// either way.
	bidirectional *grpc.StreamDesc
	events        *broker
	images        *images
	decorate      atomic.Bool
	admission     *admission
	pumps         sync.WaitGroup
	ran           atomic.Bool
	serving       chan struct{}
	self          *self
	front         atomic.Pointer[front]
	eventsService atomic.Pointer[eventsService]
	handOver      chan time.Duration

	// decodeHook, set by tests only, runs inside every guarded decoding.
	decodeHook func(method string)
}

// New checks the options and makes a proxy. Nothing is opened before Run.
func New(opts Options) (*Proxy, error) {
	if opts.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		opts.Log = silent
	}
	if err := opts.listenWhereTheSocketIs(); err != nil {
		return nil, err
	}
	switch {
	case opts.Listen.Path == "":
		return nil, errors.New("listen: no endpoint")
	case opts.Upstream.Path == "":
		return nil, errors.New("runtimeEndpoint: no endpoint")
	case opts.Listen.Path == opts.Upstream.Path:
		return nil, fmt.Errorf("listen: %s is the runtime's own socket; the proxy needs another one", opts.Listen)
	case opts.EventsSocket != "" && (opts.EventsSocket == opts.Listen.Path || opts.EventsSocket == opts.Upstream.Path):
		return nil, fmt.Errorf("proxySocket: %s is already the address of something else", opts.EventsSocket)
	}
	if opts.EventsSocket != "" {
		if _, err := cri.ParseEndpoint("proxySocket", opts.EventsSocket); err != nil {
			return nil, err
		}
	}
	if opts.DrainTimeout == 0 {
		opts.DrainTimeout = DefaultDrainTimeout
	}
	p := &Proxy{opts: opts, calls: newCalls(), stats: newStatistics(), methods: knownMethods(), pool: newPool(), events: newBroker(), images: newImages(), serving: make(chan struct{}), handOver: make(chan time.Duration, 1)}
	p.images.before = opts.Predecessor
	p.decorate.Store(opts.DecorateStatus)
	p.admission = newAdmission(opts.Admission)
	p.bidirectional = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	u, err := newUpstream(opts.Upstream, opts.Log, p.pool)
	if err != nil {
		return nil, err
	}
	p.upstream = u
	if p.self, err = newSelf(); err != nil {
		return nil, err
	}
	return p, nil
}

// listenWhereTheSocketIs makes Listen the address of a socket that is there
// already: kubelet connects to it, whatever is configured.
func (o *Options) listenWhereTheSocketIs() error {
	if o.Sockets.Front == nil {
		return nil
	}
	path, err := unixsock.PathOf(o.Sockets.Front)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if path != o.Listen.Path {
		o.Log.WithField("listen", o.Listen.Path).WithField("socket", path).
			Error("listen is not the address of the socket that the service manager opened; that one is served")
	}
	o.Listen.Path = path
	return nil
}

// SetDecorateStatus changes Options.DecorateStatus.
func (p *Proxy) SetDecorateStatus(on bool) { p.decorate.Store(on) }

// Serving is closed as soon as the sockets accept connections.
func (p *Proxy) Serving() <-chan struct{} { return p.serving }

// Run listens and serves until ctx ends, then drains: nothing new is accepted,
// unary calls may finish within DrainTimeout, endless streams end at once. After
// HandOver all calls have its time. It returns nil after a clean end and can be
// called once only.
func (p *Proxy) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return errors.New("proxy: Run called twice")
	}
	// The connection and the socket of the evictor outlive ctx: calls that
	// finish during the drain need both.
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer p.pool.close()
	defer func() { _ = p.upstream.conn.Close() }()
	defer p.self.end()

	owner := unixsock.OwnerOf(p.opts.Upstream.Path)
	front, err := p.newFront(owner)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer front.remove()
	var events atomic.Pointer[eventsService]
	p.upstream.onReady = func(first bool) {
		if first {
			front.adopt(p.opts.Upstream.Path)
			events.Load().adopt(p.opts.Upstream.Path)
			return
		}
		p.events.publish(Event{Type: EventDirty})
	}
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	if p.opts.AfterUpstream {
		watcher.Go(func() { p.upstream.watch(rest) })
		select {
		case <-p.upstream.reached:
		case <-ctx.Done():
			_ = front.current.Load().Close() // nobody was accepted
			p.opts.Sockets.Close()
			return nil
		}
	}
	service, err := p.serveEvents(owner)
	if err != nil {
		// kubelet's calls do not depend on it; the evictor goes on by listing.
		p.opts.Log.WithError(err).Error("no proxySocket: calls are forwarded, the evictor learns of pods by listing only")
	}
	defer service.close()
	events.Store(service)
	if !p.opts.AfterUpstream {
		watcher.Go(func() { p.upstream.watch(rest) })
	}

	server := p.newServer()
	front.serve(server, front.current.Load())
	go func() { _ = server.Serve(p.self) }() // ends with the server
	p.self.conn.Connect()
	var keeping sync.WaitGroup
	keepCtx, stopKeeping := context.WithCancel(ctx)
	defer stopKeeping()
	keeping.Go(func() { front.keep(keepCtx, server) })
	p.front.Store(front)
	p.eventsService.Store(service)
	close(p.serving)
	p.opts.Log.WithField("listen", p.opts.Listen.Path).WithField("upstream", p.opts.Upstream.Path).Info("proxy listens")

	limit := time.Duration(-1) // no hand-over
	select {
	case err = <-front.served:
		err = fmt.Errorf("serve %s: %w", p.opts.Listen, err)
	case <-ctx.Done():
		err = nil
	case limit = <-p.handOver:
		err = nil
	}
	stopKeeping()
	keeping.Wait()
	if limit >= 0 {
		front.current.Load().Disown()
		service.giveWay()
		p.events.publish(Event{Type: EventHandOver})
		p.opts.Log.WithField("calls", p.calls.len()).WithField("within", limit).Info("another process serves now; calls under way finish here")
	}
	// A successor may bind the path from here on.
	front.remove()
	front.close()
	p.images.releaseAll()
	p.drain(ctx, server, limit)
	p.pumps.Wait()
	return err
}

func (p *Proxy) newServer() *grpc.Server {
	return grpc.NewServer(
		grpc.UnknownServiceHandler(p.handle),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(cri.MaxMessageSize),
		grpc.MaxSendMsgSize(cri.MaxMessageSize),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StaticStreamWindowSize(cri.StreamWindow),
		grpc.StaticConnWindowSize(cri.ConnWindow),
		experimental.BufferPool(p.pool),
		grpc.NumStreamWorkers(streamWorkers),
		// A caller's keepalive is between it and us; never punish it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.WaitForHandlers(true),
	)
}

// drain ends the server; see Run. A limit below 0 means that nobody has taken over.
func (p *Proxy) drain(ctx context.Context, server *grpc.Server, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	if limit >= 0 && !p.finish(ctx, done, limit) {
		return
	}
	deadline := time.NewTimer(p.opts.DrainTimeout)
	defer deadline.Stop()
	switch {
	case limit < 0:
	case ctx.Err() == nil:
		deadline.Reset(0) // they had their time
	default:
		deadline.Reset(flushGrace) // a new start waits for this process
	}
	likelyStreams := p.calls.drain()
	if len(likelyStreams) > 0 {
		grace := time.AfterFunc(likelyStreamGrace, func() {
			for _, c := range likelyStreams {
				c.cancel(errDraining)
			}
		})
		defer grace.Stop()
	}
	select {
	case <-done:
		return
	case <-deadline.C:
	}
	p.opts.Log.WithField("calls", p.calls.len()).Warn("calls did not end in time and are cut off")
	p.calls.cancelAll()
	flush := time.NewTimer(flushGrace)
	defer flush.Stop()
	select {
	case <-done:
	case <-flush.C:
		server.Stop()
		<-done
	}
}

// finish leaves all calls their time, until limit or the end of ctx. It says
// whether any are left.
func (p *Proxy) finish(ctx context.Context, done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return false
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}

// Status is a snapshot; safe at any time.
func (p *Proxy) Status() Status {
	s := Status{
		Listen:         p.opts.Listen.String(),
		Upstream:       p.upstream.status(),
		InFlight:       p.calls.len(),
		Calls:          p.stats.methodCounts(),
		Refused:        p.stats.refused.Load(),
		HeldMeanwhile:  p.stats.heldMeanwhile.Load(),
		Decorated:      p.stats.decorated.Load(),
		Undecodable:    p.stats.undecodable.Load(),
		Panics:         p.stats.panics.Load(),
		DecorateStatus: p.decorate.Load(),
		Admission:      p.admission.status(),
	}
	s.Events, s.EventsDropped, s.Subscribers = p.events.counts()
	if h, ok := p.opts.Holds.(interface{ Problem() error }); ok {
		if err := h.Problem(); err != nil {
			s.HoldsProblem = err.Error()
		}
	}
	return s
}

// panicked counts and logs a panic that was caught.
func (p *Proxy) panicked(method string, r any, stack []byte) {
	p.stats.panics.Add(1)
	p.opts.Log.WithField("method", method).WithField("panic", fmt.Sprint(r)).WithField("stack", string(stack)).
		Error("panic caught; please report it")
}
