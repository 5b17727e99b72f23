// Package podsapi reads pods from kubelet's Pods API (Kubernetes 1.37, KEP-4188):
// a gRPC service on a unix socket that has every pod of the node, static ones
// included, without an API server.
//
// The watch tells what changes, but its events come from kubelet's status
// manager: a change of the spec alone may produce none, a client that falls
// behind is cut off, and a pod rejected at admission may end without a word. So
// everything is listed now and then as well.
package podsapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/cri-evictd/cri-evictd/kube"
)

// Sink takes what is read; *kube.Feed is one.
type Sink interface {
	// Record takes from a pod what is to be kept of it.
	Record(pod *v1.Pod) kube.Record
	// Replace takes a complete list that was asked for at the given time.
	Replace(records []kube.Record, asked time.Time)
	Put(r kube.Record)
	// Delete drops the pod with this Record.Key.
	Delete(key string)
	// Fail says that nothing can be read now; it reports whether that is news.
	Fail(err error) (news bool)
}

// timing are the reader's intervals.
type timing struct {
	list       time.Duration // between lists beside a watch
	poll       time.Duration // between lists without one
	afterEnd   time.Duration // from a DELETED to the list that confirms it
	retryFirst time.Duration
	retryMost  time.Duration
	otherwise  time.Duration // until a kubelet of another version is asked again
	patience   time.Duration // of one call, and of the watch until it is complete
}

var _ Sink = (*kube.Feed)(nil)

func defaultTiming() timing {
	return timing{
		list: time.Minute, poll: 10 * time.Second, afterEnd: 2 * time.Second,
		retryFirst: 500 * time.Millisecond, retryMost: 10 * time.Second, otherwise: time.Minute, patience: 20 * time.Second,
	}
}

// Reader follows the Pods API.
type Reader struct {
	socket string
	sink   Sink
	clock  func() time.Time
	log    logrus.FieldLogger
	relist chan struct{}
	timing timing
}

// New returns a reader of the socket at this path; Run does the work.
func New(socket string, sink Sink, clock func() time.Time, log logrus.FieldLogger) *Reader {
	return &Reader{
		socket: socket, sink: sink, clock: clock, log: log.WithField("podsAPISocket", socket),
		relist: make(chan struct{}, 1), timing: defaultTiming(),
	}
}

// Relist asks for a list soon.
func (r *Reader) Relist() {
	select {
	case r.relist <- struct{}{}:
	default:
	}
}

// Run reads until ctx ends. Whatever goes wrong is tried again.
func (r *Reader) Run(ctx context.Context) {
	wait := r.timing.retryFirst
	for {
		s := &session{Reader: r}
		err := s.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.synced {
			wait = r.timing.retryFirst
		}
		pause := wait
		if status.Code(err) == codes.Unimplemented {
			pause = r.timing.otherwise
		}
		r.failed(err, s.synced)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, r.timing.retryMost)
	}
}

// failed says once what is wrong. A watch that was complete and was cut off by
// kubelet, because we or the buffer fell behind, is only begun anew.
func (r *Reader) failed(err error, synced bool) {
	if synced && status.Code(err) == codes.ResourceExhausted {
		r.log.WithError(err).Debug("the watch was cut off; everything is read anew")
		return
	}
	text, why := r.reason(err)
	if !r.sink.Fail(why) {
		return
	}
	if errors.Is(why, kube.ErrAbsent) {
		r.log.WithField("why", why.Error()).Info(text)
		return
	}
	r.log.WithError(why).Warn(text)
}

// reason tells what an error means: in words, and as an error that says whether the
// Pods API is there at all.
func (r *Reader) reason(err error) (text string, why error) {
	const fallback = "; other sources of pod facts are used, and it is tried again"
	if _, statErr := os.Stat(r.socket); errors.Is(statErr, fs.ErrNotExist) {
		return "kubelet's Pods API is not there" + fallback, fmt.Errorf("%w: there is no socket %s", kube.ErrAbsent, r.socket)
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return "kubelet's Pods API is of another version" + fallback, fmt.Errorf("%w: this kubelet does not speak v1alpha1: %w", kube.ErrAbsent, err)
	case codes.FailedPrecondition:
		return "kubelet is not ready to tell its pods yet", err
	}
	return "kubelet's Pods API cannot be read" + fallback, err
}

// Get asks for one pod. The error's code is NotFound when kubelet does not have
// it.
func (r *Reader) Get(ctx context.Context, uid string) (kube.Record, error) {
	client, closeConn, err := dial(r.socket)
	if err != nil {
		return kube.Record{}, err
	}
	defer closeConn()
	resp, err := client.GetPod(ctx, &pods.GetPodRequest{PodUID: uid})
	if err != nil {
		return kube.Record{}, fmt.Errorf("GetPod: %w", err)
	}
	return r.record(resp.GetPod())
}

// record decodes one pod.
func (r *Reader) record(b []byte) (kube.Record, error) {
	var p v1.Pod
	if err := p.Unmarshal(b); err != nil {
		return kube.Record{}, fmt.Errorf("decoding a pod: %w", err)
	}
	if p.UID == "" {
		return kube.Record{}, errors.New("decoding a pod: it has no UID")
	}
	return r.sink.Record(&p), nil
}

// ended says in words that a stream ended without an error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the watch ended")
	}
	return err
}
