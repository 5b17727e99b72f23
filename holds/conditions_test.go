package holds

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var condAt = time.Date(2026, 3, 1, 12, 0, 0, 987654321, time.UTC)

// lasting are conditions that hold for 15 s from now. Tests that use them run in
// virtual time, so that a slow machine does not let them expire.
func lasting(memory, disk, pid bool) Conditions {
	now := time.Now().UTC().Round(0)
	return Conditions{Memory: memory, Disk: disk, PID: pid, Since: now.Add(-time.Minute), Expires: now.Add(15 * time.Second)}
}

func TestConditionsRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, r := openWriter(t, dir), openReader(t, dir)
		if got := r.Conditions(); got != (Conditions{}) {
			t.Errorf("a new file says %+v", got)
		}
		for i := range 8 {
			want := lasting(i&1 != 0, i&2 != 0, i&4 != 0)
			must(t, w.SetConditions(want))
			if !want.Any() {
				want = Conditions{}
			}
			if got := r.Conditions(); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		must(t, w.SetConditions(Conditions{}))
		if got := r.Conditions(); got != (Conditions{}) {
			t.Errorf("taken back, and still %+v", got)
		}
		if err := errors.Join(r.ConditionsProblem(), r.Problem()); err != nil {
			t.Error(err)
		}
	})
}

// An evictor that died must not keep pods out.
func TestConditionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, r := openWriter(t, dir), openReader(t, dir)
		must(t, w.SetConditions(lasting(true, false, false)))
		time.Sleep(15*time.Second - 1)
		if !r.Conditions().Memory {
			t.Error("gone before they expired")
		}
		time.Sleep(time.Nanosecond)
		if got := r.Conditions(); got != (Conditions{}) {
			t.Errorf("expired, and still %+v", got)
		}
		// A clock that was set back must not give them a longer life.
		far := lasting(true, false, false)
		far.Expires = time.Now().Add(ConditionsLifetime + 1)
		must(t, w.SetConditions(far))
		if got := r.Conditions(); got != (Conditions{}) {
			t.Errorf("more than %s ahead: %+v", ConditionsLifetime, got)
		}
		time.Sleep(time.Nanosecond)
		if !r.Conditions().Memory {
			t.Errorf("%s ahead is allowed", ConditionsLifetime)
		}
	})
}

func TestConditionsThatCannotBeStored(t *testing.T) {
	w := openWriter(t, t.TempDir())
	for name, c := range map[string]Conditions{
		"no end":               {Memory: true, Since: condAt},
		"ends as it begins":    {Memory: true, Since: condAt, Expires: condAt},
		"before 1970":          {Disk: true, Since: time.Unix(-1, 0), Expires: condAt},
		"after 2262":           {PID: true, Since: condAt, Expires: condAt.AddDate(300, 0, 0)},
		"ends before it began": {PID: true, Since: condAt.Add(1), Expires: condAt},
	} {
		if err := w.SetConditions(c); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// The field is damaged byte by byte: each time there is no condition, the
// reason is told, and the holds beside it are untouched.
func TestDamagedConditionsAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, r := openWriter(t, dir), openReader(t, dir)
		put(t, w, 1)
		must(t, w.SetConditions(lasting(true, true, true)))
		path := filepath.Join(dir, FileName)
		whole, err := os.ReadFile(path)
		must(t, err)
		for at := range conditionsSize {
			b := bytes.Clone(whole)
			b[offConditions+at] ^= 0x04
			must(t, os.WriteFile(path, b, 0o644))
			if got := r.Conditions(); got != (Conditions{}) {
				t.Errorf("byte %d: %+v", at, got)
			}
			if err := r.ConditionsProblem(); !errors.Is(err, ErrBadConditions) {
				t.Errorf("byte %d: problem %v", at, err)
			}
			if _, held := r.Held("uid-1"); !held || r.Problem() != nil {
				t.Errorf("byte %d: held %v, problem %v", at, held, r.Problem())
			}
		}
		must(t, os.WriteFile(path, whole, 0o644))
		if !r.Conditions().Memory || r.ConditionsProblem() != nil {
			t.Errorf("whole again: %+v, %v", r.Conditions(), r.ConditionsProblem())
		}
	})
}

