package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// bugs.md B32: who evicts must not be shot before Guaranteed pods, which have
// −997.
func TestCaseB32Ourselves(t *testing.T) {
	for before, want := range map[string]string{"0\n": "-999", "-998": "-999", "1000\n": "-999", "-999\n": "-999\n", "-1000\n": "-1000\n", "what": "what"} {
		proc := t.TempDir()
		path := filepath.Join(proc, "self", "oom_score_adj")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		log, hook := logtest.NewNullLogger()
		a := &app{roots: cgroupfs.Roots{Proc: proc}}
		a.lowerOOMScore(log)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%q became %q, %v", before, got, err)
		}
		if warned := len(hook.AllEntries()) > 0; warned != (before == "what") {
			t.Errorf("%q: %v", before, hook.AllEntries())
		}
	}
	// Not permitted: one warning. A tree without processes: nothing.
	log, hook := logtest.NewNullLogger()
	proc := t.TempDir()
	a := &app{roots: cgroupfs.Roots{Proc: proc}}
	a.lowerOOMScore(log)
	if len(hook.AllEntries()) != 0 {
		t.Errorf("%v", hook.AllEntries())
	}
	if err := os.MkdirAll(filepath.Join(proc, "self", "oom_score_adj"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.lowerOOMScore(log)
	if e := hook.LastEntry(); e == nil || e.Level != logrus.WarnLevel || !strings.Contains(e.Message, "OOM killer") {
		t.Errorf("%v", e)
	}
}
