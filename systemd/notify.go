// Package systemd speaks to the service manager: readiness, its watchdog, the
// sockets it holds for us, and the hand-over from one process to the next. Without
// a service manager what it would be told goes nowhere; hand-overs work all the
// same.
package systemd

import (
	"fmt"
	"sync"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
)

// Manager is the service manager this process was started by, if any.
type Manager struct {
	log  logrus.FieldLogger
	send func(state string) error // tests replace it

	mu     sync.Mutex
	silent bool
}

// NewManager returns the manager named by the environment.
func NewManager(log logrus.FieldLogger) *Manager {
	return &Manager{log: log, send: func(state string) error {
		_, err := daemon.SdNotify(false, state)
		return err
	}}
}

// Ready tells that the daemon serves; it also ends a Reloading.
func (m *Manager) Ready() { m.notify(daemon.SdNotifyReady) }

// Stopping tells that the daemon is about to end.
func (m *Manager) Stopping() { m.notify(daemon.SdNotifyStopping) }

// Reloading tells that the configuration is being read anew.
func (m *Manager) Reloading() {
	m.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Successor tells that another process, which serves already, is the service from
// now on, and says nothing more of this one: its end is not the service's.
func (m *Manager) Successor(pid int) {
	// Its watchdog has all of its time.
	m.notify(fmt.Sprintf("MAINPID=%d\n%s\n%s", pid, daemon.SdNotifyReady, daemon.SdNotifyWatchdog))
	m.Silence()
}

// Silence keeps everything from the manager until Speak.
func (m *Manager) Silence() { m.setSilent(true) }

// Speak ends a Silence.
func (m *Manager) Speak() { m.setSilent(false) }

func (m *Manager) setSilent(silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = silent
}

func (m *Manager) isSilent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent
}

func (m *Manager) notify(state string) {
	if m.isSilent() {
		return
	}
	if err := m.send(state); err != nil {
		m.log.WithError(err).WithField("state", state).Warn("the service manager could not be told")
	}
}
