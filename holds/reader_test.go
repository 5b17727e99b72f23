package holds

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReaderLooksUp(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	rec := func(id uint64, uid, sandbox string, s State) {
		x := sample(id)
		x.UID, x.SandboxID, x.State = uid, sandbox, s
		must(t, w.Put(x))
	}
	rec(1, "a", "sa1", Intent)
	rec(2, "a", "sa2", Released)
	rec(3, "b", "sb", Released)
	rec(4, "c", "", Killed)
	rec(5, "c", "", Killed)
	for _, c := range []struct {
		uid    string
		lookup []uint64
		held   uint64
	}{{"a", []uint64{2, 1}, 1}, {"b", []uint64{3}, 0}, {"c", []uint64{5, 4}, 5}, {"d", nil, 0}, {"", nil, 0}} {
		got := r.Lookup(c.uid)
		if len(got)+len(c.lookup) > 0 && !reflect.DeepEqual(ids(got), c.lookup) {
			t.Errorf("Lookup(%q) = %v, want %v", c.uid, ids(got), c.lookup)
		}
		if held, ok := r.Held(c.uid); ok != (c.held != 0) || held.ID != c.held {
			t.Errorf("Held(%q) = %d %v, want %d", c.uid, held.ID, ok, c.held)
		}
		for i := range got {
			got[i] = Record{} // the caller's own copy
		}
	}
	for sandbox, want := range map[string]uint64{"sa1": 1, "sa2": 0, "sb": 0, "": 0, "x": 0} {
		if held, ok := r.HeldSandbox(sandbox); ok != (want != 0) || held.ID != want {
			t.Errorf("HeldSandbox(%q) = %d %v, want %d", sandbox, held.ID, ok, want)
		}
	}
	if got := ids(r.All()); !reflect.DeepEqual(got, []uint64{5, 4, 3, 2, 1}) {
		t.Errorf("All() = %v", got)
	}
	must(t, r.Close())
	must(t, r.Close())
	if got := r.All(); len(got) != 0 {
		t.Errorf("after Close: %v", got)
	}
}

// expect checks what a reader says, and what a new one says of the same file.
func expect(t *testing.T, step string, r *Reader, uid string, held bool, problem error) {
	t.Helper()
	fresh := OpenReader(filepath.Dir(r.path))
	defer func() { _ = fresh.Close() }()
	for name, r := range map[string]*Reader{"old": r, "new": fresh} {
		if _, ok := r.Held(uid); ok != held {
			t.Errorf("%s: %s reader: held %v, want %v (problem: %v)", step, name, ok, held, r.Problem())
		}
		if err := r.Problem(); problem == nil && err != nil || !errors.Is(err, problem) {
			t.Errorf("%s: %s reader: problem %v, want %v", step, name, err, problem)
		}
	}
}

func TestReaderSurvivesTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := holdsPath(dir)
	r := openReader(t, dir)
	expect(t, "no directory", r, "uid-1", false, nil)
	w := openWriter(t, dir)
	expect(t, "empty", r, "uid-1", false, nil)
	put(t, w, 1)
	expect(t, "one hold", r, "uid-1", true, nil)
	must(t, w.Close())
	expect(t, "writer gone", r, "uid-1", true, nil)
	whole := readFile(t, dir)

	must(t, os.Rename(path, path+".away"))
	expect(t, "renamed", r, "uid-1", false, nil)
	must(t, os.Rename(path+".away", path))
	expect(t, "renamed back", r, "uid-1", true, nil)

	// Replaced by one with the same generation: only the inode differs.
	empty := make([]byte, fileSize)
	copy(empty, whole[:headerSize])
	writeFile(t, path+".2", empty)
	must(t, os.Rename(path+".2", path))
	expect(t, "replaced", r, "uid-1", false, nil)
	writeFile(t, path+".2", whole)
	must(t, os.Rename(path+".2", path))
	expect(t, "replaced again", r, "uid-1", true, nil)

	slot := slotWith(t, dir, 1)
	for _, size := range []int64{0, 1, 63, headerUsed - 1, headerUsed, headerSize - 1, headerSize, headerSize + 1,
		slotOffset(slot), slotOffset(slot) + 1, slotOffset(slot+1) - 1} {
		must(t, os.Truncate(path, size))
		problem := ErrBadRecord
		if size < headerUsed {
			problem = ErrBadHeader
		}
		expect(t, "cut", r, "uid-1", false, problem)
		writeFile(t, path, whole)
		expect(t, "written again in place", r, "uid-1", true, nil)
	}
	must(t, os.Truncate(path, slotOffset(slot+1)))
	expect(t, "cut behind the hold", r, "uid-1", true, ErrBadRecord)

	must(t, os.Remove(path))
	expect(t, "removed", r, "uid-1", false, nil)
	must(t, os.Mkdir(path, 0o700))
	expect(t, "a directory", r, "uid-1", false, ErrBadHeader)
	must(t, os.Remove(path))
	must(t, unix.Mkfifo(path, 0o600))
	expect(t, "a fifo", r, "uid-1", false, ErrBadHeader)
	must(t, os.Remove(path))
	writeFile(t, path+".2", whole)
	must(t, os.Symlink(path+".2", path))
	expect(t, "a link", r, "uid-1", false, ErrBadHeader)
	must(t, os.Remove(path))
	must(t, os.RemoveAll(dir))
	writeFile(t, dir, nil)
	expect(t, "the directory is a file", r, "uid-1", false, unix.ENOTDIR)
	must(t, os.Remove(dir))

	w = openWriter(t, dir)
	put(t, w, 1)
	expect(t, "from the beginning", r, "uid-1", true, nil)
}