// What is not a whole holds file has no conditions.
func TestConditionsWithoutAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := openReader(t, dir)
		if c := r.Conditions(); c != (Conditions{}) || r.ConditionsProblem() != nil {
			t.Errorf("no file: %+v, %v", c, r.ConditionsProblem())
		}
		w := openWriter(t, dir)
		must(t, w.SetConditions(lasting(true, false, false)))
		path := filepath.Join(dir, FileName)
		for name, spoil := range map[string]func() error{
			"short":  func() error { return os.Truncate(path, 100) },
			"empty":  func() error { return os.Truncate(path, 0) },
			"magic":  func() error { return os.WriteFile(path, make([]byte, fileSize), 0o644) },
			"folder": func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		} {
			must(t, spoil())
			if c := r.Conditions(); c != (Conditions{}) || r.ConditionsProblem() == nil {
				t.Errorf("%s: %+v, problem %v", name, c, r.ConditionsProblem())
			}
			must(t, os.RemoveAll(path))
			if _, err := w.Repair(); err != nil {
				t.Fatal(err)
			}
			// The next renewal puts them into the new file.
			if r.Conditions().Any() {
				t.Errorf("%s: a new file has conditions", name)
			}
			must(t, w.SetConditions(lasting(true, false, false)))
			if !r.Conditions().Memory {
				t.Errorf("%s: not renewed", name)
			}
		}
		must(t, r.Close())
		if r.Conditions().Any() {
			t.Error("a closed reader finds conditions")
		}
	})
}

// Removed by somebody and set again: the writer mends the file first.
func TestSetConditionsMendsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, r := openWriter(t, dir), openReader(t, dir)
		put(t, w, 1)
		must(t, os.Remove(filepath.Join(dir, FileName)))
		must(t, w.SetConditions(lasting(true, false, false)))
		if _, held := r.Held("uid-1"); !held || !r.Conditions().Memory {
			t.Errorf("held %v, conditions %+v", held, r.Conditions())
		}
		must(t, w.Close())
		if err := w.SetConditions(Conditions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// A restart takes over what stands there and can take it back.
func TestConditionsOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, r := openWriter(t, dir), openReader(t, dir)
		must(t, w.SetConditions(lasting(true, false, false)))
		must(t, w.Close())
		w = openWriter(t, dir)
		if !r.Conditions().Memory {
			t.Error("gone with the restart")
		}
		must(t, w.SetConditions(Conditions{}))
		if r.Conditions().Any() {
			t.Error("not taken back")
		}
	})
}

// Without a condition nothing is written: each write would make the proxy read
// the records again.
func TestNoConditionsCostNoWrite(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	must(t, w.SetConditions(Conditions{}))
	path := filepath.Join(dir, FileName)
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	must(t, os.Chtimes(path, old, old))
	must(t, w.SetConditions(Conditions{}))
	st, err := os.Stat(path)
	must(t, err)
	if !st.ModTime().Equal(old) {
		t.Errorf("written at %s", st.ModTime())
	}
}

// While the writer renews them all the time, no reader sees half of them.
func TestConditionsAreNeverTorn(t *testing.T) {
	dir := t.TempDir()
	w, r := openWriter(t, dir), openReader(t, dir)
	a, b := lasting(true, false, true), lasting(false, true, false)
	a.Expires, b.Expires = a.Expires.Add(40*time.Second), b.Expires.Add(40*time.Second)
	b.Since = b.Since.Add(time.Second)
	must(t, w.SetConditions(a))
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c := a
			if i%2 == 0 {
				c = b
			}
			if err := w.SetConditions(c); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 1000 {
		if got := r.Conditions(); got != a && got != b {
			t.Errorf("got %+v, problem %v", got, r.ConditionsProblem())
			break
		}
	}
	close(stop)
	writer.Wait()
}

func FuzzDecodeConditions(f *testing.F) {
	for _, c := range []Conditions{{}, {Memory: true, Since: condAt, Expires: condAt.Add(time.Second)}, {Disk: true, PID: true, Since: condAt, Expires: condAt.Add(time.Hour)}} {
		b, err := encodeConditions(c)
		must(f, err)
		f.Add(b[:], true)
		f.Add(b[:conditionsSize-1], false)
	}
	f.Add(bytes.Repeat([]byte{0xff}, conditionsSize), true)
	f.Fuzz(func(t *testing.T, b []byte, reseal bool) {
		if reseal && len(b) == conditionsSize {
			sealConditions(b)
		}
		c, err := decodeConditions(b)
		if err != nil {
			if !errors.Is(err, ErrBadConditions) || c != (Conditions{}) {
				t.Fatalf("%+v with error %v", c, err)
			}
			return
		}
		if !c.Any() {
			if c != (Conditions{}) {
				t.Fatalf("none, but %+v", c)
			}
			return
		}
		again, err := encodeConditions(c)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", c, err)
		}
		if back, err := decodeConditions(again[:]); err != nil || back != c {
			t.Fatalf("%+v comes back as %+v, %v", c, back, err)
		}
	})
}
