package tell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Queue keeps the evictions on disk, by the ID of their decision; holds.Ledger
// is one. Its methods may be slow.
type Queue interface {
	SetNotice(id uint64, notice []byte) error
	Notices() (map[uint64]json.RawMessage, error)
	DeleteNotice(id uint64) error
}

const (
	// keepRetry is how long a write that failed waits for the next try.
	keepRetry = 10 * time.Second
	// waitingMost is how many may wait, doneMost how many that are done are
	// remembered, so that none is told twice.
	waitingMost = 1000
	doneMost    = 1000
)

// keeper writes entries to the queue in a goroutine of its own, so that a disk
// that hangs does not keep Kubernetes from being told.
type keeper struct {
	queue Queue // nil: nothing is kept over a restart
	wake  chan struct{}

	mu      sync.Mutex
	changed map[uint64][]byte // nil value: to be deleted
	problem string
}

func newKeeper(q Queue) *keeper {
	return &keeper{queue: q, wake: make(chan struct{}, 1), changed: map[uint64][]byte{}}
}

// load returns what a previous process left. What cannot be read is left out.
func (k *keeper) load() map[uint64]*entry {
	out := map[uint64]*entry{}
	if k.queue == nil {
		k.fail("there is no ledger")
		return out
	}
	raw, err := k.queue.Notices()
	if err != nil {
		k.fail(err.Error())
		return out
	}
	for id, b := range raw {
		e := &entry{}
		if json.Unmarshal(b, e) == nil && e.Notice.ID == id {
			out[id] = e
		}
	}
	return out
}

func (k *keeper) fail(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.problem = text
}

// put takes an entry as it is now; nil forgets it.
func (k *keeper) put(id uint64, e *entry) {
	if k.queue == nil {
		return
	}
	var b []byte
	if e != nil {
		var err error
		if b, err = json.Marshal(e); err != nil { // a test marshals one with everything
			k.fail(err.Error())
			return
		}
	}
	k.mu.Lock()
	k.changed[id] = b
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// state is why the last write failed; empty when all is well.
func (k *keeper) state() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}

// run writes until ctx ends, and then what is left.
func (k *keeper) run(ctx context.Context) {
	if k.queue == nil {
		return
	}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			k.write()
			return
		case <-k.wake:
		case <-retry.C:
		}
		if !k.write() {
			retry.Reset(keepRetry)
		}
	}
}

// write brings the queue up to date; false when something is left.
func (k *keeper) write() bool {
	k.mu.Lock()
	changed := k.changed
	k.changed = map[uint64][]byte{}
	k.mu.Unlock()
	var failed error
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		b := changed[id]
		if failed == nil {
			if b == nil {
				failed = k.queue.DeleteNotice(id)
			} else {
				failed = k.queue.SetNotice(id, b)
			}
			if failed == nil {
				delete(changed, id)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if failed == nil {
		k.problem = ""
		return true
	}
	k.problem = fmt.Sprintf("decision not kept: %v", failed)
	for id, b := range changed {
		if _, newer := k.changed[id]; !newer {
			k.changed[id] = b
		}
	}
	return false
}

// surplus names what there is too much of: the oldest that wait, and the oldest
// that are done.
func surplus(all map[uint64]*entry) (dropped, forgotten []uint64) {
	var waiting, done []*entry
	for _, e := range all {
		if e.finished() {
			done = append(done, e)
		} else {
			waiting = append(waiting, e)
		}
	}
	oldest := func(list []*entry, keep int) (out []uint64) {
		slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.Notice.ID, b.Notice.ID) })
		for _, e := range list[:max(0, len(list)-keep)] {
			out = append(out, e.Notice.ID)
		}
		return out
	}
	return oldest(waiting, waitingMost), oldest(done, doneMost)
}