// Damage done in place changes neither inode nor generation; the time of the
// last write gives it away.
func TestReaderNoticesDamageInPlace(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	put(t, w, 1, 2)
	expect(t, "whole", r, "uid-1", true, nil)
	b := readFile(t, dir)
	b[slotOffset(slotWith(t, dir, 1))+offUsage] ^= 1
	writeFile(t, holdsPath(dir), b)
	must(t, os.Chtimes(holdsPath(dir), time.Time{}, time.Now().Add(time.Second)))
	expect(t, "damaged", r, "uid-1", false, ErrBadRecord)
	expect(t, "its neighbour", r, "uid-2", true, ErrBadRecord)
}

// Several lookups at once while the file is replaced: none may use a
// descriptor another has closed.
func TestReadersShareAReplacedFile(t *testing.T) {
	dir := t.TempDir()
	put(t, openWriter(t, dir), 1)
	whole := readFile(t, dir)
	r := openReader(t, dir)
	stop := make(chan struct{})
	done := make(chan int)
	for range 4 {
		go func() {
			missed := 0
			for {
				select {
				case <-stop:
					done <- missed
					return
				default:
				}
				// "keeps being replaced" is the only way out without the hold.
				if _, ok := r.Held("uid-1"); !ok {
					missed++
				}
			}
		}()
	}
	for range 100 {
		writeFile(t, holdsPath(dir)+".2", whole)
		must(t, os.Rename(holdsPath(dir)+".2", holdsPath(dir)))
	}
	close(stop)
	for range 4 {
		if missed := <-done; missed > 0 {
			t.Errorf("%d lookups missed the hold", missed)
		}
	}
	if n := openFiles(t, dir); n > 2 { // the writer's and the reader's
		t.Errorf("%d descriptors are open on the file and its predecessors", n)
	}
}

// openFiles counts this process's descriptors of files in dir other than the
// lock.
func openFiles(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	n := 0
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && len(to) > len(dir) && to[:len(dir)] == dir && filepath.Base(to) != lockName {
			n++
		}
	}
	return n
}

// A change within one tick of the clock leaves the file's time as it was; the
// generation tells.
func TestReaderNoticesAChangeByItsGeneration(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	at := time.Unix(1_700_000_000, 0)
	for id := uint64(1); id <= 3; id++ {
		intent(t, w, id)
		must(t, os.Chtimes(holdsPath(dir), at, at))
		expect(t, "intent", r, sample(id).UID, true, nil)
		released := sample(id)
		released.State = Released
		must(t, w.Update(released))
		must(t, os.Chtimes(holdsPath(dir), at, at))
		expect(t, "release", r, sample(id).UID, false, nil)
		must(t, w.Remove(id))
		must(t, os.Chtimes(holdsPath(dir), at, at))
		if got := r.Lookup(sample(id).UID); len(got) != 0 {
			t.Errorf("after Remove: %v", got)
		}
	}
}
