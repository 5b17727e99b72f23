package holds

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// benchDir is on tmpfs where there is one, as the run directory is.
func benchDir(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "holds")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// What each gated call of the proxy pays.
func BenchmarkLookupUnchanged(b *testing.B) {
	for _, holds := range []uint64{0, 1, 100} {
		b.Run(fmt.Sprintf("holds=%d", holds), func(b *testing.B) {
			dir := benchDir(b)
			w, r := openWriter(b, dir), openReader(b, dir)
			for id := range holds {
				put(b, w, id+1)
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Held("uid-1")
			}
		})
	}
}

func BenchmarkLookupWithoutFile(b *testing.B) {
	r := openReader(b, filepath.Join(benchDir(b), "none"))
	b.ReportAllocs()
	for b.Loop() {
		r.Held("uid-1")
	}
}

// What the first call after a change pays.
func BenchmarkLookupChanged(b *testing.B) {
	dir := benchDir(b)
	w, r := openWriter(b, dir), openReader(b, dir)
	put(b, w, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.bump(w.file.Load()); err != nil {
			b.Fatal(err)
		}
		r.Held("uid-1")
	}
}

func BenchmarkWriteIntent(b *testing.B) {
	w := openWriter(b, benchDir(b))
	n := numbers(1)
	s, err := w.Reserve()
	must(b, err)
	p, err := Prepare(sample(1))
	must(b, err)
	b.ReportAllocs()
	for b.Loop() {
		// As it is after Reserve and Prepare, without their cost.
		w.slots[s.index].word.Store(word(s.ticket, slotClaimed))
		p.used.Store(false)
		if err := w.WriteIntent(s, p, n); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	w := openWriter(b, benchDir(b))
	put(b, w, 1)
	b.ReportAllocs()
	for b.Loop() {
		must(b, w.Update(sample(1)))
	}
}
