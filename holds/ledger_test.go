package holds

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openLedger(t testing.TB, path string) *Ledger {
	t.Helper()
	l, err := OpenLedger(path, quietLog())
	if err != nil {
		t.Fatalf("OpenLedger: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func loaded(t testing.TB, l *Ledger) []Record {
	t.Helper()
	records, _, err := l.Load()
	must(t, err)
	return records
}

func TestLedgerKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "ledger.db")
	l := openLedger(t, path)
	if records, boot, err := l.Load(); len(records) != 0 || boot != "" || err != nil {
		t.Errorf("a new ledger has %v, %q, %v", records, boot, err)
	}
	if last, err := l.LastID(); last != 0 || err != nil {
		t.Errorf("last id %d, %v", last, err)
	}
	want := []Record{sample(1), sample(2), sample(300)}
	must(t, l.Save([]Record{want[2], want[0], want[1]}))
	must(t, l.SetBootID("boot-1"))
	must(t, l.AppendDecision(7, []byte(`{"a":1}`)))
	must(t, l.AppendDecision(256, []byte(`{"b":2}`)))
	must(t, l.AppendDecision(7, []byte(`{"a":"again"}`)))
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	must(t, l.SetRepeat("u1", 3, at))
	must(t, l.SetRepeat("u2", 1, at))
	must(t, l.SetRepeat("u1", 4, at.Add(time.Hour)))
	must(t, l.DeleteRepeat("u2"))
	must(t, l.DeleteRepeat("never"))
	must(t, l.SetNotice(5, []byte(`{"n":5}`)))
	must(t, l.SetNotice(6, []byte(`{"n":6}`)))
	must(t, l.SetNotice(5, []byte(`{"n":"again"}`)))
	must(t, l.DeleteNotice(6))
	must(t, l.DeleteNotice(99))
	for _, bad := range []error{l.SetNotice(0, []byte(`{}`)), l.SetNotice(1, []byte(`{`))} {
		if !errors.Is(bad, ErrInvalid) {
			t.Errorf("a notice that is not valid: %v", bad)
		}
	}

	check := func(l *Ledger) {
		t.Helper()
		records, boot, err := l.Load()
		if err != nil || boot != "boot-1" || !reflect.DeepEqual(records, want) {
			t.Errorf("loaded %+v, %q, %v", records, boot, err)
		}
		for limit, list := range map[int]string{10: `[{"b":2} {"a":"again"}]`, 1: `[{"b":2}]`, 0: `[]`} {
			got, err := l.Decisions(limit)
			if err != nil || fmt.Sprintf("%s", got) != list {
				t.Errorf("Decisions(%d) = %s, %v", limit, got, err)
			}
		}
		repeats, err := l.Repeats()
		if err != nil || !maps.Equal(repeats, map[string]Repeat{"u1": {Count: 4, Last: at.Add(time.Hour)}}) {
			t.Errorf("repeats %v, %v", repeats, err)
		}
		if n, err := l.Notices(); err != nil || len(n) != 1 || string(n[5]) != `{"n":"again"}` {
			t.Errorf("%d notices, %s, %v", len(n), n[5], err)
		}
		if last, err := l.LastID(); last != 300 || err != nil {
			t.Errorf("last id %d, %v", last, err)
		}
		if l.Recovered() != nil {
			t.Errorf("recovered: %v", l.Recovered())
		}
	}
	check(l)
	must(t, l.Close())
	must(t, l.Close())
	if err := l.Save(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Save after Close: %v", err)
	}
	if _, _, err := l.Load(); !errors.Is(err, ErrClosed) {
		t.Errorf("Load after Close: %v", err)
	}
	l = openLedger(t, path)
	check(l)

	want = []Record{sample(2), sample(400)}
	want[0].State = Released
	must(t, l.Save(want))
	if got := loaded(t, l); !reflect.DeepEqual(got, want) {
		t.Errorf("Save does not replace: %v", ids(got))
	}
	must(t, l.Save(nil))
	if got := loaded(t, l); len(got) != 0 {
		t.Errorf("after saving nothing: %v", ids(got))
	}
}

