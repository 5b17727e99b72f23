package holds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// ledgerBytes is a ledger with every bucket in use, several pages in size.
func ledgerBytes(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "l")
	l := openLedger(t, path)
	var records []Record
	for id := uint64(1); id <= 40; id++ {
		records = append(records, sample(id))
	}
	must(t, l.Save(records))
	must(t, l.SetRepeat("u", 1, time.Unix(1, 0)))
	must(t, l.AppendDecision(1, []byte(`"`+strings.Repeat("x", 5000)+`"`)))
	must(t, l.SetBootID("boot"))
	must(t, l.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// use reads and changes everything; whatever the file was, that must work.
func use(t testing.TB, l *Ledger) {
	t.Helper()
	_, _, _ = l.Load()
	_, _ = l.Decisions(1 << 30)
	_, _ = l.Repeats()
	_, _ = l.LastID()
	must(t, l.Save([]Record{sample(77)}))
	must(t, l.AppendDecision(78, []byte("{}")))
	must(t, l.SetRepeat("again", 2, time.Unix(1, 0)))
	must(t, l.SetBootID("other"))
	if got := ids(loaded(t, l)); !reflect.DeepEqual(got, []uint64{77}) {
		t.Errorf("holds %v after saving 77", got)
	}
}

func corruptFiles(t testing.TB, path string) int {
	t.Helper()
	found, err := filepath.Glob(path + ".corrupt-*")
	must(t, err)
	return len(found)
}

func TestDamagedLedgerIsReplaced(t *testing.T) {
	whole := ledgerBytes(t)
	meta, err := findBoltMeta(bytes.NewReader(whole), int64(len(whole)))
	must(t, err)
	page := int(meta.pageSize)
	inUse := int(meta.high) * page
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, len(whole))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	change := func(f func(b []byte)) []byte { b := bytes.Clone(whole); f(b); return b }
	damaged := map[string][]byte{
		"noise":         noise,
		"short noise":   noise[:100],
		"empty":         {},
		"text":          []byte("not a database\n"),
		"zeros":         make([]byte, len(whole)),
		"no meta pages": change(func(b []byte) { clear(b[:2*page]) }),
		"freelist":      change(func(b []byte) { clear(b[int(meta.freelist)*page:][:page]) }),
		"root":          change(func(b []byte) { copy(b[int(meta.root)*page:][:page], noise) }),
		"root id":       change(func(b []byte) { b[int(meta.root)*page]++ }),
		"root overflow": change(func(b []byte) { binary.LittleEndian.PutUint32(b[int(meta.root)*page+12:], 1<<31) }),
		"root count":    change(func(b []byte) { binary.LittleEndian.PutUint16(b[int(meta.root)*page+10:], 0xffff) }),
		"free count":    change(func(b []byte) { binary.LittleEndian.PutUint16(b[int(meta.freelist)*page+10:], 0xffff) }),
		"loop":          change(func(b []byte) { makeLoop(b, int(meta.root)*page, meta.root) }),
	}
	// Ends inside and at the edge of every page in use: bbolt itself would
	// open most of these and end with SIGBUS later.
	for n := page / 2; n < inUse; n += page / 2 {
		damaged[fmt.Sprintf("%d bytes", n)] = whole[:n]
	}
	damaged["one byte short"] = whole[:inUse-1]
	for name, b := range damaged {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "l")
			writeFile(t, path, b)
			l := openLedger(t, path)
			if err := l.Recovered(); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), path+".corrupt-") {
				t.Errorf("Recovered() = %v", err)
			}
			if corruptFiles(t, path) != 1 {
				t.Errorf("%d renamed files, want 1", corruptFiles(t, path))
			}
			if got := loaded(t, l); len(got) != 0 {
				t.Errorf("holds %v", ids(got))
			}
			use(t, l)
			must(t, l.Close())
			if l := openLedger(t, path); l.Recovered() != nil || len(loaded(t, l)) != 1 {
				t.Errorf("the new ledger does not open again: %v", l.Recovered())
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "l")
		must(t, os.Mkdir(path, 0o700))
		l := openLedger(t, path)
		if l.Recovered() == nil {
			t.Error("nothing is said of it")
		}
		use(t, l)
	})
}

