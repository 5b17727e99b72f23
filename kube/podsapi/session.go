package podsapi

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/cri-evictd/cri-evictd/kube"
)

// maxMessage is the largest list that is taken: one ListPods carries every pod,
// and grpc's own limit of 4 MiB is soon reached.
const maxMessage = 64 << 20

// dial makes a connection; nothing is sent before the first call.
func dial(socket string) (client pods.PodsClient, closeConn func(), err error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(), grpc.WithAuthority("localhost"),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 2 * time.Second}))
	if err != nil {
		return nil, nil, fmt.Errorf("podsAPISocket: %w", err)
	}
	return pods.NewPodsClient(conn), func() { _ = conn.Close() }, nil // nothing can be lost
}

// session is one connection: a watch with lists beside it.
type session struct {
	*Reader
	client pods.PodsClient
	// synced: everything was read at least once.
	synced bool
	// initial are the pods the watch began with, until it says that it is
	// complete.
	initial []kube.Record
	begun   time.Time
	// listed is the answer of a list that is under way, nil when none is.
	listed chan listing
	next   *time.Timer // the next list
	nextAt time.Time
	again  bool // one more is wanted after the one that is under way
	slower time.Duration
	// undecodable and strange were said already.
	undecodable, strange bool
}

type listing struct {
	records []kube.Record
	asked   time.Time
	broken  error // why a pod could not be decoded
	err     error
}

// received is one event of the watch or its end.
type received struct {
	event *pods.WatchPodsEvent
	err   error
}

func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	client, closeConn, err := dial(s.socket)
	if err != nil {
		cancel()
		return err
	}
	s.client = client
	s.begun = s.clock()
	events := make(chan received)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch(ctx, events)
	}()
	defer func() {
		cancel()
		closeConn()
		<-done
		if s.listed != nil {
			<-s.listed
		}
	}()
	// Should the watch never say that it is complete, a list does.
	s.next = time.NewTimer(s.timing.patience)
	defer s.next.Stop()
	return s.loop(ctx, events)
}

func (s *session) loop(ctx context.Context, events <-chan received) error {
	watching := true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-events:
			switch {
			case r.err == nil:
				s.take(r.event)
			case !s.synced && status.Code(r.err) == codes.Unimplemented:
				// Perhaps it lists.
				watching = false
				s.plan(0)
			default:
				return ended(r.err)
			}
		case <-s.relist:
			s.soon(0)
		case <-s.next.C:
			s.list(ctx)
		case l := <-s.listed:
			s.listed = nil
			if err := s.takeList(l, watching); err != nil {
				return err
			}
		}
	}
}

// watch reads the stream until it ends; the end is the last that it sends.
func (s *session) watch(ctx context.Context, to chan<- received) {
	send := func(r received) bool {
		select {
		case to <- r:
			return true
		case <-ctx.Done():
			return false
		}
	}
	stream, err := s.client.WatchPods(ctx, &pods.WatchPodsRequest{})
	if err != nil {
		send(received{err: fmt.Errorf("WatchPods: %w", err)})
		return
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			send(received{err: fmt.Errorf("WatchPods: %w", err)})
			return
		}
		if !send(received{event: e}) {
			return
		}
	}
}

// take applies one event.
func (s *session) take(e *pods.WatchPodsEvent) {
	switch e.GetType() {
	case pods.EventType_INITIAL_SYNC_COMPLETE:
		if !s.synced {
			s.complete(s.initial, s.begun)
			s.plan(s.timing.list)
		}
		s.initial = nil
	case pods.EventType_ADDED, pods.EventType_MODIFIED, pods.EventType_DELETED:
		rec, err := s.record(e.GetPod())
		if err != nil {
			s.cannotDecode(err)
			return
		}
		switch {
		case e.GetType() == pods.EventType_DELETED:
			s.sink.Delete(rec.Key())
			s.soon(s.timing.afterEnd)
		case s.synced:
			s.sink.Put(rec)
		default:
			s.initial = append(s.initial, rec)
		}
	default:
		// A later version tells something else; the list has it too.
		if !s.strange {
			s.strange = true
			s.log.WithField("type", int32(e.GetType())).Info("kubelet's Pods API sends events of a kind that is not known; pods are listed instead")
		}
		s.soon(s.timing.afterEnd)
	}
}

// complete takes everything there is.
func (s *session) complete(records []kube.Record, asked time.Time) {
	s.sink.Replace(records, asked)
	if !s.synced {
		s.synced = true
		s.log.WithField("pods", len(records)).Info("pod facts come from kubelet's Pods API")
	}
}

// soon plans the next list no later than in d.
func (s *session) soon(d time.Duration) {
	if s.listed == nil && (s.nextAt.IsZero() || s.clock().Add(d).Before(s.nextAt)) {
		s.plan(d)
	}
	s.again = s.again || s.listed != nil // it may have been asked too early
}

// plan plans the next list.
func (s *session) plan(d time.Duration) {
	s.nextAt = s.clock().Add(d)
	s.next.Reset(d)
}

// list asks for everything beside the watch, whose events must be taken
// meanwhile: kubelet cuts off who is 100 behind.
func (s *session) list(ctx context.Context) {
	if s.listed != nil {
		return
	}
	asked := s.clock()
	answer := make(chan listing, 1)
	s.listed = answer
	go func() {
		defer close(answer)
		lctx, cancel := context.WithTimeout(ctx, s.timing.patience)
		defer cancel()
		resp, err := s.client.ListPods(lctx, &pods.ListPodsRequest{})
		l := listing{asked: asked}
		if err != nil {
			l.err = fmt.Errorf("ListPods: %w", err)
		} else {
			l.records = make([]kube.Record, 0, len(resp.GetPods()))
			for i, b := range resp.GetPods() {
				rec, err := s.record(b)
				resp.Pods[i] = nil
				if err != nil {
					l.broken = err
					continue
				}
				l.records = append(l.records, rec)
			}
		}
		answer <- l
	}()
}

// takeList takes the answer of a list. An error beside a watch that goes on is
// not one of the source, unless kubelet does not answer at all.
func (s *session) takeList(l listing, watching bool) error {
	pause := s.timing.list
	if !watching {
		pause = s.timing.poll
	}
	if s.again {
		s.again, pause = false, min(pause, s.timing.afterEnd)
	}
	if l.err != nil {
		if !watching || !s.synced {
			return l.err
		}
		if status.Code(l.err) == codes.DeadlineExceeded {
			return l.err
		}
		if s.slower = min(max(2*s.slower, s.timing.retryFirst), pause); status.Code(l.err) == codes.ResourceExhausted {
			pause = s.slower // its rate limit, or a list that is too long
		}
		s.log.WithError(l.err).Debug("the pods could not be listed; the watch goes on")
		s.plan(pause)
		return nil
	}
	s.slower = 0
	if l.broken != nil {
		s.cannotDecode(l.broken)
	}
	s.complete(l.records, l.asked)
	s.initial = nil
	s.plan(pause)
	return nil
}

// cannotDecode says once that a pod cannot be read; the others can.
func (s *session) cannotDecode(err error) {
	if s.undecodable {
		return
	}
	s.undecodable = true
	s.log.WithError(err).Warn("a pod of kubelet's Pods API cannot be read; other sources tell what they know of it")
}
