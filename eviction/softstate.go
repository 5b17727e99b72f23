package eviction

import (
	"fmt"
	"time"
)

// SoftNow is a soft threshold at this moment. Amounts are in the signal's unit,
// durations nanoseconds.
type SoftNow struct {
	Signal     Signal        `json:"signal"`
	Unit       Unit          `json:"unit"`
	Threshold  uint64        `json:"threshold"`
	MinReclaim uint64        `json:"minReclaim"`
	Grace      time.Duration `json:"grace"`
	// Available is valid when Known: there is a sample of the last 5 s.
	Available uint64    `json:"available"`
	Known     bool      `json:"known"`
	MetSince  time.Time `json:"metSince,omitzero"` // without a break
	PastGrace bool      `json:"pastGrace"`
	// Due is when the grace will be over if it stays met.
	Due     time.Time `json:"due,omitzero"`
	Unarmed bool      `json:"unarmed,omitempty"`
	// Waiting says why nothing is done although it is met.
	Waiting string `json:"waiting,omitempty"`
}

// ConditionsNow are the node's conditions as the proxy is told.
type ConditionsNow struct {
	MemoryPressure bool      `json:"memoryPressure"`
	DiskPressure   bool      `json:"diskPressure"`
	PIDPressure    bool      `json:"pidPressure"`
	Since          time.Time `json:"since,omitzero"`
	// Error says why the proxy could not be told.
	Error string `json:"error,omitempty"`
}

// softNow describes the soft thresholds, memory.available first.
func (e *Engine) softNow() []SoftNow {
	now := e.clock()
	keys := e.thresholds(e.settings())
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	var out []SoftNow
	for _, k := range keys {
		w := e.soft.watches[k]
		if k.hard || w == nil {
			continue
		}
		n := SoftNow{
			Signal: k.Signal, Unit: k.Signal.Unit(), Threshold: k.Amount, MinReclaim: k.MinReclaim, Grace: k.Grace,
			Available: w.last.Available, Known: w.last.fresh(now), PastGrace: w.past, Unarmed: !w.armed && !w.observed, Waiting: w.why,
		}
		if !w.firstMet.IsZero() {
			n.MetSince = w.firstMet.UTC()
			switch {
			case n.Unarmed:
				n.Waiting = unarmedText
			case !w.past:
				n.Due = n.MetSince.Add(k.Grace)
				n.Waiting = fmt.Sprintf("its grace of %s is over in %s", k.Grace, n.Due.Sub(now).Round(time.Second))
			}
		}
		out = append(out, n)
	}
	return out
}

// conditionsNow describes the node's conditions.
func (e *Engine) conditionsNow() ConditionsNow {
	e.soft.mu.Lock()
	defer e.soft.mu.Unlock()
	c := e.soft.conditions.published(e.clock())
	out := ConditionsNow{MemoryPressure: c.Memory, DiskPressure: c.Disk, PIDPressure: c.PID, Error: e.soft.sentError}
	if !c.Since.IsZero() {
		out.Since = c.Since.UTC()
	}
	return out
}
