package eviction

// Acting says whether decisions are carried out: not in mode observe, nor in a
// pause.
func (e *Engine) Acting() bool { return !e.settings().Rules.Observe }
