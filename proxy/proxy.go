package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	decorate      atomic.Bool
	admission     *admission
	pumps         sync.WaitGroup
	ran           atomic.Bool
	serving       chan struct{}

	// decodeHook, set by tests only, runs inside every guarded decoding.
	decodeHook func(method string)
}

// New checks the options and makes a proxy. Nothing is opened before Run.
func New(opts Options) (*Proxy, error) {
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
	if opts.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		opts.Log = silent
	}
	if opts.DrainTimeout == 0 {
		opts.DrainTimeout = DefaultDrainTimeout
	}
	p := &Proxy{opts: opts, calls: newCalls(), stats: newStatistics(), methods: knownMethods(), pool: newPool(), events: newBroker(), serving: make(chan struct{})}
	p.decorate.Store(opts.DecorateStatus)
	p.admission = newAdmission(opts.Admission)
	p.bidirectional = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	u, err := newUpstream(opts.Upstream, opts.Log, p.pool)
	if err != nil {
		return nil, err
	}
	p.upstream = u
	return p, nil
}

// SetDecorateStatus changes Options.DecorateStatus.
func (p *Proxy) SetDecorateStatus(on bool) { p.decorate.Store(on) }

// Serving is closed as soon as the sockets accept connections.
func (p *Proxy) Serving() <-chan struct{} { return p.serving }

// Run listens and serves until ctx ends, then drains: nothing new is accepted,
// unary calls may finish within DrainTimeout, endless streams end at once. It
// returns nil after a clean end and can be called once only.
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

	owner := unixsock.OwnerOf(p.opts.Upstream.Path)
	front, err := p.newFront(owner)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer front.remove()
	events, err := p.serveEvents(owner)
	if err != nil {
		// kubelet's calls do not depend on it; the evictor goes on by listing.
		p.opts.Log.WithError(err).Error("no proxySocket: calls are forwarded, the evictor learns of pods by listing only")
	}
	defer events.close()

	p.upstream.onReady = func(first bool) {
		if first {
			front.adopt(p.opts.Upstream.Path)
			events.adopt(p.opts.Upstream.Path)
			return
		}
		p.events.publish(Event{Type: EventDirty})
	}
	var watcher sync.WaitGroup
	watcher.Go(func() { p.upstream.watch(rest) })
	defer watcher.Wait()
	defer stop()

	server := grpc.NewServer(
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
	served := make(chan error, 1)
	go func() { served <- server.Serve(bareListener{front.current.Load()}) }()
	var keeping sync.WaitGroup
	keepCtx, stopKeeping := context.WithCancel(ctx)
	defer stopKeeping()
	keeping.Go(func() { front.keep(keepCtx, server, served) })
	close(p.serving)
	p.opts.Log.WithField("listen", p.opts.Listen.Path).WithField("upstream", p.opts.Upstream.Path).Info("proxy listens")

	select {
	case err = <-served:
		if err == nil {
			err = errors.New("listener closed")
		}
		err = fmt.Errorf("serve %s: %w", p.opts.Listen, err)
	case <-ctx.Done():
		err = nil
	}
	stopKeeping()
	keeping.Wait()
	// A successor may bind the path from here on.
	front.remove()
	p.drain(server)
	p.pumps.Wait()
	return err
}

// drain ends the server; see Run.
func (p *Proxy) drain(server *grpc.Server) {
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	deadline := time.NewTimer(p.opts.DrainTimeout)
	defer deadline.Stop()
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
