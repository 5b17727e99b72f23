package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/unixsock"
)

// eventsService serves the evictor on a unix socket:
//
//	GET /v1/events   Event as one JSON object a line, without end
//	GET /v1/status   Status
type eventsService struct {
	sock   *unixsock.Socket
	server *http.Server
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// serveEvents starts the service; without a socket in the options it returns
// nil, whose methods do nothing.
func (p *Proxy) serveEvents(own unixsock.Owner) (*eventsService, error) {
	if p.opts.EventsSocket == "" {
		return nil, nil
	}
	sock, err := unixsock.Listen(p.opts.EventsSocket, own, p.opts.Log)
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
	s := &eventsService{
		sock:   sock,
		cancel: cancel,
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
	}
	s.done.Go(func() {
		if err := s.server.Serve(sock); err != nil && !errors.Is(err, http.ErrServerClosed) {
			p.opts.Log.WithError(err).Error("events service ended")
		}
	})
	return s, nil
}

// adopt is unixsock.Socket.Adopt for the service's socket.
func (s *eventsService) adopt(upstream string) {
	if s != nil {
		s.sock.Adopt(upstream)
	}
}

// close ends all streams and removes the socket.
func (s *eventsService) close() {
	if s == nil {
		return
	}
	s.sock.Remove()
	s.cancel()
	_ = s.server.Close()
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
