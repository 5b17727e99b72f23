package holds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
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
		"garbage": func(t *testing.T, dir string) { writeFile(t, holdsPath(dir), make([]byte, fileSize)) },
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

// An intent written while the file is being replaced must be in the new one.
func TestIntentDuringRepair(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	const n = 200
	var slots []Slot
	for range n { // Reserve would do the repairing
		s, err := w.Reserve()
		must(t, err)
		slots = append(slots, s)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := os.Remove(holdsPath(dir)); err != nil {
				t.Error(err)
			}
			if mended, err := w.Repair(); !mended || err != nil {
				t.Errorf("Repair: %v, %v", mended, err)
				return
			}
		}
	})
	for id := uint64(1); id <= n; id++ {
		p, err := Prepare(sample(id))
		must(t, err)
		must(t, w.WriteIntent(slots[id-1], p, numbers(id)))
	}
	close(done)
	wg.Wait()
	_, err := w.Repair()
	must(t, err)
	for id := uint64(1); id <= n; id++ {
		if _, ok := r.Held(fmt.Sprintf("uid-%d", id)); !ok {
			t.Errorf("intent %d is not in the file", id)
		}
	}
	if got := len(w.Records()); got != n {
		t.Errorf("%d records, want %d", got, n)
	}
}
