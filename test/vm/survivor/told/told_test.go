package told

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/holds"
)

// ledger makes one with these decisions, and holds of them.
func ledger(t *testing.T, victims map[uint64]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	log := logrus.New()
	log.SetOutput(io.Discard)
	l, err := holds.OpenLedger(path, log)
	if err != nil {
		t.Fatal(err)
	}
	var records []holds.Record
	for id, uid := range victims {
		if err := l.AppendDecision(id, fmt.Appendf(nil, `{"id":%d,"victim":{"uid":%q}}`, id, uid)); err != nil {
			t.Fatal(err)
		}
		records = append(records, holds.Record{ID: id, State: holds.Intent, UID: uid, Decided: time.Unix(1, 0)})
	}
	if err := l.Save(records); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFacts(t *testing.T) {
	var f Facts
	for _, line := range []string{"BEGAN a", "[ 1.5] some kernel's words", "KEPT 3 a\r", "LIVE", ""} {
		if _, _, err := f.Note(line); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if _, _, err := f.Note("KEPT x a"); err == nil {
		t.Error("an ID that is none")
	}
	for name, tt := range map[string]struct {
		victims map[uint64]string
		wrong   string
	}{
		"as it was":    {map[uint64]string{3: "a"}, ""},
		"one more":     {map[uint64]string{3: "a", 4: "b"}, ""},
		"lost":         {map[uint64]string{4: "b"}, "decision 3"},
		"another one":  {map[uint64]string{3: "b"}, "decision 3"},
		"a second one": {map[uint64]string{3: "a", 9: "a"}, "twice"},
	} {
		err := f.In(ledger(t, tt.victims))
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Facts{}).In(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("no ledger and nothing to lose: %v", err)
	}
	path := ledger(t, map[uint64]string{3: "a"})
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.In(path); err == nil {
		t.Error("a damaged ledger")
	}
}
