package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/config"
)

// live is the configuration in force, and who takes over a new one.
type live struct {
	// change is held while a new one is applied: one at a time.
	change sync.Mutex
	takers []*taker

	mu      sync.Mutex
	current config.Config
	loaded  time.Time
	failed  []string // what was wrong with the last reload; nil after a good one
	tried   time.Time
}

// taker applies a new configuration or refuses it as a whole.
type taker struct {
	apply func(config.Config) error
}

func newLive(cfg config.Config) *live { return &live{current: cfg, loaded: time.Now()} }

// config is the configuration in force.
func (l *live) config() config.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// attach has apply called with the configuration in force, now and whenever it
// changes, until detach.
func (l *live) attach(apply func(config.Config) error) (detach func(), err error) {
	l.change.Lock()
	defer l.change.Unlock()
	if err := apply(l.config()); err != nil {
		return nil, err
	}
	t := &taker{apply}
	l.takers = append(l.takers, t)
	return func() {
		l.change.Lock()
		defer l.change.Unlock()
		l.takers = slices.DeleteFunc(l.takers, func(o *taker) bool { return o == t })
	}, nil
}

// reload puts the configuration that load returns into force: all of it, or with
// an error nothing.
func (l *live) reload(load func() (config.Config, error)) error {
	l.change.Lock()
	defer l.change.Unlock()
	next, err := load()
	if err == nil {
		if fixed := l.config().NeedRestart(next); len(fixed) > 0 {
			err = fixed
		}
	}
	for i, t := range l.takers {
		if err != nil {
			break
		}
		if err = t.apply(next); err != nil {
			for _, before := range l.takers[:i] {
				err = errors.Join(err, before.apply(l.config()))
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried, l.failed = time.Now(), nil
	if err != nil {
		l.failed = strings.Split(err.Error(), "\n")
		return err
	}
	l.current, l.loaded = next, l.tried
	return nil
}

// again applies what is in force once more, because the machine changed.
func (l *live) again() error {
	l.change.Lock()
	defer l.change.Unlock()
	var errs []error
	for _, t := range l.takers {
		errs = append(errs, t.apply(l.config()))
	}
	return errors.Join(errs...)
}

// status is for the admin service.
func (l *live) status() admin.ConfigStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := admin.ConfigStatus{Loaded: l.loaded, Failed: slices.Clone(l.failed)}
	if l.failed != nil {
		s.Tried = l.tried
	}
	return s
}

// reloadOn reloads at each signal until ctx ends.
func (a *app) reloadOn(ctx context.Context, hangup <-chan os.Signal, l *live, log logrus.FieldLogger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		a.process.manager.Reloading()
		if err := l.reload(a.loadConfig); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				log.Error(line)
			}
			log.Error("the configuration was not reloaded: what was in force before goes on")
		} else {
			warnOf(l.config(), log)
			log.Info("the configuration was reloaded")
		}
		a.process.manager.Ready()
	}
}

// warnOf says what of a configuration is valid and probably not meant.
func warnOf(cfg config.Config, log logrus.FieldLogger) {
	for _, w := range cfg.Warnings {
		log.Warn(w.Error())
	}
}
