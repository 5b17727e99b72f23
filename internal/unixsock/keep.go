package unixsock

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
)

// look is how often Keep looks whether the file is still there.
const look = time.Second

// Keep makes the socket anew whenever somebody has removed its file, and gives the
// new one to take, until ctx ends. A file that somebody else put in its place is
// left alone. what names the socket in the log, with what its absence means.
func Keep(ctx context.Context, s *Socket, own Owner, what string, log logrus.FieldLogger, take func(*Socket)) {
	log = log.WithField("path", s.path)
	tick := time.NewTicker(look)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.Gone() {
			said = ""
			continue
		}
		again, err := Listen(s.path, own, log)
		if err != nil {
			if said != err.Error() {
				said = err.Error()
				log.WithError(err).Error(what + " was removed and cannot be made again")
			}
			continue
		}
		log.Error(what + " was removed by somebody; it was made anew")
		s = again
		take(again)
	}
}
