package systemd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
)

// looksPerLimit is how often within the watchdog's time is looked whether all
// parts work: one or two looks that find nothing new cost no restart. A look may
// take most of that time, because on a machine that is out of processors a part that
// works takes long to say so.
const (
	looksPerLimit = 4
	lookTenths    = 7 // of the limit
)

// Beat says whether a part still does its work: nil if so. It ends with ctx; one
// that does not end counts as a part that stands still.
type Beat func(ctx context.Context) error

// Watchdog tells the service manager that the parts it knows of work. When one of
// them does not it keeps silent, and the manager ends the process when its time is
// over.
type Watchdog struct {
	limit   time.Duration // 0: the manager does not watch
	every   time.Duration // between two looks
	manager *Manager
	log     logrus.FieldLogger

	mu    sync.Mutex
	beats map[string]Beat
	said  string
}

// NewWatchdog returns the watchdog that the environment asks for.
func NewWatchdog(m *Manager, log logrus.FieldLogger) *Watchdog {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.WithError(err).Warn("the service manager's watchdog is not fed")
	}
	return newWatchdog(m, limit, log)
}

func newWatchdog(m *Manager, limit time.Duration, log logrus.FieldLogger) *Watchdog {
	return &Watchdog{limit: limit, every: limit / looksPerLimit, manager: m, log: log, beats: map[string]Beat{}}
}

// Watch adds a part until stop. What is not added is not watched: it may stand
// still without a restart.
func (w *Watchdog) Watch(name string, beat Beat) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats[name] = beat
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.beats, name)
	}
}

// Run feeds the watchdog until ctx ends.
func (w *Watchdog) Run(ctx context.Context) {
	if w.every <= 0 {
		return
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look asks every part once; not while another process is the service.
func (w *Watchdog) look(ctx context.Context) {
	if w.manager.isSilent() {
		return
	}
	w.mu.Lock()
	beats := maps.Clone(w.beats)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, w.limit*lookTenths/10)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(beats)) {
		if err := beats[name](ctx); err != nil {
			w.say(fmt.Sprintf("%s: %v", name, err))
			return
		}
	}
	w.say("")
	w.manager.notify(daemon.SdNotifyWatchdog)
}

// say logs what changes.
func (w *Watchdog) say(wrong string) {
	if wrong == w.said {
		return
	}
	w.said = wrong
	if wrong != "" {
		w.log.WithField("part", wrong).Error("a part stands still: unless it goes on the service manager's watchdog will end this process")
	} else {
		w.log.Info("all parts work again")
	}
}

// Progress makes a beat of a counter that rises as long as a part works.
func Progress(count func() uint64) Beat {
	last, begun := uint64(0), false
	return func(context.Context) error {
		now := count()
		if begun && now == last {
			return fmt.Errorf("no progress since %d", last)
		}
		last, begun = now, true
		return nil
	}
}
