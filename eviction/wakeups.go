package eviction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// KernelEvent is a wish for events that the kernel has granted.
type KernelEvent interface {
	Fd() int
	Mask() uint32 // as epoll_ctl takes it
	Detail() string
	// Check finds out whether more events can come: cgroupfs.ErrGone when what
	// they come from was removed.
	Check() error
	Close() error
}

// KernelEvents is what a kernel may have to tell of memory. None of it is
// needed; what it does not offer is cgroupfs.ErrAbsent.
type KernelEvents interface {
	// Usage tells when the node's memory usage passes at bytes (cgroup v1).
	Usage(at uint64) (KernelEvent, error)
	// InactiveFile is the part of that usage, in bytes, that eviction does not
	// count.
	InactiveFile() (uint64, error)
	// Pressure tells when tasks stall on memory (PSI).
	Pressure() (KernelEvent, error)
	// Pods tells what memory.events of the pods' cgroup counts (cgroup v2).
	Pods() (KernelEvent, error)
}

// WakeupState is one source of wake-ups, for status.
type WakeupState struct {
	Source string `json:"source"` // usage (cgroup v1), pressure (PSI), podsEvents (cgroup v2)
	InUse  bool   `json:"inUse"`
	// Detail is what was asked for, or why the source is not in use.
	Detail string `json:"detail,omitempty"`
	// Woken counts the waits it has shortened.
	Woken uint64 `json:"woken"`
}

const (
	// wakeupsEvery is how often the sources are looked after, and the least
	// distance of two values of the usage event.
	wakeupsEvery = time.Second
	// armStep: the usage event moves when its value is off by more than this
	// part of the threshold.
	armStep = 8
	// podsAgain is when to look again for a pods' cgroup that is not there;
	// sourceAgain the same for what this kernel may never have.
	podsAgain   = 10 * time.Second
	sourceAgain = time.Minute
)

// errEnded says that the kernel reported an error on a source.
var errEnded = errors.New("the kernel ended it")

// wakeups looks after the sources in the slow half: opens, moves and closes
// them. What goes wrong costs the source and nothing else.
type wakeups struct {
	kernel  KernelEvents
	waker   *waker
	log     logrus.FieldLogger
	sources [wakeSources]kernelSource // of the goroutine that keeps them
	said    bool

	mu    sync.Mutex
	state []WakeupState
}

// kernelSource is one source.
type kernelSource struct {
	event KernelEvent // nil: not in use
	at    uint64      // usage: the value it was armed with
	armed time.Time   // usage: when
	why   string      // not in use because
	again time.Time   // not to be tried before
}

// wakeInput is what the sampler knows.
type wakeInput struct {
	capacity  uint64 // bytes, 0 before the first sample
	threshold uint64 // bytes, 0 = off
	met       bool
}

// newWakeups makes them with nothing asked of the kernel yet; run needs a waker.
func newWakeups(kernel KernelEvents, log logrus.FieldLogger) *wakeups {
	w := &wakeups{kernel: kernel, log: log}
	for i := range wakeSources {
		w.state = append(w.state, WakeupState{Source: i.String(), Detail: "not asked yet"})
	}
	return w
}

func (s wakeSource) String() string {
	return [wakeSources]string{wakeUsage: "usage", wakePressure: "pressure", wakePods: "podsEvents"}[s]
}

