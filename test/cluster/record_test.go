package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cri-evictd/cri-evictd/kube/apiwatch"
)

// moment is a pod as the API server had it from then on.
type moment struct {
	at      time.Time
	pod     *v1.Pod
	deleted bool
}

// history is a pod over time, oldest first.
type history []moment

// String has a line for each moment.
func (h history) String() string {
	var b strings.Builder
	for _, m := range h {
		st := &m.pod.Status
		fmt.Fprintf(&b, "%s rv %s %s %q %v", m.at.UTC().Format("15:04:05.000"), m.pod.ResourceVersion, st.Phase, st.Reason, m.pod.Annotations)
		for _, c := range allContainers(m.pod) {
			fmt.Fprintf(&b, " %s ready %t restarts %d %s", c.Name, c.Ready, c.RestartCount, stateText(c.State))
		}
		for _, c := range st.Conditions {
			fmt.Fprintf(&b, " %s=%s(%s)", c.Type, c.Status, c.Reason)
		}
		if m.pod.DeletionTimestamp != nil {
			b.WriteString(" deleting")
		}
		if m.deleted {
			b.WriteString(" DELETED")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func stateText(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("ended %d %s", s.Terminated.ExitCode, s.Terminated.Reason)
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	}
	return "unknown"
}

// recorder follows every pod of the API server, so that what came and went between
// two looks is seen as well.
type recorder struct {
	mu   sync.Mutex
	pods map[types.UID]history
}

// record runs a recorder until the test ends. While the API server is away nothing
// is recorded; what is different afterwards is.
func record(t *testing.T, kubeconfig string) *recorder {
	t.Helper()
	r := &recorder{pods: map[types.UID]history{}}
	server, err := apiwatch.Connect(kubeconfig, "cluster-test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = r.follow(ctx, server) // it ends with every outage
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

func (r *recorder) follow(ctx context.Context, server apiwatch.Pods) error {
	list, err := server.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r.add(&list.Items[i], false)
	}
	stream, err := server.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		pod, ok := e.Object.(*v1.Pod)
		if !ok {
			return errors.New("the watch ended")
		}
		r.add(pod, e.Type == watch.Deleted)
	}
	return errors.New("the watch ended")
}

func (r *recorder) add(pod *v1.Pod, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.pods[pod.UID]
	if n := len(h); n > 0 && h[n-1].pod.ResourceVersion == pod.ResourceVersion && h[n-1].deleted == deleted {
		return
	}
	r.pods[pod.UID] = append(h, moment{at: time.Now(), pod: pod, deleted: deleted})
}

// of returns what is recorded of a pod.
func (r *recorder) of(uid types.UID) history {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pods[uid])
}

// last returns the pod as it was seen last.
func (r *recorder) last(uid types.UID) (*v1.Pod, bool) {
	h := r.of(uid)
	if len(h) == 0 {
		return &v1.Pod{}, false
	}
	return h[len(h)-1].pod, true
}

// gone says whether the pod's object was deleted.
func (r *recorder) gone(uid types.UID) bool {
	h := r.of(uid)
	return len(h) > 0 && h[len(h)-1].deleted
}

// patience bounds one call.
func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

func (s *stage) write(path string, b []byte) {
	s.t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}
