package eviction

// repairHolds puts the holds file back when a clean-up of the run directory took
// it, and keeps a slot ready for the killer.
func (e *Engine) repairHolds() {
	repaired, err := e.holds.Repair()
	if repaired {
		e.log.Warn("the holds file was removed or replaced by somebody; it was put back")
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	e.mu.Lock()
	changed := e.holdsError != text
	e.holdsError = text
	e.mu.Unlock()
	if changed && err != nil {
		e.log.WithError(err).Error("the holds file cannot be kept: evicted pods may be started again")
	}
	if err := e.killer.reserve(); err != nil && !changed {
		e.log.WithError(err).Error("no place for a hold: evicted pods may be started again")
	}
}

// refreshInventory asks for a new list when a decision may be near and the last
// one is older than 10 s (design §6), or will be at a soft decision.
func (e *Engine) refreshInventory() {
	age := e.clock().Sub(e.store.Snapshot().ListedAt)
	near := false
	for _, h := range e.sampler.hards() {
		l := &h.latest
		near = near || l.at.Load() != 0 && l.available.Load()/nearMultiple < h.amount()
	}
	if near && age > listAge || age > listAge/2 && e.softNear(listAge/2) {
		e.syncer.MarkDirty()
	}
}
