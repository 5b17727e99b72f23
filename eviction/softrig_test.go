package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// fakeHooks is the runtime's part in a graceful stop.
type fakeHooks struct {
	mu          sync.Mutex
	annotations map[string]map[string]string // by container
	execs       []string
	execFor     time.Duration
	execErr     error
	err         error
	// notes is how long the runtime takes to note the end of a container from the
	// first question on; unknown: it does not answer that.
	notes   time.Duration
	asked   time.Time
	unknown bool
}

func (h *fakeHooks) Exited(context.Context, string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked.IsZero() {
		h.asked = time.Now()
	}
	if h.unknown {
		return false, errors.New("runtime is away")
	}
	return time.Since(h.asked) >= h.notes, nil
}

func (h *fakeHooks) ContainerAnnotations(_ context.Context, id string) (map[string]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.annotations[id], h.err
}

func (h *fakeHooks) Exec(ctx context.Context, id string, command []string, timeout int64) error {
	h.mu.Lock()
	h.execs = append(h.execs, fmt.Sprintf("%s %s %ds", id, strings.Join(command, " "), timeout))
	wait, err := h.execFor, h.execErr
	h.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return err
	}
}

func (h *fakeHooks) PodIP(context.Context, string) (string, error) {
	return "", errors.New("no network")
}

func (h *fakeHooks) ran() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.execs)
}

// annotate gives a pod's container a grace and a hook.
func (r *rig) annotate(uid, grace, hook string) {
	r.hooks.mu.Lock()
	defer r.hooks.mu.Unlock()
	r.hooks.annotations["c-"+uid] = map[string]string{graceAnnotation: grace, preStopAnnotation: hook}
}

// softRig is a node with a soft threshold of 1 GiB, met for 30 s, and a minimum
// reclaim of 200 MiB.
func softRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.hooks = &fakeHooks{annotations: map[string]map[string]string{}}
	r.set.Soft = []SoftThreshold{{Signal: MemoryAvailable, Amount: gi, MinReclaim: 200 * mi, Grace: 30 * time.Second}}
	r.set.MaxPodGrace = 30 * time.Second
	return r
}

// startSoft runs the rig until a while before its soft threshold is met.
func (r *rig) startSoft() (stop func()) {
	r.t.Helper()
	stop = r.start()
	pass(2500 * time.Millisecond)
	return stop
}

// graces are the timeouts of the StopContainer calls that gave any, as
// "container 30s".
func (r *rig) graces() []string {
	r.runtime.mu.Lock()
	defer r.runtime.mu.Unlock()
	return slices.Clone(r.runtime.graces)
}

// ignoreTerm makes a pod's container end only when its grace is over.
func (r *rig) ignoreTerm(uid string, after time.Duration) {
	r.runtime.mu.Lock()
	r.runtime.ends["c-"+uid] = after
	r.runtime.mu.Unlock()
}

func (r *rig) published() holds.Conditions { return openReader(r.t, r.dir).Conditions() }

// newest is the newest report.
func (r *rig) newest() Report {
	r.t.Helper()
	all := r.eng.History(1)
	if len(all) == 0 {
		r.t.Fatal("no decision was reported")
	}
	return all[0]
}

// elapsed is the time since from, to a tenth of a second.
func elapsed(from, to time.Time) time.Duration { return to.Sub(from).Round(100 * time.Millisecond) }
