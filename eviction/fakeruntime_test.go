package eviction

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

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
	// ends is how long a container takes to end after SIGTERM, at once when it is
	// not in it; graces are the timeouts that were given, as "container 30s".
	ends   map[string]time.Duration
	hang   bool // StopContainer with a grace never comes back by itself
	graces []string
}

func newRuntime() *fakeRuntime {
	return &fakeRuntime{
		ends:      map[string]time.Duration{},
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

func (r *fakeRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	if err := r.grace(ctx, id, timeout); err != nil {
		return err
	}
	return r.stop("container "+id, func() {
		if c, ok := r.containers[id]; ok {
			c.Running = false
			r.containers[id] = c
		}
	})
}

// grace is what happens between SIGTERM and SIGKILL.
func (r *fakeRuntime) grace(ctx context.Context, id string, timeout int64) error {
	r.mu.Lock()
	if timeout > 0 {
		r.graces = append(r.graces, fmt.Sprintf("%s %ds", id, timeout))
	}
	wait, hang := min(r.ends[id], time.Duration(timeout)*time.Second), r.hang && timeout > 0
	r.mu.Unlock()
	if wait == 0 && !hang {
		return nil
	}
	end := time.After(wait)
	if hang {
		end = nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-end:
		return nil
	}
}

func (r *fakeRuntime) StopPodSandbox(_ context.Context, id string) error {
	var cg *fakeCgroup
	err := r.stop("sandbox "+id, func() {
		if s, ok := r.sandboxes[id]; ok {
			s.Ready = false
			r.sandboxes[id] = s
		}
		for cid, c := range r.containers {
			if c.SandboxID == id {
				c.Running = false
				r.containers[cid] = c
			}
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
