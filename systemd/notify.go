// Package systemd speaks to the service manager. Without one every function
// does nothing.
package systemd

import (
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
)

// Ready tells the service manager that the daemon serves.
func Ready(log logrus.FieldLogger) { notify(log, daemon.SdNotifyReady) }

// Stopping tells the service manager that the daemon is about to end.
func Stopping(log logrus.FieldLogger) { notify(log, daemon.SdNotifyStopping) }

// Reloading tells the service manager that the configuration is being read anew;
// Ready ends that.
func Reloading(log logrus.FieldLogger) {
	notify(log, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
}

func notify(log logrus.FieldLogger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.WithError(err).WithField("state", state).Warn("the service manager could not be told")
	}
}
