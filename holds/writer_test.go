package holds

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestWriterStartsWithAnEmptyFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	w := openWriter(t, dir)
	if len(w.Records()) != 0 || len(w.Problems()) != 0 {
		t.Errorf("records %v, problems %v", w.Records(), w.Problems())
	}
	st, err := os.Stat(dir)
	must(t, err)
	if st.Mode().Perm() != 0o711 {
		t.Errorf("directory has mode %v, want 0711", st.Mode().Perm())
	}
	file, err := os.Stat(holdsPath(dir))
	must(t, err)
	if file.Size() != fileSize || file.Mode().Perm() != 0o644 {
		t.Errorf("file has %d bytes, mode %v; want %d, 0644", file.Size(), file.Mode().Perm(), fileSize)
	}
	if _, err := os.Stat(holdsPath(dir) + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file's draft is still there: %v", err)
	}
}

func TestWriterChanges(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	intent(t, w, 1)
	put(t, w, 2, 3)

	got, ok := r.Held("uid-1")
	want := sample(1)
	want.Available, want.AvailableKubelet, want.Threshold, want.Usage = 1, 2, 3, 4
	want.Decided, want.KilledAt, want.ReleasedAt = time.Unix(0, 5).UTC(), time.Time{}, time.Time{}
	if !ok || got != want {
		t.Errorf("got %+v %v\nwant %+v", got, ok, want)
	}

	killed := got
	killed.State, killed.KilledAt, killed.Frozen = Killed, time.Unix(7, 0).UTC(), false
	must(t, w.Update(killed))
	if now, ok := r.Held("uid-1"); !ok || now != killed {
		t.Errorf("after Update: %+v %v", now, ok)
	}

	released := killed
	released.State, released.ReleaseReason = Released, "by-hand"
	must(t, w.Update(released))
	if _, ok := r.Held("uid-1"); ok {
		t.Error("a released pod is held")
	}
	if all := r.Lookup("uid-1"); len(all) != 1 || all[0] != released {
		t.Errorf("Lookup after the release: %+v", all)
	}

	must(t, w.Remove(2))
	if got := ids(w.Records()); !reflect.DeepEqual(got, []uint64{1, 3}) {
		t.Errorf("writer has %v", got)
	}
	if got := ids(r.All()); !reflect.DeepEqual(got, []uint64{3, 1}) {
		t.Errorf("reader has %v", got)
	}
	if err := r.Problem(); err != nil {
		t.Error(err)
	}
}

