package holds

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A disk that is really full: the error says so, the ledger stays whole and
// goes on once there is room, and the copier notices by itself.
func TestLedgerOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a tmpfs of 512 KiB")
	}
	dir := t.TempDir()
	must(t, unix.Mount("holds-test", dir, "tmpfs", 0, "size=512k"))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path, filler := filepath.Join(dir, "l"), filepath.Join(dir, "filler")
	l := openLedger(t, path)
	must(t, l.Save([]Record{sample(1)}))
	fill(t, filler)

	w := openWriter(t, t.TempDir())
	for id := uint64(1); id <= 100; id++ {
		put(t, w, id)
	}
	c := NewCopier(w, l, quietLog())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	waitFor(t, "the copier's problem", func() bool { return errors.Is(c.Problem(), unix.ENOSPC) })
	if got := ids(loaded(t, l)); len(got) != 1 || got[0] != 1 {
		t.Errorf("holds on the full disk: %v, want what was saved before", got)
	}
	intent(t, w, 101) // the writer does not care

	must(t, os.Remove(filler))
	waitFor(t, "the end of the problem", func() bool { return c.Problem() == nil && len(loaded(t, l)) == 101 })
	if l.Recovered() != nil {
		t.Errorf("a full disk was taken for damage: %v", l.Recovered())
	}
}

// fill writes until the file system is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	for _, size := range []int{4096, 1} {
		for b := make([]byte, size); ; {
			if _, err := f.Write(b); errors.Is(err, unix.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}
