package apiwatch

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// server is an API server with the faults a test wants; the real one is in
// test/kubelet.
type server struct {
	mu       sync.Mutex
	pods     []v1.Pod
	version  int
	down     error // what every call fails with
	watchErr error // what the next watch fails with
	lists    []metav1.ListOptions
	watches  []metav1.ListOptions
	stream   *watch.RaceFreeFakeWatcher
}

func (s *server) List(_ context.Context, opts metav1.ListOptions) (*v1.PodList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, opts)
	if s.down != nil {
		return nil, s.down
	}
	from, _ := strconv.Atoi(opts.Continue)
	to := min(from+int(opts.Limit), len(s.pods))
	list := &v1.PodList{Items: s.pods[from:to]}
	list.ResourceVersion = strconv.Itoa(s.version)
	if to < len(s.pods) {
		list.Continue = strconv.Itoa(to)
	}
	return list, nil
}

func (s *server) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, opts)
	if err := s.watchErr; err != nil {
		s.watchErr = nil
		return nil, err
	}
	if s.down != nil {
		return nil, s.down
	}
	s.stream = watch.NewRaceFreeFake()
	return s.stream, nil
}

// calls returns how often it was asked.
func (s *server) calls() (lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lists), len(s.watches)
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// pod has a priority, by which tests tell versions of it apart.
func pod(name string, version int, priority int32) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(version)},
		Spec:       v1.PodSpec{NodeName: "n1", Priority: &priority, Containers: []v1.Container{{Name: "main"}}},
	}
}

var errRefused = fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")})
