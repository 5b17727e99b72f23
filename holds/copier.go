package holds

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// Source is what a Copier copies: a *Writer.
type Source interface {
	Records() []Record
	Changed() <-chan struct{}
}

// Saver is where a Copier copies to: a *Ledger.
type Saver interface {
	Save([]Record) error
}

const (
	// copyInterval is the shortest time between two transactions.
	copyInterval = 200 * time.Millisecond
	// copyRetryMax is the longest time between two attempts while saving fails.
	copyRetryMax = 5 * time.Second
	// copyStuck is after what time a save that has not returned is a problem.
	copyStuck = 5 * time.Second
)

// Copier copies the writer's records to the ledger.
type Copier struct {
	from Source
	to   Saver
	log  logrus.FieldLogger

	failed  atomic.Pointer[problem]
	started atomic.Pointer[time.Time] // of the save under way
	saved   atomic.Pointer[time.Time] // the last that worked
}

// NewCopier returns a copier; Run does the work.
func NewCopier(from Source, to Saver, log logrus.FieldLogger) *Copier {
	return &Copier{from: from, to: to, log: log}
}

// Run copies until ctx ends: once at the start, then after each change, within
// 200 ms of it and at most once per 200 ms. A save that fails is repeated after
// 200 ms, then after twice as long, up to 5 s. When ctx ends, what is not saved
// yet is tried once more. Run reads the source's memory and never makes it wait.
func (c *Copier) Run(ctx context.Context) {
	wait := copyInterval
	timer := time.NewTimer(0) // the ledger may be older than the file
	defer timer.Stop()
	armed, dirty := true, true
	var lastSave time.Time
	for {
		select {
		case <-ctx.Done():
			select {
			case <-c.from.Changed():
				dirty = true
			default:
			}
			if dirty {
				c.save()
			}
			return
		case <-c.from.Changed():
			dirty = true
			if !armed {
				timer.Reset(max(0, copyInterval-time.Since(lastSave)))
				armed = true
			}
		case <-timer.C:
			armed = false
			if c.save() {
				dirty, wait = false, copyInterval
			} else {
				timer.Reset(wait)
				armed = true
				wait = min(2*wait, copyRetryMax)
			}
			lastSave = time.Now()
		}
	}
}

// save makes one attempt and says whether it worked.
func (c *Copier) save() bool {
	begin := time.Now()
	c.started.Store(&begin)
	err := c.to.Save(c.from.Records())
	c.started.Store(nil)
	before := c.failed.Load()
	if err == nil {
		c.saved.Store(&begin)
		if before != nil {
			c.failed.Store(nil)
			c.log.Info("the holds are saved to the ledger again")
		}
		return true
	}
	c.failed.Store(&problem{err: fmt.Errorf("saving the holds: %w", err)})
	if before == nil || before.err.Error() != "saving the holds: "+err.Error() {
		c.log.WithError(err).Error("saving the holds to the ledger failed; holds stand, but would not survive a power cut; retrying")
	}
	return false
}

// Saved is when the last save that worked began: the ledger has everything up to
// then. It is zero when none has.
func (c *Copier) Saved() time.Time {
	if t := c.saved.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// Problem returns why the ledger does not have the latest holds: the error of
// the last attempt, or that an attempt has not returned for 5 s. It is nil when
// all is well.
func (c *Copier) Problem() error {
	if begin := c.started.Load(); begin != nil {
		if d := time.Since(*begin); d >= copyStuck {
			return fmt.Errorf("saving the holds has not returned for %s", d.Round(time.Second))
		}
	}
	if p := c.failed.Load(); p != nil {
		return p.err
	}
	return nil
}
