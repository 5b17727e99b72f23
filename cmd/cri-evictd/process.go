package main

import (
	"context"
	"os"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/proxy"
	"github.com/cri-evictd/cri-evictd/systemd"
)

// Names of the sockets a process passes to its successor, and of the one that
// systemd/cri-evictd.socket opens.
const (
	socketCRI    = "cri"     // the service manager's
	socketCRIOwn = "cri-own" // made by one of us
	socketEvents = "events"
)

// process is what a daemon's process has with the service manager, with the process
// before it and with the one after it.
type process struct {
	manager  *systemd.Manager
	watchdog *systemd.Watchdog
	// sockets and before are what it was started with.
	sockets map[string]*os.File
	before  *systemd.Predecessor
	over    *handOver
}

// newProcess takes what this process was started with.
func newProcess(log logrus.FieldLogger) (*process, error) {
	start, err := systemd.Inherit()
	if err != nil {
		return nil, err
	}
	m := systemd.NewManager(log)
	p := &process{manager: m, watchdog: systemd.NewWatchdog(m, log), sockets: start.Sockets, before: start.Predecessor}
	p.over = newHandOver(p, log)
	return p, nil
}

// successor says whether this process is to replace another one.
func (p *process) successor() bool { return p.before != nil }

// run keeps up what does not depend on the halves, until ctx ends.
func (p *process) run(ctx context.Context, wg *sync.WaitGroup, log logrus.FieldLogger) {
	if p.successor() {
		p.manager.Silence() // the other one is the service
		wg.Go(func() {
			select {
			case <-p.before.Main():
				p.manager.Speak()
				log.WithField("pid", os.Getpid()).Info("this process has taken over")
			case <-ctx.Done():
			}
		})
	}
	wg.Go(func() { p.watchdog.Run(ctx) })
}

// ready tells the service manager, or the process that is waiting to be replaced.
func (p *process) ready(log logrus.FieldLogger) {
	p.manager.Ready()
	if p.successor() {
		if err := p.before.Say(systemd.WordReady, version()); err != nil {
			log.WithError(err).Warn("taking over")
		}
	}
}

// proxySockets are the sockets the proxy need not make.
func (p *process) proxySockets() proxy.Sockets {
	s := proxy.Sockets{Front: p.sockets[socketCRI], Events: p.sockets[socketEvents]}
	if s.Front == nil {
		s.Front, s.FrontIsOurs = p.sockets[socketCRIOwn], true
	}
	return s
}
