package cgroupfs

import (
	"errors"
	"slices"
	"testing"
)

func TestParsePopulated(t *testing.T) {
	for in, want := range map[string]bool{
		"populated 1\nfrozen 0\n": true,
		"populated 0\nfrozen 1\n": false,
		"frozen 0\npopulated 1\n": true,
		"populated 1\r\n":         true,
		"new 5\npopulated 0\n":    false,
	} {
		if got, err := parsePopulated([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for in, why := range map[string]error{
		"": errMissing, "frozen 0\n": errMissing, "populatedx 1\n": errMissing,
		"populated\n": errNotNumber, "populated 2\n": errNotNumber, "populated -1\n": errNotNumber, "populated 0 1\n": errNotNumber,
	} {
		if got, err := parsePopulated([]byte(in)); !errors.Is(err, why) {
			t.Errorf("%q: %v, %v, want %v", in, got, err, why)
		}
	}
}

func scanPids(pieces ...string) (pids []int, err error) {
	var s pidScanner
	yield := func(pid int) bool {
		pids = append(pids, pid)
		return true
	}
	for _, p := range append(pieces, "") {
		if _, err := s.feed([]byte(p), yield); err != nil {
			return pids, err
		}
	}
	return pids, nil
}

func TestPidScanner(t *testing.T) {
	for _, tc := range []struct {
		pieces []string
		want   []int
	}{
		{nil, nil},
		{[]string{"1\n22\n333\n"}, []int{1, 22, 333}},
		{[]string{"1\n2", "2\n33", "3\n"}, []int{1, 22, 333}},
		{[]string{"1\n22"}, []int{1, 22}},
		{[]string{"0\n5\n0\n"}, []int{5}}, // of another PID namespace
		{[]string{"4194304\n"}, []int{4194304}},
	} {
		got, err := scanPids(tc.pieces...)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%q: %v, %v", tc.pieces, got, err)
		}
	}
	for _, bad := range []string{"-1\n", "a\n", "\n", "1 2\n", "1\n\n2\n", "1\r\n", "99999999999\n"} {
		if got, err := scanPids(bad); !errors.Is(err, errNotNumber) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}

func TestPidScannerStops(t *testing.T) {
	var s pidScanner
	n := 0
	more, err := s.feed([]byte("1\n2\n3\n"), func(int) bool { n++; return false })
	if more || err != nil || n != 1 {
		t.Errorf("more %v, %v, %d numbers", more, err, n)
	}
}
