package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// errDraining is the cause of a call that ends because we end.
var errDraining = errors.New("cri-evictd proxy is shutting down")

// call is one forwarded call under way.
type call struct {
	shape  shape
	cancel context.CancelCauseFunc
	// upstream is set when the call has reached a connection to the runtime.
	upstream atomic.Bool
	// answering is set when the first part of the answer was passed on.
	answering atomic.Bool
}

// calls are all calls under way.
type calls struct {
	mu       sync.Mutex
	open     map[*call]struct{}
	draining bool
}

func newCalls() *calls { return &calls{open: make(map[*call]struct{})} }

// add reports false for a call that must not start any more: an endless one
// during the drain.
func (cs *calls) add(c *call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.draining && c.shape == shapeStream {
		return false
	}
	cs.open[c] = struct{}{}
	return true
}

func (cs *calls) remove(c *call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.open, c)
}

func (cs *calls) len() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// drain ends what would not end by itself: known streams, and calls that have
// not reached the runtime. It returns calls of unknown methods that have begun
// to answer: streams most likely, but perhaps a unary call's last microseconds.
func (cs *calls) drain() (likelyStreams []*call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.draining = true
	for c := range cs.open {
		switch {
		case c.shape == shapeStream || !c.upstream.Load():
			c.cancel(errDraining)
		case c.shape == shapeUnknown && c.answering.Load():
			likelyStreams = append(likelyStreams, c)
		}
	}
	return likelyStreams
}

// cancelAll ends every call still open.
func (cs *calls) cancelAll() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		c.cancel(errDraining)
	}
}
