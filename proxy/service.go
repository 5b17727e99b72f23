package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/internal/unixsock"
)

// eventsService serves the evictor on a unix socket:
//
//	GET  /v1/events   Event as one JSON object a line, without end
//	GET  /v1/status   Status
//	POST /v1/upgrade  Options.Upgrade
//	POST /v1/images/reserve   ImageReservation; 409 when the image is wanted
//	POST /v1/images/release?token=
type eventsService struct {
	owner  unixsock.Owner
	sock   atomic.Pointer[unixsock.Socket]
	server *http.Server
	cancel context.CancelFunc
	done   sync.WaitGroup
	log    logrus.FieldLogger
}

// answerGrace is how long answers under way may take at the end of the service.
const answerGrace = time.Second

// serveEvents starts the service; without a socket in the options it returns
// nil, whose methods do nothing.
func (p *Proxy) serveEvents(own unixsock.Owner) (*eventsService, error) {
	if p.opts.EventsSocket == "" {
		return nil, nil
	}
	var sock *unixsock.Socket
	var err error
	if f := p.opts.Sockets.Events; f != nil {
		sock, err = unixsock.Inherit(f, true, p.opts.Log)
	} else {
		sock, err = unixsock.Listen(p.opts.EventsSocket, own, p.opts.Log)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) { p.streamEvents(ctx, w, r) })
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(p.Status()); err != nil {
			p.opts.Log.WithError(err).Debug("status not delivered")
		}
	})
	if p.opts.Upgrade != nil {
		mux.Handle("POST /v1/upgrade", p.opts.Upgrade)
	}
	mux.HandleFunc("POST /v1/images/reserve", p.reserveImage)
	mux.HandleFunc("POST /v1/images/release", p.releaseImage)
	s := &eventsService{
		owner:  own,
		cancel: cancel,
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		log:    p.opts.Log,
	}
	s.sock.Store(sock)
	s.done.Go(func() { s.serve(sock) })
	s.done.Go(func() {
		unixsock.Keep(ctx, sock, own, "the proxy's socket for the evictor", p.opts.Log, func(again *unixsock.Socket) {
			s.sock.Store(again)
			s.done.Go(func() { s.serve(again) })
		})
	})
	return s, nil
}

func (s *eventsService) serve(sock *unixsock.Socket) {
	if err := s.server.Serve(sock); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.log.WithError(err).Error("events service ended")
	}
}

// adopt is unixsock.Socket.Adopt for the service's socket.
func (s *eventsService) adopt(upstream string) {
	if s != nil {
		s.sock.Load().Adopt(upstream)
	}
}

// giveWay leaves new connections to another process; streams go on.
func (s *eventsService) giveWay() {
	if s != nil {
		s.sock.Load().Disown()
		_ = s.sock.Load().Close() // only that nobody accepts any more matters
	}
}

// close ends all streams and removes the socket.
func (s *eventsService) close() {
	if s == nil {
		return
	}
	s.sock.Load().Remove()
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), answerGrace)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close() // who has not taken the answer by now does without
	}
	s.done.Wait()
}

// streamEvents writes events until the reader goes or we end.
func (p *Proxy) streamEvents(end context.Context, w http.ResponseWriter, r *http.Request) {
	sub, seq := p.events.subscribe()
	defer p.events.unsubscribe(sub)
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w).Flush

	batch := []Event{{
		Seq: seq, Time: time.Now().UTC(), Type: EventHello,
		Upstream: p.upstream.status().State,
	}}
	for {
		for _, e := range batch {
			if err := out.Encode(e); err != nil {
				return
			}
		}
		if err := flush(); err != nil {
			return
		}
		select {
		case <-sub.wake:
		case <-r.Context().Done():
			return
		case <-end.Done():
			return
		}
		batch = sub.take()
	}
}
