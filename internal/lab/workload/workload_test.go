package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	tests := []struct {
		in   string
		want int64 // -1: an error
	}{
		{"0", 0}, {"4096", 4096}, {"1Ki", 1 << 10}, {"512Mi", 512 << 20}, {"3Gi", 3 << 30},
		{"", -1}, {"Mi", -1}, {"-1", -1}, {"1.5Gi", -1}, {"1M", -1}, {"1MiB", -1}, {"1 Mi", -1}, {"0x10", -1},
		{"9223372036854775807", math.MaxInt64}, {"9223372036854775808", -1}, {"9007199254740992Ki", -1},
		{"8589934591Gi", 8589934591 << 30}, {"8589934592Gi", -1},
	}
	for _, tt := range tests {
		got, err := parseSize(tt.in)
		if tt.want < 0 {
			if err == nil {
				t.Errorf("parseSize(%q) = %d; want an error", tt.in, got)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", tt.in, got, err, tt.want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1", "2Ki", "8589934592Gi", "-1", "KiKi"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil && n < 0 {
			t.Errorf("parseSize(%q) = %d", s, n)
		}
	})
}

func TestPacerDue(t *testing.T) {
	start := time.Unix(1000, 0)
	tests := []struct {
		name        string
		total, rate int64
		after       time.Duration
		want        int64
	}{
		{"nothing yet", 1000, 100, 0, 0},
		{"clock went back", 1000, 100, -time.Second, 0},
		{"half a second", 1000, 100, 500 * time.Millisecond, 50},
		{"seconds and a part", 1000, 100, 2500 * time.Millisecond, 250},
		{"just done", 1000, 100, 10 * time.Second, 1000},
		{"long over", 1000, 100, time.Hour, 1000},
		{"at once", 1000, 0, 0, 1000},
		{"faster than total", 10, 1000, time.Second, 10},
		{"no overflow", math.MaxInt64, math.MaxInt64 / 2, 3 * time.Second, math.MaxInt64},
	}
	for _, tt := range tests {
		p := pacer{total: tt.total, rate: tt.rate, start: start}
		if got := p.due(start.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
	}
}

func TestPacerStepsCoverTheTotal(t *testing.T) {
	var at int64
	p := pacer{total: 1 << 20, rate: 64 << 20, start: time.Now()}
	err := p.run(func(done, due int64) error {
		if done != at || due <= done {
			t.Errorf("step from %d to %d after %d", done, due, at)
		}
		at = due
		return nil
	})
	if err != nil || at != 1<<20 {
		t.Errorf("ended at %d, %v; want %d", at, err, 1<<20)
	}
	if err := p.run(func(int64, int64) error { return errEnded }); !errors.Is(err, errEnded) {
		t.Errorf("run: %v; want the step's error", err)
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		args        string
		code        int
		out, errOut string
	}{
		{"", 2, "", "usage:"},
		{"dance", 2, "", `no command "dance"`},
		{"alloc --total 1Q", 2, "", "no size"},
		{"alloc more", 2, "", `unexpected argument "more"`},
		{"pause more", 2, "", "unexpected"}, {"beat more", 2, "", "unexpected"},
		{"exit0 more", 2, "", "unexpected"}, {"ignore-term more", 2, "", "unexpected"},
		{"alloc --total 1Mi --hold=false", 0, "alloc: done, 1048576 bytes", ""},
		{"alloc --hold=false", 0, "", ""},
		{"alloc --total 5000 --rate 1Mi --hold=false", 0, "alloc: done, 5000 bytes", ""}, // no whole pages
		{"write --dir " + dir + " --total 3000000 --rate 100Mi --hold=false", 0, "write: done, 3000000 bytes", ""},
		{"files --dir " + dir + " --count 30 --rate 3000 --hold=false", 0, "files: 30 of 30", ""},
		{"files --dir " + dir + "/gone --count 2 --hold=false", 0, "files: 0 of 2", "no such file"},
		{"write --dir " + dir + "/gone --total 1", 1, "", "no such file"},
		{"flood --file " + dir + "/flood --total 3000001 --passes 2 --hold=false", 0, "flood: pass 2, 3000001 bytes", ""},
		{"flood --file " + dir + "/gone/flood --total 1 --passes 1", 1, "", "no such file"},
		{"flood more", 2, "", "unexpected"},
	}
	for _, tt := range tests {
		var out, errOut bytes.Buffer
		code := run(strings.Fields(tt.args), &out, &errOut)
		if code != tt.code || !strings.Contains(out.String(), tt.out) || !strings.Contains(errOut.String(), tt.errOut) {
			t.Errorf("run(%q) = %d, %q, %q; want %d, %q, %q", tt.args, code, &out, &errOut, tt.code, tt.out, tt.errOut)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "workload.data"))
	if err != nil || info.Size() != 3000000 {
		t.Errorf("written file: %v, %v; want 3000000 bytes", info, err)
	}
}
