package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseVMStat(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     VMStat
		why      error
		field    string
	}{
		{"both", "a 1\npgscan_kswapd 2\npgscan_direct 3\npgscan_direct_throttle 4\n", VMStat{3, 2}, nil, ""},
		{"without kswapd", "pgscan_direct 3\n", VMStat{3, 0}, nil, ""},
		{"CRLF", "pgscan_kswapd 2\r\npgscan_direct 3\r\n", VMStat{3, 2}, nil, ""},
		{"largest", "pgscan_direct 18446744073709551615\n", VMStat{1<<64 - 1, 0}, nil, ""},
		{"old kernel counts per zone", "pgscan_direct_normal 3\npgscan_direct_throttle 1\n", VMStat{}, ErrAbsent, ""},
		{"empty", "", VMStat{}, ErrAbsent, ""},
		{"negative", "pgscan_direct -3\n", VMStat{}, errNotNumber, "pgscan_direct"},
		{"more words", "pgscan_direct 3 4\n", VMStat{}, errNotNumber, "pgscan_direct"},
		{"nothing", "pgscan_kswapd\n", VMStat{}, errNotNumber, "pgscan_kswapd"},
		{"cut", "pgscan_kswapd 2\npgscan_direct 3", VMStat{}, errCut, "pgscan_direct"},
	} {
		v := VMStat{PgscanDirect: 99, PgscanKswapd: 99}
		err := ParseVMStat([]byte(tc.in), &v)
		if !errors.Is(err, tc.why) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.why)
		}
		if err == nil && v != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, v, tc.want)
		}
		var b *BrokenError
		if errors.As(err, &b) != (tc.field != "") || tc.field != "" && b.Field != tc.field {
			t.Errorf("%s: %v, want field %q", tc.name, err, tc.field)
		}
	}
}

// /proc/vmstat answers one page at a time, and the fields are beyond the first
// page on large kernels.
func TestVMStatReaderReadsToTheEnd(t *testing.T) {
	root := t.TempDir()
	writeFile(t, strings.Repeat("nr_something 12345\n", 1000)+"pgscan_direct 7\n", root, "vmstat")
	r, err := (&FS{roots: Roots{Proc: root}}).OpenVMStat()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	var v VMStat
	if err := r.Read(&v); err != nil || v.PgscanDirect != 7 {
		t.Errorf("%+v, %v", v, err)
	}
	writeFile(t, "pgscan_direct x\n", root, "vmstat")
	var b *BrokenError
	if err := r.Read(&v); !errors.As(err, &b) || b.Path != filepath.Join(root, "vmstat") {
		t.Errorf("broken: %v", err)
	}
}

func TestOpenVMStatMissing(t *testing.T) {
	if _, err := (&FS{roots: Roots{Proc: t.TempDir()}}).OpenVMStat(); !errors.Is(err, ErrAbsent) {
		t.Errorf("got %v", err)
	}
}

func TestVMStatOfThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/vmstat"); err != nil {
		t.Skip("no /proc/vmstat here")
	}
	r, err := (&FS{roots: Roots{Proc: "/proc"}}).OpenVMStat()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	var first, second VMStat
	if err := r.Read(&first); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(&second); err != nil || second.PgscanDirect < first.PgscanDirect {
		t.Errorf("%+v then %+v, %v", first, second, err)
	}
}
