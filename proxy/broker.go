package proxy

import (
	"sync"
	"time"
)

// subscriberQueue is how many events may wait for one subscriber.
const subscriberQueue = 1024

// broker hands events to subscribers and never waits for them.
type broker struct {
	mu      sync.Mutex
	seq     uint64
	dropped uint64
	subs    map[*subscriber]struct{}
}

func newBroker() *broker { return &broker{subs: make(map[*subscriber]struct{})} }

// subscriber is one reader of the stream with what waits for it.
type subscriber struct {
	mu    sync.Mutex
	queue []Event
	lost  bool          // the queue was dropped: tell before anything else
	wake  chan struct{} // capacity 1
}

// publish numbers an event and gives it to everybody.
func (b *broker) publish(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	e.Seq = b.seq
	e.Time = time.Now().UTC()
	for s := range b.subs {
		b.dropped += s.put(e)
	}
}

// subscribe adds a reader; seq is the number of the last event before it.
func (b *broker) subscribe() (s *subscriber, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s = &subscriber{wake: make(chan struct{}, 1)}
	b.subs[s] = struct{}{}
	return s, b.seq
}

func (b *broker) unsubscribe(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, s)
}

func (b *broker) counts() (seq, dropped uint64, subscribers int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seq, b.dropped, len(b.subs)
}

// put queues an event and returns how many were lost by that. A reader that is
// too slow has to list anew anyhow, so that its whole queue goes.
func (s *subscriber) put(e Event) (lost uint64) {
	s.mu.Lock()
	if len(s.queue) >= subscriberQueue {
		lost = uint64(len(s.queue))
		s.queue = nil
		s.lost = true
	}
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return lost
}

// take returns what waits, a "dirty" event first if something was lost.
func (s *subscriber) take() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.queue
	s.queue = nil
	if s.lost {
		s.lost = false
		dirty := Event{Type: EventDirty}
		if len(events) > 0 {
			dirty.Seq, dirty.Time = events[0].Seq-1, events[0].Time
		}
		events = append([]Event{dirty}, events...)
	}
	return events
}
