package holds

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
)

// sample is a record with every field set.
func sample(id uint64) Record {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	return Record{
		ID: id, State: Intent, Frozen: true,
		UID: fmt.Sprintf("uid-%d", id), Namespace: "default", Name: fmt.Sprintf("hog-%d", id),
		SandboxID: fmt.Sprintf("sandbox-%d", id), Cgroup: fmt.Sprintf("/kubepods/burstable/poduid-%d", id),
		CgroupInode: 4711 + id, Signal: "memory.available",
		Threshold: 500 << 20, Available: 430 << 20, AvailableKubelet: 420 << 20,
		Usage: 900 << 20, Request: 100 << 20, Priority: -7, Repeat: 3,
		Decided: at, KilledAt: at.Add(time.Second), ReleasedAt: at.Add(time.Minute),
		ReleaseReason: "pressure-over",
	}
}

func openWriter(t testing.TB, dir string) *Writer {
	t.Helper()
	w, err := OpenWriter(dir)
	if err != nil {
		t.Fatalf("OpenWriter: %v", err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func openReader(t testing.TB, dir string) *Reader {
	t.Helper()
	r := OpenReader(dir)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put stores sample records with these IDs.
func put(t testing.TB, w *Writer, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		must(t, w.Put(sample(id)))
	}
}

// intent writes the sample with this ID the way the real-time thread does.
func intent(t testing.TB, w *Writer, id uint64) {
	t.Helper()
	s, err := w.Reserve()
	must(t, err)
	p, err := Prepare(sample(id))
	must(t, err)
	must(t, w.WriteIntent(s, p, numbers(id)))
}

func numbers(id uint64) *Numbers {
	return &Numbers{ID: id, Available: 1, AvailableKubelet: 2, Threshold: 3, Usage: 4, Decided: 5, Frozen: true}
}

// slotWith returns the slot of a record, from the file itself.
func slotWith(t testing.TB, dir string, id uint64) int {
	t.Helper()
	b := readFile(t, dir)
	for i := range Slots {
		if r, _, err := decode(b[slotOffset(i):slotOffset(i+1)]); err == nil && r.ID == id {
			return i
		}
	}
	t.Fatalf("record %d is not in the file", id)
	return -1
}

func holdsPath(dir string) string { return filepath.Join(dir, FileName) }

func readFile(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(holdsPath(dir))
	must(t, err)
	return b
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	must(t, os.WriteFile(path, b, 0o600))
}

// ids of records, in their order.
func ids(records []Record) []uint64 {
	out := []uint64{}
	for _, r := range records {
		out = append(out, r.ID)
	}
	return out
}

func quietLog() logrus.FieldLogger {
	log, _ := logtest.NewNullLogger()
	return log
}
