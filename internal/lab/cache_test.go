package lab

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func writeTool(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755)
}

func TestCacheBuildsOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "not", "there", "yet")
	var built atomic.Int32
	fill := func(_ context.Context, dir string) error {
		built.Add(1)
		return writeTool(dir, "tool")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // each its own cache, as different processes have
			dir, err := cache{root: root, log: io.Discard}.unit(t.Context(), "unit", []string{"tool"}, fill)
			if err != nil || dir != filepath.Join(root, "unit") {
				t.Errorf("unit: %q, %v", dir, err)
			}
		})
	}
	wg.Wait()
	if n := built.Load(); n != 1 {
		t.Errorf("built %d times by 8 at once; want once", n)
	}
	wantNoParts(t, root)
}

func wantNoParts(t *testing.T, root string) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(root, ".part-*"))
	if err != nil || len(parts) > 0 {
		t.Errorf("unfinished folders %q, %v; want none", parts, err)
	}
}

func TestCacheFailedBuild(t *testing.T) {
	c := cache{root: t.TempDir(), log: io.Discard}
	boom := errors.New("boom")
	tests := []struct {
		name string
		fill func(context.Context, string) error
		want string
	}{
		{"builder fails", func(_ context.Context, dir string) error {
			return errors.Join(writeTool(dir, "tool"), boom)
		}, "boom"},
		{"builder makes something else", func(_ context.Context, dir string) error {
			return writeTool(dir, "other")
		}, "tool is not there"},
		{"not executable", func(_ context.Context, dir string) error {
			return os.WriteFile(filepath.Join(dir, "tool"), []byte("x"), 0o644)
		}, "tool is not there"},
	}
	for _, tt := range tests {
		_, err := c.unit(t.Context(), "unit", []string{"tool"}, tt.fill)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		if isDir(filepath.Join(c.root, "unit")) {
			t.Errorf("%s: the unit is there", tt.name)
		}
		wantNoParts(t, c.root)
	}
	good := func(_ context.Context, dir string) error { return writeTool(dir, "tool") }
	if _, err := c.unit(t.Context(), "unit", []string{"tool"}, good); err != nil {
		t.Errorf("after failures: %v", err)
	}
}

// A builder was killed, and somebody has deleted a file of a finished unit.
func TestCacheRepairs(t *testing.T) {
	c := cache{root: t.TempDir(), log: io.Discard}
	for _, dir := range []string{"unit", ".part-unit-123"} {
		if err := os.Mkdir(filepath.Join(c.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeTool(filepath.Join(c.root, dir), "old"); err != nil {
			t.Fatal(err)
		}
	}
	good := func(_ context.Context, dir string) error { return writeTool(dir, "tool") }
	dir, err := c.unit(t.Context(), "unit", []string{"tool"}, good)
	if err != nil || !complete(dir, []string{"tool"}) || complete(dir, []string{"old"}) {
		t.Errorf("unit %q, %v; want it built anew", dir, err)
	}
	wantNoParts(t, c.root)
}

func TestCacheLockEndsWithContext(t *testing.T) {
	c := cache{root: t.TempDir(), log: io.Discard}
	unlock, err := c.lock(t.Context(), "unit")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cache{root: c.root, log: &log}.unit(ctx, "unit", []string{"tool"}, func(context.Context, string) error {
		t.Error("built without the lock")
		return nil
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(log.String(), "waiting") {
		t.Errorf("%v, log %q; want context.Canceled and a line that it waits", err, log.String())
	}
}

func TestCacheRoot(t *testing.T) {
	tests := []struct {
		name            string
		env, xdg, home  string
		want, wantError string
	}{
		{name: "by variable", env: "/some/where/", home: "/home/u", want: "/some/where"},
		{name: "relative", env: "cache", home: "/home/u", wantError: "absolute"},
		{name: "user's", home: "/home/u", want: "/home/u/.cache/cri-evictd"},
		{name: "xdg", home: "/home/u", xdg: "/x", want: "/x/cri-evictd"},
		{name: "no home", want: "/var/cache/cri-evictd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(cacheEnv, tt.env)
			t.Setenv("XDG_CACHE_HOME", tt.xdg)
			t.Setenv("HOME", tt.home)
			got, err := cacheRoot()
			if got != tt.want || (err != nil) != (tt.wantError != "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), tt.wantError) {
				t.Errorf("%v; want %q", err, tt.wantError)
			}
		})
	}
}

// What a host lacks is named, and nothing is half done.
func TestEnsureOnABareHost(t *testing.T) {
	root := t.TempDir()
	t.Setenv(cacheEnv, root)
	t.Setenv("PATH", t.TempDir())
	_, err := Ensure(t.Context(), io.Discard, Current)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "apt-get") {
		t.Errorf("Ensure without apt-get: %v; want ErrUnsupported that names it", err)
	}
	wantNoParts(t, root)
}

func TestEnsureUnknownVersion(t *testing.T) {
	t.Setenv(cacheEnv, t.TempDir())
	if _, err := Ensure(t.Context(), io.Discard, "1.5"); err == nil || !strings.Contains(err.Error(), `"2.4"`) {
		t.Errorf("Ensure(1.5): %v; want an error that lists the versions", err)
	}
}