// makeLoop turns the page at off into a branch that leads to itself: bbolt
// would follow it until the memory is gone.
func makeLoop(b []byte, off int, id uint64) {
	binary.LittleEndian.PutUint16(b[off+8:], boltBranch)
	binary.LittleEndian.PutUint16(b[off+10:], 1)
	element := b[off+boltPageHeader:]
	binary.LittleEndian.PutUint32(element[0:], boltElement)
	binary.LittleEndian.PutUint32(element[4:], 1)
	binary.LittleEndian.PutUint64(element[8:], id)
}

// One meta page is enough, as after a power cut in the middle of writing the
// other: the transaction before counts.
func TestLedgerWithOneMetaPage(t *testing.T) {
	whole := ledgerBytes(t)
	meta, err := findBoltMeta(bytes.NewReader(whole), int64(len(whole)))
	must(t, err)
	for n := range 2 {
		b := bytes.Clone(whole)
		clear(b[n*int(meta.pageSize)+20:][:30])
		path := filepath.Join(t.TempDir(), "l")
		writeFile(t, path, b)
		l := openLedger(t, path)
		if l.Recovered() != nil || len(loaded(t, l)) != 40 {
			t.Errorf("without meta page %d: %v, %d holds", n, l.Recovered(), len(loaded(t, l)))
		}
		use(t, l)
	}
}

// The file loses its pages while it is mapped: that is SIGBUS in bbolt.
func TestLedgerCutWhileOpen(t *testing.T) {
	whole := ledgerBytes(t)
	for _, size := range []int64{0, 4096, 8192, 5000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "l")
			writeFile(t, path, whole)
			l := openLedger(t, path)
			must(t, os.Truncate(path, size))
			if _, _, err := l.Load(); !errors.Is(err, errDamaged) {
				t.Errorf("Load: %v, want damage", err)
			}
			if _, err := l.Decisions(1); !errors.Is(err, errDamaged) {
				t.Errorf("Decisions: %v, want damage", err)
			}
			use(t, l)
			if l.Recovered() == nil || corruptFiles(t, path) != 1 {
				t.Errorf("Recovered() = %v, %d renamed files", l.Recovered(), corruptFiles(t, path))
			}
		})
		t.Run(fmt.Sprintf("%d, noticed by a change", size), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "l")
			writeFile(t, path, whole)
			l := openLedger(t, path)
			must(t, os.Truncate(path, size))
			must(t, l.AppendDecision(5, []byte("5")))
			if got, err := l.Decisions(9); err != nil || fmt.Sprintf("%s", got) != "[5]" {
				t.Errorf("decisions %s, %v", got, err)
			}
			must(t, os.Truncate(path, size))
			must(t, l.Close()) // also of a damaged one
		})
	}
}

func FuzzCheckBolt(f *testing.F) {
	whole := ledgerBytes(f)
	whole = whole[:min(len(whole), 64<<10)]
	f.Add(whole, uint32(0), uint64(0))
	f.Add(whole, uint32(4096*3+8), uint64(boltBranch))
	f.Add(whole[:4096], uint32(0), uint64(0))
	f.Add([]byte{}, uint32(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, at uint32, v uint64) {
		if n := int64(at); n+8 <= int64(len(b)) {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint64(b[n:], v)
		}
		if err := checkBoltPages(bytes.NewReader(b), int64(len(b))); err != nil && !errors.Is(err, errDamaged) {
			t.Fatalf("not a damage: %v", err)
		}
	})
}

// Eight bytes anywhere in a ledger are changed: opening and using it ends, and
// without a panic.
func FuzzLedgerFile(f *testing.F) {
	whole := ledgerBytes(f)
	for at := uint32(0); int(at) < len(whole); at += 1024 + 8 {
		f.Add(at, uint64(0xffffffffffffffff))
	}
	f.Add(uint32(4096*3+16), uint64(3))
	f.Fuzz(func(t *testing.T, at uint32, v uint64) {
		b := bytes.Clone(whole)
		binary.LittleEndian.PutUint64(b[int(at)%(len(b)-8):], v)
		path := filepath.Join(t.TempDir(), "l")
		writeFile(t, path, b)
		use(t, openLedger(t, path))
	})
}
