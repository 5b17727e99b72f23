// Package golden compares the output of tests with files below testdata;
// `go test -update` writes them anew.
package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// Check fails t when got is not what testdata/name holds.
func Check(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if updating() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test -update makes it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update accepts):\n--- got\n%s\n--- want\n%s", file, got, want)
	}
}

// updating looks up the flag, which a test package defines with
// `var _ = golden.Flag()`.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// Flag defines -update for the test binary of the calling package.
func Flag() *bool { return flag.Bool("update", false, "write the golden files anew") }
