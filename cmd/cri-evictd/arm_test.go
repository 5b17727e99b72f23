package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/eviction"
)

func TestArmedFile(t *testing.T) {
	f := armedFile{path: filepath.Join(t.TempDir(), "armed")}
	if a, err := f.Load(); len(a) != 0 || err != nil {
		t.Errorf("before: %v, %v", a, err)
	}
	for _, want := range []map[eviction.Signal]uint64{
		{eviction.MemoryAvailable: 1 << 40},
		{eviction.MemoryAvailable: 1, eviction.AllocatableMemoryAvailable: 1<<64 - 1},
		{},
	} {
		if err := f.Save(want); err != nil {
			t.Fatal(err)
		}
		if a, err := f.Load(); !maps.Equal(a, want) || err != nil {
			t.Errorf("after: %v, %v, want %v", a, err, want)
		}
	}
	for _, text := range []string{"many", "memory.available", "memory.available -1", "memory.available 1 2", "cpu.available 1", "\n", "1\nx\n"} {
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if a, err := f.Load(); a != nil || err == nil || !strings.Contains(err.Error(), f.path) {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
	// as the first version wrote it
	if err := os.WriteFile(f.path, []byte("524288000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := f.Load(); err != nil || a[eviction.MemoryAvailable] != 524288000 {
		t.Errorf("an amount alone: %v, %v", a, err)
	}
}

func FuzzParseArmed(f *testing.F) {
	for _, s := range []string{"", "1\n", "memory.available 1\nallocatableMemory.available 2\n", "memory.available", "x 1", "memory.available 99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		amounts, err := parseArmed(text)
		if err != nil {
			if amounts != nil {
				t.Errorf("%v with %v", amounts, err)
			}
			return
		}
		file := armedFile{path: filepath.Join(t.TempDir(), "armed")}
		if err := file.Save(amounts); err != nil {
			t.Fatal(err)
		}
		if back, err := file.Load(); err != nil || !maps.Equal(back, amounts) {
			t.Errorf("%v comes back as %v, %v", amounts, back, err)
		}
	})
}
