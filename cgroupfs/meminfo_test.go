package cgroupfs

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kB = uint64(1024)

func TestParseMeminfoFields(t *testing.T) {
	text := "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\nBuffers: 3 kB\nCached: 4 kB\nSwapCached: 5 kB\n" +
		"Active: 77 kB\nActive(anon): 77 kB\nActive(file): 6 kB\nInactive(file): 7 kB\nAnonPages: 8 kB\nShmem: 9 kB\n" +
		"SwapTotal: 10 kB\nSwapFree: 11 kB\nHugetlb: 12 kB\nHugePages_Total: 13\nHugepagesize: 14 kB\nAnonHugePages: 77 kB\n"
	want := Meminfo{
		MemTotal: 100 * kB, MemFree: 1 * kB, MemAvailable: 2 * kB, Buffers: 3 * kB, Cached: 4 * kB, SwapCached: 5 * kB,
		ActiveFile: 6 * kB, InactiveFile: 7 * kB, AnonPages: 8 * kB, Shmem: 9 * kB, SwapTotal: 10 * kB, SwapFree: 11 * kB,
		Hugetlb: 12 * kB, HugePagesTotal: 13, HugePageSize: 14 * kB, HasAvailable: true, HasHugetlb: true, HasKubelet: true,
	}
	for name, in := range map[string]string{"plain": text, "CRLF": strings.ReplaceAll(text, "\n", "\r\n")} {
		got := Meminfo{MemTotal: 999, HasHugetlb: true} // stale contents must not survive
		if err := ParseMeminfo([]byte(in), &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got != want {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
	}
}

func TestParseMeminfoErrors(t *testing.T) {
	const total, avail = "MemTotal: 100 kB\n", "MemAvailable: 50 kB\n"
	for _, tc := range []struct {
		name, in, field string
		why             error
	}{
		{"empty", "", "MemTotal", errMissing},
		{"no MemTotal", avail, "MemTotal", errMissing},
		{"no MemAvailable", total, "MemAvailable", errMissing},
		{"MemTotal zero", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal", errAbsurd},
		{"available above total", total + "MemAvailable: 101 kB\n", "MemAvailable", errAbsurd},
		{"free above total", total + avail + "MemFree: 101 kB\n", "MemFree", errAbsurd},
		{"negative", total + "MemAvailable: -1 kB\n", "MemAvailable", errNotNumber},
		{"a word", total + "MemAvailable: much kB\n", "MemAvailable", errNotNumber},
		{"nothing", total + "MemAvailable:\n", "MemAvailable", errNotNumber},
		{"beyond 64 bits", total + "MemAvailable: 18446744073709551616 kB\n", "MemAvailable", errNotNumber},
		{"another unit", total + "MemAvailable: 50 MB\n", "MemAvailable", errNotNumber},
		{"more words", total + "MemAvailable: 50 kB 1\n", "MemAvailable", errNotNumber},
		{"cut in a number", total + "MemAvailable: 5", "MemAvailable", errCut},
		{"cut in a later field", total + avail + "Cached: 5", "Cached", errCut},
	} {
		var m Meminfo
		err := ParseMeminfo([]byte(tc.in), &m)
		var b *BrokenError
		if !errors.As(err, &b) || b.Field != tc.field || !errors.Is(err, tc.why) {
			t.Errorf("%s: %v, want %s: %v", tc.name, err, tc.field, tc.why)
		}
	}
}

func TestParseMeminfoTolerates(t *testing.T) {
	for name, in := range map[string]string{
		"unknown lines":     "Foo: bar\nno colon\n\nMemTotal: 100 kB\nMemAvailable: 50 kB\nNew(thing): 1 kB\n",
		"cut unknown field": "MemTotal: 100 kB\nMemAvailable: 50 kB\nDirectMap4k: 2048",
		"no unit":           "MemTotal: 102400\nMemAvailable: 51200\n",
		"tabs":              "MemTotal:\t100 kB\t\nMemAvailable:\t50 kB\n",
	} {
		var m Meminfo
		if err := ParseMeminfo([]byte(in), &m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if m.MemTotal != 100*kB || m.MemAvailable != 50*kB {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestMeminfoSaturates(t *testing.T) {
	var m Meminfo
	err := ParseMeminfo([]byte("MemTotal: 18446744073709551615 kB\nMemAvailable: 18446744073709551615 kB\n"), &m)
	if err != nil || m.MemTotal != math.MaxUint64 {
		t.Errorf("total %d, %v", m.MemTotal, err)
	}
	for _, tc := range []struct {
		name string
		m    Meminfo
		want uint64
	}{
		{"inactive above usage", Meminfo{MemTotal: 100, AnonPages: 1, InactiveFile: 50, HasKubelet: true}, 100},
		{"usage above total", Meminfo{MemTotal: 100, AnonPages: 101, HasKubelet: true}, 0},
		{"usage over the top", Meminfo{MemTotal: 100, AnonPages: math.MaxUint64, Cached: 2, HasKubelet: true}, 0},
		{"huge pages above the rest", Meminfo{MemTotal: 100, AnonPages: 60, Hugetlb: 50, HasHugetlb: true, HasKubelet: true}, 0},
		{"huge pages", Meminfo{MemTotal: 100, AnonPages: 20, Hugetlb: 50, HasHugetlb: true, HugePagesTotal: 9, HugePageSize: 9, HasKubelet: true}, 30},
		{"huge pages, old kernel", Meminfo{MemTotal: 100, AnonPages: 20, HugePagesTotal: 5, HugePageSize: 10, HasKubelet: true}, 30},
		{"huge pages over the top", Meminfo{MemTotal: 100, HugePagesTotal: math.MaxUint64, HugePageSize: 2048, HasKubelet: true}, 0},
		{"fields missing", Meminfo{MemTotal: 100, AnonPages: 90, HugePagesTotal: 5, HugePageSize: 10}, 100},
	} {
		if got := tc.m.KubeletAvailable(); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestMeminfoReaderSeesChanges(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "meminfo")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("MemTotal: 100 kB\nMemAvailable: 50 kB\n")
	r, err := (&FS{roots: Roots{Proc: root}}).OpenMeminfo()
	if err != nil {
		t.Fatal(err)
	}
	var m Meminfo
	if err := r.Read(&m); err != nil || m.MemAvailable != 50*kB {
		t.Fatalf("first: %d, %v", m.MemAvailable, err)
	}
	write("MemTotal: 100 kB\nMemAvailable: 40 kB\n")
	if err := r.Read(&m); err != nil || m.MemAvailable != 40*kB {
		t.Fatalf("second: %d, %v", m.MemAvailable, err)
	}
	write("MemTotal: 100 kB\n")
	var b *BrokenError
	if err := r.Read(&m); !errors.As(err, &b) || b.Path != path || b.Field != "MemAvailable" {
		t.Errorf("broken: %v", err)
	}
	write(strings.Repeat("Filler: 1 kB\n", meminfoBuffer/10))
	if err := r.Read(&m); !errors.As(err, &b) || !errors.Is(err, errTooLong) {
		t.Errorf("too long: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Read(&m); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := r.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

func TestOpenMeminfoMissing(t *testing.T) {
	_, err := (&FS{roots: Roots{Proc: t.TempDir()}}).OpenMeminfo()
	var b *BrokenError
	if !errors.As(err, &b) || filepath.Base(b.Path) != "meminfo" {
		t.Errorf("got %v", err)
	}
}
