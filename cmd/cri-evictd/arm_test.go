package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestArmedFile(t *testing.T) {
	f := armedFile{path: filepath.Join(t.TempDir(), "armed")}
	if n, err := f.Load(); n != 0 || err != nil {
		t.Errorf("before: %d, %v", n, err)
	}
	if err := f.Save(1 << 40); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Load(); n != 1<<40 || err != nil {
		t.Errorf("after: %d, %v", n, err)
	}
	if err := os.WriteFile(f.path, []byte("many"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Load(); n != 0 || err == nil {
		t.Errorf("broken: %d, %v", n, err)
	}
}
