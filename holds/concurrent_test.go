package holds

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// version n of a record, from which every field can be told: a mixture of two
// versions is noticed whatever the checksum says.
func version(id uint64, n int) Record {
	r := sample(id)
	text := fmt.Sprintf("%08d", n)
	r.Name = strings.Repeat(text, 30)
	r.Namespace, r.SandboxID, r.Signal = text, text, text
	r.Cgroup = strings.Repeat(text, 48)
	r.Usage, r.Request, r.Threshold, r.Available, r.AvailableKubelet = int64(n), int64(n), int64(n), int64(n), int64(n)
	r.CgroupInode, r.Repeat = uint64(n), uint32(n)
	r.State = Intent + State(n%2) // both hold
	return r
}

func checkVersion(r Record) error {
	if want := version(r.ID, int(r.Usage)); r != want {
		return fmt.Errorf("a record that was never written:\n%+v\nwant\n%+v", r, want)
	}
	return nil
}

// Readers while one writer changes three standing holds as fast as it can:
// every record is one that was written, as a whole, and no hold is ever absent.
func TestReadersSeeOnlyWholeRecords(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	standing := []uint64{1, 2, 3}
	for _, id := range standing {
		must(t, w.Put(version(id, 0)))
	}
	var stop atomic.Bool
	var writes, reads atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { // changes of standing holds
		for n := 1; !stop.Load(); n++ {
			if err := w.Update(version(standing[n%3], n)); err != nil {
				t.Error(err)
				return
			}
			writes.Add(1)
		}
	})
	wg.Go(func() { // others that come and go, through the real-time path
		for !stop.Load() {
			id := w.NextID()
			s, err := w.Reserve()
			if err != nil {
				t.Error(err)
				return
			}
			p, err := Prepare(version(0, 7))
			if err != nil {
				t.Error(err)
				return
			}
			n := Numbers{ID: id, Available: 7, AvailableKubelet: 7, Threshold: 7, Usage: 7, Decided: 7}
			if err := w.WriteIntent(s, p, &n); err != nil {
				t.Error(err)
				return
			}
			if err := w.Remove(id); err != nil {
				t.Error(err)
				return
			}
			writes.Add(1)
		}
	})
	check := func(r *Reader) error {
		for _, id := range standing {
			rec, ok := r.Held(fmt.Sprintf("uid-%d", id))
			if !ok {
				return fmt.Errorf("hold %d was not visible: %v", id, r.Problem())
			}
			if err := checkVersion(rec); err != nil {
				return err
			}
		}
		for _, rec := range r.All() {
			if rec.ID > 3 && (rec.Usage != 7 || rec.Name != version(0, 7).Name) {
				return fmt.Errorf("a record that was never written: %+v", rec)
			}
		}
		return nil
	}
	shared := openReader(t, dir)
	for i := range 4 {
		own := openReader(t, dir)
		r := own
		if i < 2 {
			r = shared
		}
		wg.Go(func() {
			for !stop.Load() {
				if err := check(r); err != nil {
					t.Error(err)
					stop.Store(true)
				}
				reads.Add(1)
			}
		})
	}
	wg.Go(func() { // the copier's view
		for !stop.Load() {
			seen := map[uint64]bool{}
			for _, rec := range w.Records() {
				seen[rec.ID] = true
			}
			if !seen[1] || !seen[2] || !seen[3] {
				t.Errorf("Records() lost a standing hold: %v", seen)
				stop.Store(true)
			}
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for !stop.Load() && (reads.Load() < 200 || writes.Load() < 2000) {
		if time.Now().After(deadline) {
			t.Errorf("only %d reads and %d writes in 30 s", reads.Load(), writes.Load())
			break
		}
		time.Sleep(time.Millisecond) // polls the counters
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d rounds of reading, %d writes", reads.Load(), writes.Load())
}

// After WriteIntent, Update and Remove returned, every reader knows.
func TestChangesAreVisibleAtOnce(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	readers := []*Reader{openReader(t, dir), openReader(t, dir)}
	for id := uint64(1); id <= 30; id++ {
		uid := fmt.Sprintf("uid-%d", id)
		expectHeld := func(step string, want bool) {
			t.Helper()
			for _, r := range readers {
				if _, ok := r.Held(uid); ok != want {
					t.Fatalf("record %d after %s: held %v, want %v", id, step, ok, want)
				}
			}
		}
		expectHeld("nothing", false)
		intent(t, w, id)
		expectHeld("WriteIntent", true)
		released := sample(id)
		released.State = Released
		must(t, w.Update(released))
		expectHeld("Update", false)
		must(t, w.Remove(id))
		if got := readers[0].Lookup(uid); len(got) != 0 {
			t.Fatalf("after Remove: %v", got)
		}
	}
}

// The worst place for a reader: a hold that moves between the first and the last
// slot all the time, because no other is free.
func TestReaderFollowsAHoldThatMoves(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	for id := uint64(1); id < Slots; id++ {
		put(t, w, id)
	}
	var stop atomic.Bool
	var moves atomic.Int64
	done := make(chan error)
	go func() {
		for n := 1; ; n++ {
			if err := w.Update(version(1, n)); err != nil || stop.Load() {
				done <- err
				return
			}
			moves.Add(1)
		}
	}()
	waitFor(t, "the writer", func() bool { return moves.Load() > 0 })
	begin := moves.Load()
	lookups := 0 // slow with the race detector: what 3 s give is enough
	for enough := time.Now().Add(3 * time.Second); lookups < 100 && time.Now().Before(enough); lookups++ {
		rec, ok := r.Held("uid-1")
		if !ok {
			t.Errorf("the hold was not visible: %v", r.Problem())
			break
		}
		if err := checkVersion(rec); err != nil {
			t.Error(err)
			break
		}
	}
	t.Logf("%d moves during %d lookups", moves.Load()-begin, lookups)
	stop.Store(true)
	must(t, <-done)
}
