package cri

import (
	"errors"
	"strings"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	longest := "/" + strings.Repeat("x", MaxSocketPath-1)
	tests := []struct{ in, want, reason string }{
		{"unix:///run/x.sock", "/run/x.sock", ""},
		{"unix:/run/x.sock", "/run/x.sock", ""},
		{"/run/x.sock", "/run/x.sock", ""},
		{"/run//y/../x.sock", "/run/x.sock", ""},
		{"/run/with space%20?#.sock", "/run/with space%20?#.sock", ""},
		{longest, longest, ""},
		{longest + "x", "", "has 108 bytes, the kernel allows at most 107"},
		{"", "", "it is empty"},
		{"unix://", "", "it is empty"},
		{"unix:", "", "it is empty"},
		{"run/x.sock", "", "must be absolute"},
		{"unix:run/x.sock", "", "must be absolute"},
		{"unix://run/x.sock", "", "write unix:///run/x.sock"},
		{"tcp://127.0.0.1:1", "", `scheme "tcp" is not supported`},
		{"http:///x", "", `scheme "http"`},
		{"npipe:////./pipe/x", "", `scheme "npipe"`},
		{"/", "", "names a directory"},
		{"/run/", "", "names a directory"},
		{"/run/x\x00y", "", "zero byte"},
	}
	for _, tc := range tests {
		got, err := ParseEndpoint("listen", tc.in)
		if tc.reason == "" {
			if err != nil || got.Path != tc.want || got.String() != "unix://"+tc.want {
				t.Errorf("%q: got %q, %v", tc.in, got, err)
			}
			continue
		}
		var bad *EndpointError
		if !errors.As(err, &bad) || bad.Field != "listen" || bad.Value != tc.in || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%q: got %v", tc.in, err)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"unix:///a", "unix:/a", "/a", "a", "tcp://a", "unix://a/b", "/a/../..", "/\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint("x", s)
		if err != nil {
			return
		}
		if e.Path[0] != '/' || len(e.Path) > MaxSocketPath || e.Path == "/" {
			t.Fatalf("%q became %q", s, e.Path)
		}
		for _, again := range []string{e.String(), e.Path, "unix:" + e.Path} {
			if got, err := ParseEndpoint("x", again); err != nil || got != e {
				t.Fatalf("%q: %v %v", again, got, err)
			}
		}
	})
}
