package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func TestHandBackComesLaterEachTimeItWasTooEarly(t *testing.T) {
	var got []time.Duration
	for times := range 7 {
		got = append(got, handBackAfter(times)/time.Minute)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 16, 16}; !slices.Equal(got, want) {
		t.Errorf("minutes %d, want %d", got, want)
	}
	now := 2 * time.Hour
	moments := []time.Duration{time.Minute, now - handBackMemory, now - time.Minute, now, now + time.Second}
	if got := recent(moments, now, handBackMemory); len(got) != 2 {
		t.Errorf("recent %s", got)
	}
}

func TestMomentsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "moments")
	if got, err := readMoments(path); err != nil || got != nil {
		t.Errorf("no file: %s, %v", got, err)
	}
	if err := writeMoments(path, []time.Duration{3 * time.Second, 1500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if got, err := readMoments(path); err != nil || !slices.Equal(got, []time.Duration{3 * time.Second, time.Second}) {
		t.Errorf("%s, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("x\n-4\n7\n99999999999999999999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readMoments(path); err != nil || !slices.Equal(got, []time.Duration{7 * time.Second}) {
		t.Errorf("garbage: %s, %v", got, err)
	}
}

// What keeps a hand-back from being made, none of which needs systemd.
func TestNoHandBack(t *testing.T) {
	dir := t.TempDir()
	say := func() string {
		t.Helper()
		code, out, errOut := command(t, "bypass", "off", "--when-well", "--run-dir", dir)
		if code != exitOK {
			t.Errorf("exit %d: %s", code, errOut)
		}
		return out
	}
	if out := say(); out != "there is no bypass\n" {
		t.Errorf("%q", out)
	}
	now, err := sinceBoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeMoments(filepath.Join(dir, bypassedFile), []time.Duration{now - 5*time.Second}); err != nil {
		t.Fatal(err)
	}
	if out := say(); !strings.HasPrefix(out, "not before ") {
		t.Errorf("%q", out)
	}
	if err := os.WriteFile(filepath.Join(dir, byHandFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := say(); !strings.Contains(out, "by hand") {
		t.Errorf("%q", out)
	}
}

// Notes that are damaged, or of another time, do not make a bypass last for ever.
func TestDamagedNotesDoNotKeepTheBypass(t *testing.T) {
	// The proxy on trial is this test's own program, with a configuration that ends it.
	t.Setenv(asMain, "1")
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("mode: no\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now, err := sinceBoot()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(firstHandBack - now) // of a machine that was only just started
	for name, text := range map[string]string{
		"empty": "", "garbage": "x\n-3\n", "the future": "1999999999\n", "huge": strings.Repeat("x", 1<<20) + "\n", "folder": "/",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, bypassedFile)
			err := os.WriteFile(path, []byte(text), 0o600)
			if text == "/" {
				err = errors.Join(os.Remove(path), os.Mkdir(path, 0o755), os.Mkdir(filepath.Join(dir, episodesFile), 0o755))
			}
			if err != nil {
				t.Fatal(err)
			}
			code, out, errOut := command(t, "--config", config, "bypass", "off", "--when-well", "--run-dir", dir)
			if code != exitProblem || !strings.Contains(errOut, "the proxy is not well yet") {
				t.Errorf("exit %d, %q, %q", code, out, errOut)
			}
		})
	}
}

func TestTrialCalls(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.serve("")
	begun := time.Now()
	if err := tryCalls(t.Context(), cri.Endpoint{Path: n.path("cri.sock")}); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took < trialFor {
		t.Errorf("tried for %s only", took)
	}
	if calls := len(n.runtime.Calls("ListPodSandbox")); calls < 10 {
		t.Errorf("%d calls", calls)
	}
	n.runtime.Inject("ListContainers", fakecri.Fault{Hang: true})
	begun = time.Now()
	if err := tryCalls(t.Context(), cri.Endpoint{Path: n.path("cri.sock")}); err == nil {
		t.Error("a proxy that does not answer is well")
	}
	if took := time.Since(begun); took > 6*trialCall {
		t.Errorf("tried for %s", took)
	}
}

// The bypass learns where the runtime is from a file that the proxy keeps.
func TestRuntimeIsNotedForTheBypass(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.serve("")
	want := "CRI_EVICTD_RUNTIME_SOCKET=" + n.path("rt/cri.sock") + "\n"
	eventually(t, "the file is there", func() bool {
		b, err := os.ReadFile(n.path("run/" + runtimeFile))
		return err == nil && string(b) == want
	})
	eventually(t, "status tells of a bypass", func() bool {
		if err := os.WriteFile(n.path("run/"+bypassedFile), []byte("5\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, _ := command(t, "status", "--admin-socket", n.path("admin.sock"))
		return code == exitProblem && strings.Contains(out, "problem: calls go past the proxy")
	})
}
