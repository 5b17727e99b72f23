package holds

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// A record that is torn at any byte: its hold is gone, the two beside it stand,
// and nothing that was never written turns up.
func TestTornRecordAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	put(t, w, 1, 2, 3)
	must(t, w.Close())
	whole := readFile(t, dir)
	from := int(slotOffset(slotWith(t, dir, 2)))
	older := encoded(t, Record{ID: 9, State: Killed, UID: "older", Name: strings.Repeat("o", MaxName)}, 0)

	for name, c := range map[string]struct {
		step int // a reading of the file takes 5 ms with the race detector
		tear func(b []byte, at int)
	}{
		"flipped":       {1, func(b []byte, at int) { b[at] ^= 0x40 }},
		"then zeros":    {1, func(b []byte, at int) { clear(b[at : from+RecordSize]) }},
		"zeros, then":   {11, func(b []byte, at int) { clear(b[from : at+1]) }},
		"over an older": {11, func(b []byte, at int) { copy(b[at:from+RecordSize], older[at-from:]) }},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.OpenFile(holdsPath(dir), os.O_RDWR, 0)
			must(t, err)
			defer func() { _ = f.Close() }()
			for at := from; at < from+RecordSize; at += c.step {
				b := bytes.Clone(whole[from-RecordSize : from+2*RecordSize])
				shifted := make([]byte, from+2*RecordSize)
				copy(shifted[from-RecordSize:], b)
				c.tear(shifted, at)
				_, err := f.WriteAt(shifted[from:from+RecordSize], int64(from))
				must(t, err)
				want := []uint64{3, 1}
				torn := true
				switch {
				case bytes.Equal(shifted[from:from+RecordSize], whole[from:from+RecordSize]):
					want, torn = []uint64{3, 2, 1}, false
				case isZero(shifted[from : from+RecordSize]):
					torn = false
				case name == "over an older" && at == from:
					want, torn = []uint64{9, 3, 1}, false // that one is whole
				}
				r := OpenReader(dir)
				got := ids(r.All())
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("byte %d: holds %v, want %v", at-from, got, want)
				}
				if err := r.Problem(); errors.Is(err, ErrBadRecord) != torn {
					t.Fatalf("byte %d: problem %v, torn %v", at-from, err, torn)
				}
				must(t, r.Close())
			}
			_, err = f.WriteAt(whole, 0)
			must(t, err)
		})
	}
}

// The file ends at any byte of a record.
func TestFileEndsAtEveryByteOfARecord(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	put(t, w, 1, 2, 3)
	must(t, w.Close())
	whole := readFile(t, dir)
	from := slotOffset(slotWith(t, dir, 2))
	r := openReader(t, dir)
	for at := from + RecordSize; at >= from; at-- {
		must(t, os.Truncate(holdsPath(dir), at))
		want := []uint64{1}
		if at == from+RecordSize {
			want = []uint64{2, 1}
		}
		if got := ids(r.All()); !reflect.DeepEqual(got, want) {
			t.Fatalf("ends at byte %d of the record: holds %v, want %v", at-from, got, want)
		}
		if err := r.Problem(); !errors.Is(err, ErrBadRecord) {
			t.Fatalf("ends at byte %d: problem %v", at-from, err)
		}
	}
	writeFile(t, holdsPath(dir), whole)
	if got := ids(r.All()); !reflect.DeepEqual(got, []uint64{3, 2, 1}) {
		t.Errorf("whole again: %v", got)
	}
}

func TestWriterReopensATornFile(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, dir)
	put(t, w, 1, 2, 3)
	must(t, w.Close())
	b := readFile(t, dir)
	b[int(slotOffset(slotWith(t, dir, 2)))+offUsage] ^= 1
	b[slotOffset(900)+77] = 1 // garbage in a free slot
	writeFile(t, holdsPath(dir), b)
	r := openReader(t, dir)
	if r.All(); r.Problem() == nil {
		t.Error("the reader does not mention the torn record")
	}

	w = openWriter(t, dir)
	if got := ids(w.Records()); !reflect.DeepEqual(got, []uint64{1, 3}) {
		t.Errorf("kept %v, want 1 and 3", got)
	}
	if p := w.Problems(); len(p) != 2 || !errors.Is(p[0], ErrBadRecord) || !strings.Contains(p[0].Error(), holdsPath(dir)+": slot ") {
		t.Errorf("problems %v", p)
	}
	if got := ids(r.All()); !reflect.DeepEqual(got, []uint64{3, 1}) || r.Problem() != nil {
		t.Errorf("the reader has %v, problem %v, after the writer dropped the torn record", got, r.Problem())
	}
	must(t, w.Close())
	w = openWriter(t, dir)
	if len(w.Problems()) != 0 || w.NextID() <= 3 {
		t.Errorf("second reopening: %v", w.Problems())
	}
}

