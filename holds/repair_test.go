package holds

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Whatever somebody does to the run directory, the next slow change puts the
// holds back.
func TestRepairPutsTheFileBack(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, dir string){
		"removed":           func(t *testing.T, dir string) { must(t, os.Remove(holdsPath(dir))) },
		"lock removed":      func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, lockName))) },
		"directory removed": func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		"emptied":           func(t *testing.T, dir string) { must(t, os.Truncate(holdsPath(dir), 0)) },
		"cut":               func(t *testing.T, dir string) { must(t, os.Truncate(holdsPath(dir), headerSize+100)) },
		"replaced": func(t *testing.T, dir string) {
			writeFile(t, holdsPath(dir)+".x", readFile(t, dir))
			must(t, os.Rename(holdsPath(dir)+".x", holdsPath(dir)))
		},
		"a directory in its place": func(t *testing.T, dir string) {
			must(t, os.Remove(holdsPath(dir)))
			must(t, os.Mkdir(holdsPath(dir), 0o700))
			writeFile(t, filepath.Join(holdsPath(dir), "something"), []byte("somebody's"))
		},
		"nobody may read it": func(t *testing.T, dir string) { must(t, os.Chmod(holdsPath(dir), 0)) },
		"garbage":            func(t *testing.T, dir string) { writeFile(t, holdsPath(dir), make([]byte, fileSize)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			w, r := openWriter(t, dir), openReader(t, dir)
			put(t, w, 1, 2)
			expect(t, "before", r, "uid-1", true, nil)
			if mended, err := w.Repair(); mended || err != nil {
				t.Fatalf("a whole file was mended: %v, %v", mended, err)
			}
			harm(t, dir)
			put(t, w, 3)
			for _, uid := range []string{"uid-1", "uid-2", "uid-3"} {
				expect(t, "after", r, uid, true, nil)
			}
			harm(t, dir)
			if mended, err := w.Repair(); !mended || err != nil {
				t.Errorf("Repair: %v, %v", mended, err)
			}
			expect(t, "after Repair", r, "uid-1", true, nil)
			if st, err := os.Lstat(holdsPath(dir)); err != nil || st.Mode() != fileMode {
				t.Errorf("the file: %v, %v", st.Mode(), err)
			}
			intent(t, w, 4)
			expect(t, "real-time path after Repair", r, "uid-4", true, nil)
			if _, err := OpenWriter(dir); !errors.Is(err, ErrLocked) {
				t.Errorf("a second writer: %v", err)
			}
			if id := w.NextID(); id != 4 {
				t.Errorf("next id %d, want 4", id)
			}
			if n := openFiles(t, dir); n > 2 {
				t.Errorf("%d descriptors are open", n)
			}
		})
	}
}

func TestRepairGivesWayToAnotherWriter(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	put(t, w, 1)
	must(t, os.Remove(filepath.Join(dir, lockName)))
	other := openWriter(t, dir)
	if err := w.Put(sample(2)); !errors.Is(err, ErrLocked) {
		t.Errorf("the first writer goes on: %v", err)
	}
	if got := ids(other.Records()); len(got) != 1 {
		t.Errorf("the second writer has %v", got)
	}
}

// Intents written while the file is being replaced must be in the new one. The
// moments that matter are a few microseconds long, hence the rounds.
func TestIntentDuringRepair(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	const each = 600
	slots, prepared := make([]Slot, each), make([]*Prepared, each)
	for round := range uint64(25) {
		for i := range slots { // Reserve would do the repairing
			var err error
			slots[i], err = w.Reserve()
			must(t, err)
			prepared[i], err = Prepare(sample(1))
			must(t, err)
		}
		must(t, os.Remove(holdsPath(dir)))
		var repaired atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			defer repaired.Store(true)
			if mended, err := w.Repair(); !mended || err != nil {
				t.Errorf("Repair: %v, %v", mended, err)
			}
		})
		n := 0
		for first := round*each + 1; n < each && !repaired.Load(); n++ {
			must(t, w.WriteIntent(slots[n], prepared[n], numbers(first+uint64(n))))
		}
		wg.Wait()
		for _, s := range slots[n:] {
			w.Unreserve(s)
		}
		if got := r.All(); len(got) != n || r.Problem() != nil {
			t.Fatalf("round %d: %d of %d intents are in the file, %v", round, len(got), n, r.Problem())
		}
		if got := w.Records(); len(got) != n {
			t.Fatalf("round %d: %d of %d intents are in memory", round, len(got), n)
		}
		for _, rec := range w.Records() {
			must(t, w.Remove(rec.ID))
		}
	}
}
