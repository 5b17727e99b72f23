package holds

import (
	"encoding/json"
	"time"

	"github.com/sirupsen/logrus"
)

// Repeat is how often a pod was evicted, for its back-off.
type Repeat struct {
	Count uint32
	Last  time.Time
}

// Ledger is the durable copy of the holds.
type Ledger struct{}

// OpenLedger opens or creates the ledger at path.
func OpenLedger(path string, log logrus.FieldLogger) (*Ledger, error) { return &Ledger{}, nil }

// Recovered returns why a new ledger was started.
func (l *Ledger) Recovered() error { return nil }

// Save replaces the set of holds.
func (l *Ledger) Save(records []Record) error { return nil }

// Load returns the saved holds and the boot they were made in.
func (l *Ledger) Load() (records []Record, bootID string, err error) { return nil, "", nil }

// SetBootID stores the boot the holds are of.
func (l *Ledger) SetBootID(id string) error { return nil }

// AppendDecision keeps a decision.
func (l *Ledger) AppendDecision(id uint64, decision []byte) error { return nil }

// Decisions returns the newest decisions, newest first.
func (l *Ledger) Decisions(limit int) ([]json.RawMessage, error) { return nil, nil }

// LastID returns the greatest ID of a decision or hold.
func (l *Ledger) LastID() (uint64, error) { return 0, nil }

// SetRepeat stores how often a pod was evicted.
func (l *Ledger) SetRepeat(uid string, n uint32, last time.Time) error { return nil }

// Repeats returns all counts by pod UID.
func (l *Ledger) Repeats() (map[string]Repeat, error) { return nil, nil }

// DeleteRepeat forgets a pod.
func (l *Ledger) DeleteRepeat(uid string) error { return nil }

// Close closes the ledger.
func (l *Ledger) Close() error { return nil }
