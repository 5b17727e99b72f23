package eviction

// Alarm says whether the hard memory threshold is met at this moment: whatever
// can wait should leave the disk and the processors to others. It may be called
// from any goroutine.
func (e *Engine) Alarm() bool { return e.sampler.latest.met.Load() }
