package systemd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// scripts runs the units' scripts on a run directory of its own, with a systemctl
// that only notes how it was called.
type scripts struct {
	t           *testing.T
	run, called string
	env         []string
}

func newScripts(t *testing.T) *scripts {
	t.Helper()
	dir := t.TempDir()
	s := &scripts{t: t, run: filepath.Join(dir, "run"), called: filepath.Join(dir, "called")}
	bin := filepath.Join(dir, "bin")
	for _, d := range []string{s.run, bin} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fake := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%q\n", s.called)
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CRI_EVICTD_RUN_DIR="+s.run)
	return s
}

func (s *scripts) script(result string, args ...string) {
	s.t.Helper()
	cmd := exec.Command("sh", args...)
	cmd.Env = append(s.env, "SERVICE_RESULT="+result)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%q: %v\n%s", args, err, out)
	}
}

func (s *scripts) file(name string) string {
	b, err := os.ReadFile(filepath.Join(s.run, name))
	if err != nil {
		return ""
	}
	return string(b)
}

// starts is how often the bypass was started.
func (s *scripts) starts() int {
	b, err := os.ReadFile(s.called)
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "start --no-block "+BypassUnit)
}

func uptime(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	whole, _, _ := strings.Cut(string(b), ".")
	n, err := strconv.Atoi(whole)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFifthFailureWithinAMinuteStartsTheBypass(t *testing.T) {
	s := newScripts(t)
	for i := 1; i <= 4; i++ {
		s.script("signal", "proxy-stopped")
		s.script("success", "proxy-stopped") // a clean stop is none
		if got := strings.Count(s.file("failures"), "\n"); got != i || s.starts() != 0 {
			t.Fatalf("after %d failures: %d counted, %d starts", i, got, s.starts())
		}
	}
	s.script("watchdog", "proxy-stopped")
	if s.starts() != 1 || s.file("failures") != "" {
		t.Errorf("%d starts, left %q", s.starts(), s.file("failures"))
	}
}

func TestOldFailuresAndGarbageDoNotCount(t *testing.T) {
	s := newScripts(t)
	now := uptime(t)
	// Of another boot, of a minute ago, of something else, and three of just now.
	text := fmt.Sprintf("%d\n%d\n%d\n-3\nx y\n\n%d\n%d\n%d\n", now+1000, now-60, now-4000, now, now-1, now-50)
	if err := os.WriteFile(filepath.Join(s.run, "failures"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if now < 4000 {
		t.Log("the machine is young: one of the lines is negative")
	}
	s.script("exit-code", "proxy-stopped")
	if got := strings.Count(s.file("failures"), "\n"); got != 4 || s.starts() != 0 {
		t.Errorf("%d counted, %d starts: %q", got, s.starts(), s.file("failures"))
	}
	s.script("exit-code", "proxy-stopped")
	if s.starts() != 1 {
		t.Errorf("%d starts", s.starts())
	}
}

// Whatever is in the run directory, the fifth failure starts the bypass.
func TestNothingInTheRunDirectoryKeepsTheBypassFromStarting(t *testing.T) {
	now := uptime(t)
	recent := strings.Repeat(fmt.Sprintln(now), 4)
	for name, text := range map[string]string{
		"octal":      "08\n" + recent,
		"long":       "99999999999999999999\n" + recent,
		"no newline": "\x00\x00" + strings.Repeat("x", 100) + "\n" + recent + "7",
		"huge":       recent + strings.Repeat(fmt.Sprintln(now), 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripts(t)
			if err := os.WriteFile(filepath.Join(s.run, "failures"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.script("signal", "proxy-stopped")
			if s.starts() != 1 {
				t.Errorf("%d starts", s.starts())
			}
		})
	}
	for name, link := range map[string]string{"folder": "", "link to nowhere": "nowhere/at/all"} {
		t.Run(name, func(t *testing.T) {
			s := newScripts(t)
			for _, f := range []string{"failures", "failures.part", "bypassed"} {
				path := filepath.Join(s.run, f)
				err := os.MkdirAll(filepath.Join(path, "x"), 0o755)
				if link != "" {
					err = errors.Join(err, os.RemoveAll(path), os.Symlink(link, path))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for range 5 {
				s.script("signal", "proxy-stopped")
			}
			s.script("", "bypassed", "begin")
			if _, err := strconv.Atoi(strings.TrimSpace(s.file("bypassed"))); s.starts() != 1 || err != nil {
				t.Errorf("%d starts, since %q", s.starts(), s.file("bypassed"))
			}
		})
	}
}

func TestBypassCanBeTurnedOff(t *testing.T) {
	s := newScripts(t)
	s.env = append(s.env, "CRI_EVICTD_BYPASS_AFTER=0")
	for range 8 {
		s.script("core-dump", "proxy-stopped")
	}
	if s.starts() != 0 {
		t.Errorf("%d starts", s.starts())
	}
}

func TestBypassNotesItsBeginning(t *testing.T) {
	s := newScripts(t)
	s.script("", "bypassed", "begin")
	began := s.file("bypassed")
	if n, err := strconv.Atoi(strings.TrimSpace(began)); err != nil || n > uptime(t) {
		t.Fatalf("noted %q", began)
	}
	if err := os.WriteFile(filepath.Join(s.run, "bypassed"), []byte("5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.script("signal", "bypassed", "end") // the relay was killed and comes back
	s.script("", "bypassed", "begin")
	if got := s.file("bypassed"); got != "5\n" {
		t.Errorf("a restart of the relay makes it %q", got)
	}
	s.script("success", "bypassed", "end")
	if got := s.file("bypassed"); got != "" {
		t.Errorf("after the end: %q", got)
	}
}
