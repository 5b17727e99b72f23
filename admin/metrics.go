package admin

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	"golang.org/x/net/netutil"

	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

// MetricsOptions wire a MetricsServer.
type MetricsOptions struct {
	// Address is host:port; empty for no metrics.
	Address string
	Version string
	Engine  Engine
	// Proxy reports on the proxy; it must answer within the context.
	Proxy func(ctx context.Context) ProxyStatus
	// GC counts what garbage collection did; nil: there is none.
	GC    func() gc.Counts
	Clock func() time.Time
	Log   logrus.FieldLogger
}

// MetricsServer serves /metrics, /healthz and /readyz. Nothing depends on it: an
// address that cannot be bound is tried again.
type MetricsServer struct {
	opt     MetricsOptions
	handler http.Handler
	listen  func(ctx context.Context) (net.Listener, error)

	mu    sync.Mutex
	state MetricsStatus
}

const (
	bindFirst   = time.Second
	bindLongest = 30 * time.Second
	// metricsConnections bounds what scrapers, and whoever else connects, can
	// cost the evictor in memory.
	metricsConnections = 16
	scrapesAtOnce      = 4
)

// NewMetricsServer returns a MetricsServer; Run does the work.
func NewMetricsServer(opt MetricsOptions) *MetricsServer {
	reg := prometheus.NewRegistry()
	if err := errors.Join(
		reg.Register(newCollector(opt)),
		reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	); err != nil { // a test registers both
		opt.Log.WithError(err).Error("metrics are not complete")
	}
	s := &MetricsServer{opt: opt, state: MetricsStatus{Address: opt.Address}}
	s.listen = func(ctx context.Context) (net.Listener, error) {
		var lc net.ListenConfig
		return lc.Listen(ctx, "tcp", opt.Address)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: s.errorLog(), ErrorHandling: promhttp.ContinueOnError,
		// The scraper is on this machine or near it, and a compressor costs more
		// memory than all the rest of a scrape.
		DisableCompression: true, MaxRequestsInFlight: scrapesAtOnce, CoalesceGather: true,
	}))
	handleHealth(mux, opt.Engine, opt.Clock)
	s.handler = mux
	return s
}

// Run listens and serves until ctx ends.
func (s *MetricsServer) Run(ctx context.Context) {
	if s.opt.Address == "" {
		return
	}
	wait := bindFirst
	for {
		l, err := s.listen(ctx)
		if err == nil {
			wait = bindFirst
			s.bound(l.Addr().String())
			err = s.serve(ctx, l)
		}
		if ctx.Err() != nil {
			return
		}
		s.failed(err)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, bindLongest)
	}
}

// serve answers on l until ctx ends or l fails.
func (s *MetricsServer) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s.handler, ErrorLog: s.errorLog(), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(netutil.LimitListener(l, metricsConnections))
	return errors.Join(err, server.Close())
}

// bound notes that the address, where it has port 0 the real one, is served.
func (s *MetricsServer) bound(address string) {
	s.mu.Lock()
	s.state = MetricsStatus{Address: address}
	s.mu.Unlock()
	s.opt.Log.WithField("address", address).Info("metrics are served")
}

// failed notes why it is not, and says so when that changed.
func (s *MetricsServer) failed(err error) {
	text := err.Error()
	s.mu.Lock()
	changed := s.state.Error != text
	s.state = MetricsStatus{Address: s.opt.Address, Error: text}
	s.mu.Unlock()
	if changed {
		s.opt.Log.WithError(err).WithField("address", s.opt.Address).Warn("metrics cannot be served; trying again, all else goes on")
	}
}

// Status says where metrics are served, or why not.
func (s *MetricsServer) Status() MetricsStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// errorLog takes what net/http and the scrape have to say.
func (s *MetricsServer) errorLog() *log.Logger { return log.New(debugWriter{s.opt.Log}, "", 0) }

// debugWriter logs what is written at level debug: most of it is about clients
// that went away.
type debugWriter struct{ log logrus.FieldLogger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.WithField("part", "metrics").Debug(string(p))
	return len(p), nil
}