// run keeps the sources until ctx ends.
func (w *wakeups) run(ctx context.Context, clock func() time.Time, input func() wakeInput) {
	tick := time.NewTicker(wakeupsEvery)
	defer tick.Stop()
	defer w.closeAll()
	for {
		w.keep(clock(), input())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// wakeInput is what the wake-ups depend on.
func (e *Engine) wakeInput() wakeInput {
	l := &e.sampler.latest
	return wakeInput{capacity: l.capacity.Load(), threshold: e.settings().Rules.Amount, met: l.met.Load()}
}

// keep brings the sources up to date. During an alarm it does nothing: the
// sampler looks every few milliseconds then, and memory.stat is for calm times.
func (w *wakeups) keep(now time.Time, in wakeInput) {
	if in.capacity == 0 || in.met {
		return
	}
	w.keepUsage(now, in)
	w.keepPressure(now)
	w.keepPods(now)
	w.publish()
	if !w.said {
		w.said = true
		w.announce()
	}
}

// armAt is the usage at which kubelet's reading of available reaches the
// threshold: capacity − threshold + inactive_file. ok is false when no usage can
// be that high, because there is more inactive page cache than the threshold.
func armAt(capacity, threshold, inactiveFile uint64) (at uint64, ok bool) {
	at = capacity - min(capacity, threshold) + inactiveFile
	return at, at < capacity
}

func (w *wakeups) keepUsage(now time.Time, in wakeInput) {
	s := &w.sources[wakeUsage]
	if now.Before(s.again) || !s.armed.IsZero() && now.Sub(s.armed) < wakeupsEvery {
		return
	}
	if in.threshold == 0 {
		w.close(wakeUsage, "memory.available is off")
		return
	}
	inactive, err := w.kernel.InactiveFile()
	if err != nil {
		w.drop(wakeUsage, now, sourceAgain, err)
		return
	}
	at, ok := armAt(in.capacity, in.threshold, inactive)
	if !ok {
		w.close(wakeUsage, fmt.Sprintf("inactive page cache (%d bytes) is larger than the threshold", inactive))
		return
	}
	if s.event != nil && max(at, s.at)-min(at, s.at) <= in.threshold/armStep {
		return
	}
	// The old one first: two at a time would be one too many after an error.
	w.close(wakeUsage, "")
	e, err := w.kernel.Usage(at)
	if w.open(wakeUsage, now, sourceAgain, e, err) {
		s.at, s.armed = at, now
	}
}

func (w *wakeups) keepPressure(now time.Time) {
	s := &w.sources[wakePressure]
	if s.event != nil && w.waker.failed[wakePressure].Load() {
		w.drop(wakePressure, now, sourceAgain, errEnded)
	}
	if s.event != nil || now.Before(s.again) {
		return
	}
	e, err := w.kernel.Pressure()
	w.open(wakePressure, now, sourceAgain, e, err)
}

func (w *wakeups) keepPods(now time.Time) {
	s := &w.sources[wakePods]
	if s.event != nil {
		err := s.event.Check()
		switch {
		case err == nil:
			return
		case errors.Is(err, cgroupfs.ErrGone):
			// kubelet makes it anew when its driver or its root changes.
			w.close(wakePods, err.Error())
		default:
			w.drop(wakePods, now, sourceAgain, err)
		}
	}
	if now.Before(s.again) {
		return
	}
	e, err := w.kernel.Pods()
	w.open(wakePods, now, podsAgain, e, err)
}

// open takes a new event into use.
func (w *wakeups) open(i wakeSource, now time.Time, again time.Duration, e KernelEvent, err error) bool {
	if err == nil {
		w.sources[i].event = e
		if err = w.waker.add(i, e.Fd(), e.Mask()); err == nil {
			w.sources[i].why = ""
			return true
		}
	}
	w.drop(i, now, again, err)
	return false
}

// drop gives a source up for a while. What is absent is no news; anything else
// is one line, not one for each try.
func (w *wakeups) drop(i wakeSource, now time.Time, again time.Duration, err error) {
	s := &w.sources[i]
	known := s.why == err.Error()
	w.close(i, err.Error())
	s.again = now.Add(again)
	if known || errors.Is(err, cgroupfs.ErrAbsent) || errors.Is(err, cgroupfs.ErrGone) {
		return
	}
	w.log.WithError(err).WithField("source", i.String()).Warn("a source of kernel wake-ups was dropped; sampling goes on without it")
}

// close ends a source; why is what status says.
func (w *wakeups) close(i wakeSource, why string) {
	s := &w.sources[i]
	if s.event != nil {
		w.waker.remove(s.event.Fd())
		if err := s.event.Close(); err != nil {
			w.log.WithError(err).WithField("source", i.String()).Warn("closing a source of kernel wake-ups")
		}
	}
	*s = kernelSource{why: why, again: s.again}
}

func (w *wakeups) closeAll() {
	for i := range wakeSources {
		w.close(i, "stopped")
	}
	w.publish()
}

// publish makes the present state readable for others.
func (w *wakeups) publish() {
	state := make([]WakeupState, 0, wakeSources)
	for i := range wakeSources {
		s := &w.sources[i]
		st := WakeupState{Source: i.String(), InUse: s.event != nil, Detail: s.why, Woken: w.waker.woken[i].Load()}
		if st.InUse {
			st.Detail = s.event.Detail()
		}
		state = append(state, st)
	}
	w.mu.Lock()
	w.state = state
	w.mu.Unlock()
}

// states returns what publish has made known last; nil without sources.
func (w *wakeups) states() []WakeupState {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// announce says once which sources there are.
func (w *wakeups) announce() {
	fields, inUse := logrus.Fields{}, []string(nil)
	for _, s := range w.states() {
		fields[s.Source] = s.Detail
		if s.InUse {
			inUse = append(inUse, s.Source)
		}
	}
	text := "no kernel wake-ups: sampling alone"
	if len(inUse) > 0 {
		text = "kernel wake-ups shorten sampling: " + strings.Join(inUse, ", ")
	}
	w.log.WithFields(fields).Info(text)
}
