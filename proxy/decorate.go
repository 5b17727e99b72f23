package proxy

import (
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
)

// reasonOOMKilled stays when it is true: init containers and users test it.
const reasonOOMKilled = "OOMKilled"

// explain is the cri.Rewrite of status answers: a container that ran when its
// pod was decided on and ended then or later did so because of the eviction.
func (p *Proxy) explain(c cri.ContainerStatusView) (reason, message string, ok bool) {
	if !c.Exited || c.PodUID == "" || c.StartedAt <= 0 || c.Reason == reasonOOMKilled {
		return "", "", false
	}
	for _, rec := range p.opts.Holds.Lookup(c.PodUID) {
		if !evicted(rec) {
			continue
		}
		if at := rec.Decided.UnixNano(); c.StartedAt <= at && c.FinishedAt >= at {
			return ReasonEvicted, StatusMessage(rec), true
		}
	}
	return "", "", false
}

// evicted tells whether the record is about a kill that was begun. A released
// record of a kill that was never carried out (given up, or the breach was gone
// after a restart) explains nobody's end.
func evicted(rec holds.Record) bool {
	switch rec.State {
	case holds.Intent, holds.Killed:
		return !rec.Decided.IsZero()
	case holds.Released:
		return !rec.Decided.IsZero() && !rec.KilledAt.IsZero()
	}
	return false
}
