package eviction

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// fakeRuntime is a container runtime: Runtime and inventory.Runtime.
type fakeRuntime struct {
	mu         sync.Mutex
	sandboxes  map[string]inventory.ListedSandbox
	containers map[string]inventory.Container
	cgroups    map[string]*fakeCgroup // by sandbox: stopped with it
	listErr    error
	stopErr    error
	lists      int
	stops      []string
}

func newRuntime() *fakeRuntime {
	return &fakeRuntime{
		sandboxes: map[string]inventory.ListedSandbox{}, containers: map[string]inventory.Container{}, cgroups: map[string]*fakeCgroup{},
	}
}

func (r *fakeRuntime) List(context.Context) (inventory.Listing, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	if r.listErr != nil {
		return inventory.Listing{}, r.listErr
	}
	var l inventory.Listing
	for _, s := range r.sandboxes {
		l.Sandboxes = append(l.Sandboxes, s)
	}
	for _, c := range r.containers {
		l.Containers = append(l.Containers, c)
	}
	return l, nil
}

func (r *fakeRuntime) PID(context.Context, string) (int, error) { return 0, nil }

func (r *fakeRuntime) StopContainer(_ context.Context, id string, _ int64) error {
	return r.stop("container "+id, func() {
		if c, ok := r.containers[id]; ok {
			c.Running = false
			r.containers[id] = c
		}
	})
}

func (r *fakeRuntime) StopPodSandbox(_ context.Context, id string) error {
	var cg *fakeCgroup
	err := r.stop("sandbox "+id, func() {
		if s, ok := r.sandboxes[id]; ok {
			s.Ready = false
			r.sandboxes[id] = s
		}
		cg = r.cgroups[id]
	})
	if cg != nil && err == nil {
		_, _ = cg.die()
	}
	return err
}

func (r *fakeRuntime) stop(what string, effect func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, what)
	if r.stopErr != nil {
		return r.stopErr
	}
	effect()
	return nil
}

func (r *fakeRuntime) stopped() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.stops...)
}

func (r *fakeRuntime) failStops(err error) {
	r.mu.Lock()
	r.stopErr = err
	r.mu.Unlock()
}

// logLines keeps what was logged.
type logLines struct {
	mu     sync.Mutex
	lines  []string
	levels []logrus.Level
}

func (l *logLines) Levels() []logrus.Level { return logrus.AllLevels }

func (l *logLines) Fire(e *logrus.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := e.Message
	if err, ok := e.Data[logrus.ErrorKey]; ok {
		line += fmt.Sprintf(": %v", err)
	}
	l.lines, l.levels = append(l.lines, line), append(l.levels, e.Level)
	return nil
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// at returns the lines of one level.
func (l *logLines) at(level logrus.Level) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for i, line := range l.lines {
		if l.levels[i] == level {
			out = append(out, line)
		}
	}
	return out
}

func quietLog() (*logrus.Logger, *logLines) {
	log, lines := logrus.New(), &logLines{}
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.DebugLevel)
	log.AddHook(lines)
	return log, lines
}
