package cgroupfs

import (
	"errors"
	"testing"
)

func TestParseUint(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want uint64
		ok   bool
	}{
		{"0", 0, true},
		{"007", 7, true},
		{"18446744073709551615", 1<<64 - 1, true},
		{"18446744073709551616", 0, false},
		{"99999999999999999999", 0, false},
		{"", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{" 1", 0, false},
		{"1 ", 0, false},
		{"0x10", 0, false},
		{"max", 0, false},
	} {
		got, ok := parseUint([]byte(tc.in))
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("%q: %d %v, want %d %v", tc.in, got, ok, tc.want, tc.ok)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want uint64
		why  error
	}{
		{"123\n", 123, nil},
		{"123\r\n", 123, nil},
		{"123", 123, nil},
		{"4611686018427387903\n", 1<<62 - 1, nil},
		{"4611686018427387904\n", 0, errAbsurd},
		{"18446744073709551615\n", 0, errAbsurd},
		{"max\n", 0, errNotNumber},
		{"\n", 0, errNotNumber},
		{"1\n2\n", 0, errNotNumber},
	} {
		got, err := parseBytes("/f", "", []byte(tc.in))
		if got != tc.want || !errors.Is(err, tc.why) {
			t.Errorf("%q: %d %v, want %d %v", tc.in, got, err, tc.want, tc.why)
		}
	}
}
