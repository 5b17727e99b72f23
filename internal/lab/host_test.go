package lab

import (
	"strings"
	"testing"
)

func TestParseMajor(t *testing.T) {
	tests := []struct {
		out  string
		want int // 0: an error
	}{
		{"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n", 1},
		{"containerd github.com/containerd/containerd/v2 2.4.2+unknown \n", 2},
		{"containerd github.com/containerd/containerd v1.7.24 rev", 1},
		{"containerd x 3.0.0", 0}, {"containerd x", 0}, {"", 0}, {"containerd x y z", 0},
	}
	for _, tt := range tests {
		got, err := parseMajor(tt.out)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("parseMajor(%q) = %d, %v; want %d", tt.out, got, err, tt.want)
		}
	}
}

func FuzzParseMajor(f *testing.F) {
	for _, s := range []string{"containerd m 1.6.20~ds1 r", "a b v2.", "a b -1.2", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseMajor(s); err == nil && n != 1 && n != 2 {
			t.Errorf("%q: %d", s, n)
		}
	})
}

func TestParseCapEff(t *testing.T) {
	got, err := parseCapEff([]byte("Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t000001fffeffffff\nCapBnd:\t0\n"))
	if err != nil || got != 0x1fffeffffff {
		t.Errorf("%#x, %v; want 0x1fffeffffff", got, err)
	}
	for _, bad := range []string{"", "CapPrm:\t1\n", "CapEff:\tzz\n", "CapEff:"} {
		if _, err := parseCapEff([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzParseCapEff(f *testing.F) {
	f.Add([]byte("CapEff:\t000001fffeffffff\n"))
	f.Add([]byte("CapEff:"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := parseCapEff(b); err == nil && !strings.Contains(string(b), "CapEff:") {
			t.Errorf("%q: accepted", b)
		}
	})
}

func TestReleaseName(t *testing.T) {
	tests := []struct{ release, want string }{
		{"PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n", "debian12"},
		{"ID=ubuntu\nVERSION_ID=\"24.04\"\nID_LIKE=debian\n", "ubuntu24.04"},
		{"ID=debian\n", "debian"}, // sid
		{"ID=\"../../x\"\n", "....x"},
		{"", "unknown"},
	}
	for _, tt := range tests {
		if got := releaseName(tt.release); got != tt.want {
			t.Errorf("releaseName(%q) = %q; want %q", tt.release, got, tt.want)
		}
	}
}

func FuzzReleaseName(f *testing.F) {
	f.Add("ID=debian\nVERSION_ID=\"12\"\n")
	f.Add("ID=/../\nVERSION_ID='é'")
	f.Fuzz(func(t *testing.T, s string) {
		if got := releaseName(s); got == "" || strings.ContainsAny(got, "/\x00 -") {
			t.Errorf("releaseName(%q) = %q: not for a file name", s, got)
		}
	})
}
