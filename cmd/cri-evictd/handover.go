package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/proxy"
	"github.com/cri-evictd/cri-evictd/systemd"
)

const (
	// comeUp is how long a new process may take until it serves.
	comeUp = 30 * time.Second
	// upgradePatience is how long a request may take besides the time that calls of
	// the process before this one still have.
	upgradePatience = 2 * comeUp
)

var (
	errUpgrading  = errors.New("another upgrade is under way")
	errHandedOver = errors.New("this process has handed over already")
)

// upgraded is the answer to a request to hand over.
type upgraded struct {
	Old generation `json:"old"`
	New generation `json:"new"`
}

// generation is one process of the daemon.
type generation struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// handOver is how a process gives way to a new one: it starts the program at its
// own path, which an upgrade has replaced, with its own arguments and sockets, and
// goes on until that serves. There are two generations at most.
type handOver struct {
	process *process
	log     logrus.FieldLogger
	// self is the program and its arguments.
	self func() (path string, args []string, err error)

	busy sync.Mutex // held by an upgrade; others are refused
	done bool       // guarded by busy

	proxy atomic.Pointer[proxy.Proxy] // nil: there is none here
	evict *pausable                   // nil: there is none here
	// limit is how long calls may go on here afterwards.
	limit func() time.Duration
	// comeUp is how long a new process may take until it serves.
	comeUp time.Duration
	// leave ends this process.
	leave context.CancelFunc
}

func newHandOver(p *process, log logrus.FieldLogger) *handOver {
	return &handOver{process: p, log: log, comeUp: comeUp, self: func() (string, []string, error) {
		path, err := os.Executable()
		return path, os.Args[1:], err
	}}
}

// upgrade makes a new process take over. With an error this one goes on as before;
// without one the caller calls finish, after which this process ends.
func (h *handOver) upgrade(ctx context.Context) (result upgraded, finish func(), err error) {
	if !h.busy.TryLock() {
		return upgraded{}, nil, errUpgrading
	}
	defer h.busy.Unlock()
	if h.done {
		return upgraded{}, nil, errHandedOver
	}
	select {
	case <-h.process.before.Gone():
	case <-ctx.Done():
		return upgraded{}, nil, fmt.Errorf("the process before this one still finishes its calls: %w", ctx.Err())
	}
	s, err := h.startSuccessor()
	if err != nil {
		return upgraded{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.comeUp)
	defer cancel()
	newVersion, err := h.await(ctx, s)
	if err != nil {
		s.Kill()
		if h.proxy.Load() == nil {
			h.evict.resume()
		}
		h.log.WithError(err).Error("the new process did not come up; this one goes on")
		return upgraded{}, nil, fmt.Errorf("the new process did not come up, the old one goes on: %w", err)
	}
	h.done = true
	h.process.manager.Successor(s.PID)
	if err := s.MakeMain(); err != nil {
		h.log.WithError(err).Warn("handing over")
	}
	h.log.WithFields(logrus.Fields{"pid": s.PID, "version": newVersion}).Info("a new process has taken over")
	go func() {
		// While calls finish here nobody would notice that the new one is gone.
		<-s.Ended()
		h.log.Error("the process that took over has ended; this one ends too, for a new start")
		h.leave()
	}()
	result = upgraded{Old: generation{os.Getpid(), version()}, New: generation{s.PID, newVersion}}
	return result, h.giveWay, nil
}

// startSuccessor starts the new process.
func (h *handOver) startSuccessor() (*systemd.Successor, error) {
	path, args, err := h.self()
	if err != nil {
		return nil, fmt.Errorf("the program of this process: %w", err)
	}
	files := map[string]*os.File{}
	if p := h.proxy.Load(); p != nil {
		sockets, err := p.Sockets()
		if err != nil {
			return nil, err
		}
		defer sockets.Close()
		name := socketCRI
		if sockets.FrontIsOurs {
			name = socketCRIOwn
		}
		files[name] = sockets.Front
		if sockets.Events != nil {
			files[socketEvents] = sockets.Events
		}
	}
	return systemd.StartSuccessor(path, args, files)
}

// await waits until the new process serves, and returns its version. An evictor
// makes room for it first: there is one writer of the holds file and of the ledger.
// The holds stand meanwhile.
func (h *handOver) await(ctx context.Context, s *systemd.Successor) (string, error) {
	if h.proxy.Load() == nil {
		if _, err := s.Await(ctx, systemd.WordPrepared); err != nil {
			return "", err
		}
		h.evict.pause()
	}
	return s.Await(ctx, systemd.WordReady)
}

// giveWay ends what this process does: the evictor at once, the proxy when its
// calls have ended.
func (h *handOver) giveWay() {
	if h.evict != nil {
		h.evict.pause()
	}
	if p := h.proxy.Load(); p != nil {
		p.HandOver(h.limit())
		return
	}
	h.leave()
}

// ServeHTTP answers a request to hand over. The connection is taken from the HTTP
// server, which ends on the way.
func (h *handOver) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }() // answered by then
	ctx, cancel := context.WithTimeout(context.Background(), h.limit()+upgradePatience)
	defer cancel()
	result, finish, err := h.upgrade(ctx)
	status, body := "200 OK", []byte(nil)
	if err == nil {
		body, err = json.Marshal(result)
	}
	if err != nil {
		status, body = "409 Conflict", []byte(err.Error()+"\n")
	}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body); err != nil {
		h.log.WithError(err).Warn("who asked for the upgrade did not wait for the answer")
	}
	if finish != nil {
		finish()
	}
}

// pausable runs something that can be stopped and begun anew from outside.
type pausable struct {
	once func(context.Context) error

	mu      sync.Mutex
	paused  bool
	stop    context.CancelFunc // of the run under way
	ended   chan struct{}      // closed when that has ended
	resumed chan struct{}      // closed by resume
}

func newPausable(once func(context.Context) error) *pausable {
	return &pausable{once: once, resumed: make(chan struct{})}
}

// run runs it until it ends by itself or ctx does.
func (p *pausable) run(ctx context.Context) error {
	for {
		p.mu.Lock()
		resumed := p.resumed
		if p.paused {
			p.mu.Unlock()
			select {
			case <-resumed:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		once, stop := context.WithCancel(ctx)
		p.stop, p.ended = stop, make(chan struct{})
		p.mu.Unlock()
		err := p.once(once)
		stop()
		p.mu.Lock()
		close(p.ended)
		p.stop = nil
		paused := p.paused
		p.mu.Unlock()
		if !paused {
			return err
		}
	}
}

// pause stops it and returns when that is done. More than once is once.
func (p *pausable) pause() {
	p.mu.Lock()
	p.paused = true
	stop, ended := p.stop, p.ended
	p.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
}

// resume begins anew after pause.
func (p *pausable) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused {
		p.paused = false
		close(p.resumed)
		p.resumed = make(chan struct{})
	}
}