func TestWriterRefuses(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	put(t, w, 1)
	long := sample(1)
	long.Name = strings.Repeat("x", MaxName+1)
	free := sample(1)
	free.State = Free
	for name, c := range map[string]struct {
		do   func() error
		want error
	}{
		"update unknown": {func() error { return w.Update(sample(9)) }, ErrNotFound},
		"remove unknown": {func() error { return w.Remove(9) }, ErrNotFound},
		"update too big": {func() error { return w.Update(long) }, ErrInvalid},
		"update to free": {func() error { return w.Update(free) }, ErrInvalid},
		"put without id": {func() error { return w.Put(sample(0)) }, ErrInvalid},
		"put huge id":    {func() error { return w.Put(sample(maxID + 1)) }, ErrInvalid},
		"advance":        {func() error { return w.AdvanceID(maxID + 1) }, ErrInvalid},
	} {
		if err := c.do(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if got := w.Records(); len(got) != 1 || got[0] != sample(1) {
		t.Errorf("the record changed: %+v", got)
	}
	must(t, w.Close())
	must(t, w.Close())
	if err := w.Put(sample(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}
	if _, err := w.Repair(); !errors.Is(err, ErrClosed) {
		t.Errorf("Repair after Close: %v", err)
	}
}

func TestSlotsBelongToWhoReservedThem(t *testing.T) {
	w := openWriter(t, t.TempDir())
	s, err := w.Reserve()
	must(t, err)
	p, err := Prepare(sample(0))
	must(t, err)
	p2, err := Prepare(sample(0))
	must(t, err)
	if err := w.WriteIntent(Slot{}, p, numbers(1)); !errors.Is(err, ErrSlot) {
		t.Errorf("zero slot: %v", err)
	}
	if err := w.WriteIntent(s, p, numbers(0)); !errors.Is(err, ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
	must(t, w.WriteIntent(s, p, numbers(1)))
	if err := w.WriteIntent(s, p2, numbers(2)); !errors.Is(err, ErrSlot) {
		t.Errorf("slot used twice: %v", err)
	}
	w.Unreserve(s) // too late, must not free a hold
	w.Unreserve(Slot{})
	s2, err := w.Reserve()
	must(t, err)
	if s2.index == s.index {
		t.Fatal("the slot of a hold was given out")
	}
	if err := w.WriteIntent(s2, p, numbers(2)); !errors.Is(err, ErrUsed) {
		t.Errorf("prepared used twice: %v", err)
	}
	w.Unreserve(s2)
	if err := w.WriteIntent(s2, p2, numbers(2)); !errors.Is(err, ErrSlot) {
		t.Errorf("slot given back: %v", err)
	}
	s3, err := w.Reserve() // the same place, another claim
	must(t, err)
	if err := w.WriteIntent(s2, p2, numbers(2)); s3.index != s2.index || !errors.Is(err, ErrSlot) {
		t.Errorf("stale slot: %v", err)
	}
	must(t, w.WriteIntent(s3, p2, numbers(2)))
	if got := ids(w.Records()); !reflect.DeepEqual(got, []uint64{1, 2}) {
		t.Errorf("records %v", got)
	}
}

// Slots come back, however their record went: three times as many as there are.
func TestSlotsAreUsedAgain(t *testing.T) {
	w := openWriter(t, t.TempDir())
	for id := uint64(1); id <= 3*Slots; id++ {
		switch id % 3 {
		case 0:
			intent(t, w, id)
		case 1:
			put(t, w, id)
		case 2:
			put(t, w, id)
			must(t, w.Update(sample(id)))
		}
		must(t, w.Remove(id))
		s, err := w.Reserve()
		must(t, err)
		w.Unreserve(s)
	}
	for i := range w.slots {
		if s := slotState(w.slots[i].word.Load() & 3); s != slotFree {
			t.Fatalf("slot %d is in state %d", i, s)
		}
	}
}

// A standing hold is not overwritten while there is room: readers, and whoever
// finds the file after a kill -9, have the old copy until the new one is whole.
func TestUpdateWritesAnotherCopyFirst(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	put(t, w, 1)
	for range 3 {
		before := slotWith(t, dir, 1)
		must(t, w.Update(sample(1)))
		if after := slotWith(t, dir, 1); after == before {
			t.Errorf("slot %d was overwritten", before)
		}
	}
}

func TestFullTableRecyclesTheOldestReleased(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	at := time.Unix(1000, 0).UTC()
	for id := uint64(1); id <= Slots; id++ {
		rec := sample(id)
		rec.ReleasedAt = time.Time{}
		switch id {
		case 10, 20, 30: // released in another order than decided
			rec.State, rec.ReleasedAt = Released, at.Add(time.Duration(40-id)*time.Second)
		}
		must(t, w.Put(rec))
	}
	// An update has no room to go to another slot, and must still work.
	killed := sample(500)
	killed.State = Killed
	must(t, w.Update(killed))
	if got, ok := r.Held("uid-500"); !ok || got != killed {
		t.Errorf("update in a full table: %+v %v", got, ok)
	}
	for _, gone := range []uint64{30, 20, 10} {
		if len(r.Lookup(sample(gone).UID)) != 1 {
			t.Fatalf("record %d is missing before its turn", gone)
		}
		if _, err := w.Reserve(); err != nil {
			t.Fatal(err)
		}
		if len(r.Lookup(sample(gone).UID)) != 0 {
			t.Errorf("record %d was not recycled", gone)
		}
	}
	if _, err := w.Reserve(); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if err := w.Put(sample(5000)); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if n := len(r.All()); n != Slots-3 {
		t.Errorf("%d holds are left, want %d", n, Slots-3)
	}
}

func TestChangedIsSignalled(t *testing.T) {
	w := openWriter(t, t.TempDir())
	signalled := func() bool {
		select {
		case <-w.Changed():
			return true
		default:
			return false
		}
	}
	if !signalled() {
		t.Error("not signalled after opening")
	}
	for name, do := range map[string]func(){
		"put":    func() { put(t, w, 1) },
		"update": func() { must(t, w.Update(sample(1))) },
		"intent": func() { intent(t, w, 2) },
	} {
		do = func(do func()) func() { return func() { put(t, w, 1); signalled(); do() } }(do)
		do()
		if !signalled() {
			t.Errorf("not signalled after %s", name)
		}
	}
	must(t, w.Remove(1))
	if !signalled() {
		t.Error("not signalled after remove")
	}
	for range 3 { // nobody listens: nobody waits
		must(t, w.Update(sample(2)))
	}
	if !signalled() || signalled() {
		t.Error("want exactly one signal for changes nobody fetched")
	}
}

func TestNextIDRisesAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	var last uint64
	next := func() {
		t.Helper()
		id := w.NextID()
		if id <= last {
			t.Fatalf("id %d after %d", id, last)
		}
		last = id
	}
	for range 200 {
		next()
	}
	must(t, w.Close())
	w = openWriter(t, dir)
	next()
	if last != 201 {
		t.Errorf("after a clean restart %d, want 201: no gap", last)
	}
	// A writer that was killed leaves the file as it is at that moment.
	for range 130 {
		next()
		crashed := t.TempDir()
		writeFile(t, holdsPath(crashed), readFile(t, dir))
		after := openWriter(t, crashed)
		if id := after.NextID(); id <= last || id > last+2*idBlock {
			t.Fatalf("after a crash %d, last was %d", id, last)
		}
		must(t, after.Close())
	}
	put(t, w, last+1000)
	last += 1000
	next()
	must(t, w.Remove(last-1))
	must(t, w.Close())
	w = openWriter(t, dir)
	next() // also when the record with the greatest ID is gone
	must(t, w.AdvanceID(5000))
	must(t, w.AdvanceID(4000))
	if id := w.NextID(); id != 5001 {
		t.Errorf("after AdvanceID(5000): %d", id)
	}
}

func TestNextIDIsUniqueAmongThreads(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	const threads, each = 8, 500
	got := make([][]uint64, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			for range each {
				got[i] = append(got[i], w.NextID())
			}
		})
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for _, list := range got {
		for _, id := range list {
			if seen[id] {
				t.Fatalf("id %d twice", id)
			}
			seen[id] = true
		}
	}
	h, err := decodeHeader(readFile(t, dir))
	must(t, err)
	if h.idMark <= threads*each {
		t.Errorf("the file's mark is %d, ids up to %d were given out", h.idMark, threads*each)
	}
}

// WriteIntent and NextID run on the real-time thread.
func TestRealTimePathDoesNotAllocate(t *testing.T) {
	w := openWriter(t, t.TempDir())
	const runs = 200
	var slots []Slot
	var prepared []*Prepared
	for range runs + 1 { // AllocsPerRun runs once more to warm up
		s, err := w.Reserve()
		must(t, err)
		p, err := Prepare(sample(0))
		must(t, err)
		slots, prepared = append(slots, s), append(prepared, p)
	}
	i := 0
	n := numbers(1)
	allocs := testing.AllocsPerRun(runs, func() {
		n.ID = w.NextID()
		if err := w.WriteIntent(slots[i], prepared[i], n); err != nil {
			panic(err)
		}
		i++
	})
	if allocs != 0 {
		t.Errorf("%v allocations per intent, want 0", allocs)
	}
	if got := len(w.Records()); got != runs+1 {
		t.Errorf("%d records, want %d", got, runs+1)
	}
}