// Without a difference nothing is written: no fsync for nothing.
func TestLedgerDoesNotWriteWhatItHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l := openLedger(t, path)
	records := []Record{sample(1), sample(2)}
	must(t, l.Save(records))
	must(t, l.SetBootID("b"))
	must(t, l.SetRepeat("u", 1, time.Unix(1, 0)))
	before, err := os.ReadFile(path)
	must(t, err)
	must(t, l.Save(records))
	must(t, l.SetBootID("b"))
	must(t, l.SetRepeat("u", 1, time.Unix(1, 0)))
	must(t, l.DeleteRepeat("x"))
	after, err := os.ReadFile(path)
	must(t, err)
	if string(before) != string(after) {
		t.Error("the file was written")
	}
	records[0].State = Killed
	must(t, l.Save(records))
	if after, err = os.ReadFile(path); err != nil || string(before) == string(after) {
		t.Errorf("a change was not written (%v)", err)
	}
}

func TestLedgerKeepsTheNewestDecisions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l := openLedger(t, path)
	if l.keep != 10_000 {
		t.Errorf("keeps %d decisions", l.keep)
	}
	l.keep = 5
	for id := uint64(1); id <= 8; id++ {
		must(t, l.AppendDecision(id*100, fmt.Appendf(nil, "%d", id)))
		must(t, l.AppendDecision(id*100, fmt.Appendf(nil, "%d", id)))
	}
	must(t, l.Close())
	l = openLedger(t, path)
	l.keep = 5
	must(t, l.AppendDecision(900, []byte("9")))
	got, err := l.Decisions(100)
	if err != nil || fmt.Sprintf("%s", got) != "[9 8 7 6 5]" {
		t.Errorf("kept %s, %v", got, err)
	}
}

func TestLedgerRefuses(t *testing.T) {
	dir := t.TempDir()
	l := openLedger(t, filepath.Join(dir, "l"))
	must(t, l.Save([]Record{sample(1)}))
	long := sample(2)
	long.UID = strings.Repeat("x", MaxUID+1)
	for name, err := range map[string]error{
		"hold without id":  l.Save([]Record{sample(0)}),
		"hold too long":    l.Save([]Record{long}),
		"decision id 0":    l.AppendDecision(0, []byte("{}")),
		"decision no JSON": l.AppendDecision(1, []byte("{")),
		"repeat no uid":    l.SetRepeat("", 1, time.Now()),
		"repeat long uid":  l.SetRepeat(long.UID, 1, time.Now()),
		"repeat time":      l.SetRepeat("u", 1, time.Unix(-5, 0)),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := loaded(t, l); len(got) != 1 {
		t.Errorf("holds after the errors: %v", ids(got))
	}
	if _, err := OpenLedger(filepath.Join(dir, "l"), quietLog()); !errors.Is(err, ErrLocked) {
		t.Errorf("open twice: %v, want ErrLocked", err)
	}
	writeFile(t, filepath.Join(dir, "file"), nil)
	if _, err := OpenLedger(filepath.Join(dir, "file", "l"), quietLog()); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
}

// Damage inside of a value is not bbolt's to notice.
func TestLedgerLeavesOutDamagedValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l := openLedger(t, path)
	must(t, l.Save([]Record{sample(1), sample(2)}))
	must(t, l.SetRepeat("repeat-one", 1, time.Unix(1, 0)))
	must(t, l.SetRepeat("repeat-two", 2, time.Unix(1, 0)))
	must(t, l.AppendDecision(1, []byte(`"decision-one"`)))
	must(t, l.AppendDecision(2, []byte(`"decision-two"`)))
	must(t, l.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	// Every copy of it, the ones in old pages too.
	s := strings.NewReplacer("hog-2", "dog-2", "repeat-two", "repeat-too", `"decision-two"`, `'decision-two"`).Replace(string(b))
	writeFile(t, path, []byte(s))

	l = openLedger(t, path)
	if l.Recovered() != nil {
		t.Fatalf("started anew: %v", l.Recovered())
	}
	if got := ids(loaded(t, l)); !reflect.DeepEqual(got, []uint64{1}) {
		t.Errorf("holds %v, want 1", got)
	}
	if got, err := l.Decisions(10); err != nil || fmt.Sprintf("%s", got) != `["decision-one"]` {
		t.Errorf("decisions %s, %v", got, err)
	}
	if got, err := l.Repeats(); err != nil || len(got) != 1 || got["repeat-one"].Count != 1 {
		t.Errorf("repeats %v, %v", got, err)
	}
	must(t, l.Save([]Record{sample(1), sample(2)})) // mends
	if got := ids(loaded(t, l)); !reflect.DeepEqual(got, []uint64{1, 2}) {
		t.Errorf("holds after saving %v", got)
	}
}
