package cgroupfs

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestErrorsAreKeptApart(t *testing.T) {
	if errors.Is(ErrGone, ErrAbsent) || errors.Is(ErrAbsent, ErrGone) {
		t.Error("ErrGone and ErrAbsent must not match each other")
	}
	var err error = &BrokenError{Path: "/p", Err: io.ErrUnexpectedEOF}
	if errors.Is(err, ErrAbsent) || errors.Is(err, ErrGone) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v: a broken file matches only its own reason", err)
	}
}

func TestBrokenErrorText(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, tc := range []struct {
		name string
		err  *BrokenError
		want string
	}{
		{"all", broken("/proc/meminfo", "MemTotal", []byte("ab\x00c"), errNotNumber), `/proc/meminfo: MemTotal: "ab\x00c": not a number`},
		{"no field", broken("/f", "", []byte("-1"), errNotNumber), `/f: "-1": not a number`},
		{"missing", broken("", "MemTotal", nil, errMissing), `input: MemTotal: field is missing`},
		{"cut", broken("/f", "", []byte(long), errNotNumber), `/f: "` + long[:64] + `": not a number`},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestInFileNamesThePath(t *testing.T) {
	err := inFile("/proc/meminfo", broken("", "MemTotal", nil, errMissing))
	var b *BrokenError
	if !errors.As(err, &b) || b.Path != "/proc/meminfo" || b.Field != "MemTotal" {
		t.Errorf("got %#v", err)
	}
	if err := inFile("/proc/vmstat", ErrAbsent); !errors.Is(err, ErrAbsent) || err.Error() != "/proc/vmstat: "+ErrAbsent.Error() {
		t.Errorf("got %v", err)
	}
}
