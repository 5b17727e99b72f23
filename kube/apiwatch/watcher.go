// Package apiwatch follows the own node's pods at the API server, with the
// node's identity. It is for kubelets without the Pods API, and beside it.
package apiwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cri-evictd/cri-evictd/kube"
)

const (
	firstWait   = time.Second
	longestWait = 30 * time.Second
	// settled is how long a connection must have lasted for the next wait to be
	// the first again.
	settled = time.Minute
	// listTimeout bounds one page of the list.
	listTimeout = 30 * time.Second
	// page is how many pods are decoded at a time.
	page = 50
	// watchFor is how long one watch lasts at least; up to twice that, so that
	// nodes that came together do not come back together.
	watchFor = 5 * time.Minute
)

// Pods are the pods of all nodes at an API server.
type Pods interface {
	List(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error)
	// Watch ends with ctx.
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Feed takes what is seen; kube.Feed.
type Feed interface {
	Record(pod *v1.Pod) kube.Record
	Replace(records []kube.Record, asked time.Time)
	Put(r kube.Record)
	Delete(uid string)
	Alive()
	Fail(err error) (news bool)
}

// Options of a Watcher.
type Options struct {
	Node string // its pods are followed
	// Connect makes a client from the kubeconfig. It is called again when the API
	// server no longer takes the credentials: the file may have new ones.
	Connect func() (Pods, error)
	Feed    Feed
	Clock   func() time.Time
	Log     logrus.FieldLogger
}

// Watcher keeps the feed as the API server has the node's pods.
type Watcher struct {
	opt Options

	mu     sync.Mutex
	status Status
}

// Status says how the watch is doing; FeedState has how current its pods are.
type Status struct {
	Node      string `json:"node"`
	Connected bool   `json:"connected"`
	// Since is when Connected became what it is.
	Since time.Time `json:"since,omitzero"`
	// Lists and Watches count what was asked for since the start, with success.
	Lists   uint64 `json:"lists"`
	Watches uint64 `json:"watches"`
	Problem string `json:"problem,omitempty"`
}

// New returns a watcher; Run does the work.
func New(opt Options) *Watcher {
	return &Watcher{opt: opt, status: Status{Node: opt.Node}}
}

// Status returns a copy; it may be called from any goroutine.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run follows the pods until ctx ends. While the API server is away the feed
// keeps what it had; that is one line in the log, and one when it is back.
func (w *Watcher) Run(ctx context.Context) {
	wait := firstWait
	var pods Pods
	for ctx.Err() == nil {
		begun := w.opt.Clock()
		err := func() error {
			if pods == nil {
				client, err := w.opt.Connect()
				if err != nil {
					return err
				}
				pods = client
			}
			return w.follow(ctx, pods)
		}()
		switch {
		case ctx.Err() != nil:
			return
		case expired(err):
			// Ordinary after a long absence: list again, now.
			if w.opt.Clock().Sub(begun) >= firstWait {
				continue
			}
		default:
			w.away(err)
			if apierrors.IsUnauthorized(err) {
				pods = nil
			}
		}
		if w.opt.Clock().Sub(begun) >= settled {
			wait = firstWait
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, longestWait)
	}
}

// follow lists the pods and then watches them, until something fails. It never
// returns nil.
func (w *Watcher) follow(ctx context.Context, pods Pods) error {
	version, err := w.list(ctx, pods)
	if err != nil {
		return err
	}
	for {
		begun := w.opt.Clock()
		if version, err = w.watch(ctx, pods, version); err != nil {
			return err
		}
		// The API server ended it, as it was asked to. One that does so at once
		// must not be asked in a circle.
		if w.opt.Clock().Sub(begun) < firstWait {
			return errors.New("the API server ends each watch at once")
		}
	}
}

func (w *Watcher) selector() string {
	return fields.OneTermEqualSelector("spec.nodeName", w.opt.Node).String()
}

// list hands over all pods of the node and returns the version they are of. Only
// one page of pods is in memory at a time.
func (w *Watcher) list(ctx context.Context, pods Pods) (version string, err error) {
	asked := w.opt.Clock()
	var records []kube.Record
	for next := ""; ; {
		list, err := func() (*v1.PodList, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			return pods.List(ctx, metav1.ListOptions{FieldSelector: w.selector(), Limit: page, Continue: next})
		}()
		if err != nil {
			return "", fmt.Errorf("list pods: %w", err)
		}
		for i := range list.Items {
			records = append(records, w.opt.Feed.Record(&list.Items[i]))
		}
		version, next = list.ResourceVersion, list.Continue
		if next == "" {
			break
		}
	}
	w.opt.Feed.Replace(records, asked)
	w.back(len(records))
	return version, nil
}

// watch hands over what changes after this version, and returns the version
// reached when the API server ends the watch in good order.
func (w *Watcher) watch(ctx context.Context, pods Pods, version string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seconds := int64((watchFor + rand.N(watchFor)).Seconds())
	stream, err := pods.Watch(ctx, metav1.ListOptions{
		FieldSelector: w.selector(), ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return version, fmt.Errorf("watch pods: %w", err)
	}
	defer stream.Stop()
	w.mu.Lock()
	w.status.Watches++
	w.mu.Unlock()
	w.opt.Feed.Alive()
	for {
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case event, ok := <-stream.ResultChan():
			if !ok {
				return version, nil
			}
			if event.Type == watch.Error {
				return version, fmt.Errorf("watch pods: %w", apierrors.FromObject(event.Object))
			}
			pod, ok := event.Object.(*v1.Pod)
			if !ok {
				return version, fmt.Errorf("watch pods: a %T in an event %s", event.Object, event.Type)
			}
			version = pod.ResourceVersion
			w.take(event.Type, pod)
		}
	}
}

// take hands over one event.
func (w *Watcher) take(kind watch.EventType, pod *v1.Pod) {
	switch kind {
	case watch.Added, watch.Modified:
		w.opt.Feed.Put(w.opt.Feed.Record(pod))
	case watch.Deleted:
		r := w.opt.Feed.Record(pod)
		w.opt.Feed.Delete(r.Key())
	case watch.Bookmark:
		w.opt.Feed.Alive()
	}
}

// away takes note that the API server cannot be followed.
func (w *Watcher) away(err error) {
	news := w.opt.Feed.Fail(err)
	w.mu.Lock()
	if w.status.Connected || w.status.Since.IsZero() {
		w.status.Since = w.opt.Clock()
	}
	w.status.Connected, w.status.Problem = false, err.Error()
	w.mu.Unlock()
	if news {
		w.opt.Log.WithError(err).Warn("the API server's pods cannot be followed: what was known of them stays and ages")
	}
}

// back takes note that a list arrived.
func (w *Watcher) back(pods int) {
	w.mu.Lock()
	news := !w.status.Connected
	if news {
		w.status.Since = w.opt.Clock()
	}
	w.status.Connected, w.status.Problem = true, ""
	w.status.Lists++
	w.mu.Unlock()
	if news {
		w.opt.Log.WithField("pods", pods).Info("following this node's pods at the API server")
	}
}

// expired says that the version asked for is too old to go on from.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