func TestWriterReopensWhatIsNoHoldsFile(t *testing.T) {
	whole := func() []byte {
		b := encodeHeader(header{idMark: 1})
		return append(b[:], make([]byte, fileSize-headerSize)...)
	}
	version := whole()
	version[offVersion] = 2
	for name, c := range map[string]struct {
		make   func(t *testing.T, path string)
		kept   bool // the file itself goes on
		reason error
	}{
		"empty":       {func(t *testing.T, p string) { writeFile(t, p, nil) }, false, ErrBadHeader},
		"garbage":     {func(t *testing.T, p string) { writeFile(t, p, bytes.Repeat([]byte("x"), fileSize)) }, false, ErrBadHeader},
		"version":     {func(t *testing.T, p string) { writeFile(t, p, version) }, false, ErrBadHeader},
		"directory":   {func(t *testing.T, p string) { must(t, os.Mkdir(p, 0o700)) }, false, ErrBadHeader},
		"dangling":    {func(t *testing.T, p string) { must(t, os.Symlink("nowhere", p)) }, false, ErrBadHeader},
		"header only": {func(t *testing.T, p string) { writeFile(t, p, whole()[:headerSize]) }, true, ErrBadRecord},
		"odd size":    {func(t *testing.T, p string) { writeFile(t, p, whole()[:headerSize+1500]) }, true, ErrBadRecord},
		"too long":    {func(t *testing.T, p string) { writeFile(t, p, append(whole(), 1, 2, 3)) }, true, nil},
		"mark":        {func(t *testing.T, p string) { b := whole(); b[offIDMark] = 9; writeFile(t, p, b) }, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, holdsPath(dir))
			w := openWriter(t, dir)
			problems := w.Problems()
			if len(problems) == 0 || c.reason != nil && !errors.Is(problems[0], c.reason) || !strings.Contains(problems[0].Error(), holdsPath(dir)) {
				t.Errorf("problems %v, want %v", problems, c.reason)
			}
			entries, err := os.ReadDir(dir)
			must(t, err)
			broken := 0
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), FileName+".broken-") {
					broken++
				}
			}
			if (broken == 0) != c.kept {
				t.Errorf("%d files renamed, file kept: %v", broken, c.kept)
			}
			put(t, w, 1)
			r := openReader(t, dir)
			if _, ok := r.Held("uid-1"); !ok || r.Problem() != nil {
				t.Errorf("a new hold: %v, problem %v", ok, r.Problem())
			}
			if st, err := os.Stat(holdsPath(dir)); err != nil || st.Size() != fileSize {
				t.Errorf("file: %v, %v", st, err)
			}
		})
	}
}

// The writer was killed between writing the changed copy and clearing the old.
func TestTwoCopiesOfOneRecord(t *testing.T) {
	for name, newerFirst := range map[string]bool{"newer first": true, "newer last": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := openWriter(t, dir)
			must(t, w.Close())
			old, changed := sample(5), sample(5)
			changed.State = Released
			b := readFile(t, dir)
			at, then := slotOffset(3), slotOffset(7)
			if newerFirst {
				at, then = then, at
			}
			copy(b[at:], encoded(t, old, 4))
			copy(b[then:], encoded(t, changed, 5))
			writeFile(t, holdsPath(dir), b)

			r := openReader(t, dir)
			if all := r.All(); len(all) != 1 || all[0] != changed || r.Problem() != nil {
				t.Errorf("reader: %+v, %v", all, r.Problem())
			}
			w = openWriter(t, dir)
			if all := w.Records(); len(all) != 1 || all[0] != changed || len(w.Problems()) != 0 {
				t.Errorf("writer: %+v, %v", all, w.Problems())
			}
			must(t, w.Remove(5))
			if all := r.All(); len(all) != 0 {
				t.Errorf("the older copy came back: %+v", all)
			}
		})
	}
}
