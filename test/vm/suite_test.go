package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestParseShare(t *testing.T) {
	for _, tt := range []struct {
		in   string
		ok   bool
		want share
	}{
		{"/a:/b", true, share{host: "/a", mount: "/b"}},
		{"/a:/b:rw", true, share{host: "/a", mount: "/b", write: true}},
		{"/a", false, share{}}, {"", false, share{}}, {":/b", false, share{}}, {"/a:b", false, share{}},
		{"/a:/b:ro", false, share{}}, {"/a:/b:rw:x", false, share{}}, {"/a,b:/b", false, share{}},
	} {
		got, err := parseShare(tt.in)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("%q: %+v, %v", tt.in, got, err)
		}
	}
}

func TestSelectSteps(t *testing.T) {
	got := selectSteps(suite(false), regexp.MustCompile("/(exhaustion|cgroupfs)$"))
	if len(got) != 2 || len(got[0].steps) != 1 || len(got[1].steps) != 1 {
		t.Errorf("%+v", got)
	}
	if got := selectSteps(suite(false), regexp.MustCompile("")); len(got) != len(suite(false)) {
		t.Errorf("%d machines of %d", len(got), len(suite(false)))
	}
}

// Every step names a folder that has tests, and file names that do not collide.
func TestSuite(t *testing.T) {
	files := map[string]bool{}
	for _, m := range append(suite(true), soakSuite(time.Minute)...) {
		for _, s := range m.steps {
			tests, err := filepath.Glob(filepath.Join("../..", s.folder, "*_test.go"))
			if err != nil || len(tests) == 0 {
				t.Errorf("%s: no tests in %s", s.name, s.folder)
			}
			file := filepath.Join(fileName(m.name), fileName(s.name))
			if files[file] || filepath.Clean(file) != file {
				t.Errorf("file %q is there twice, or no name", file)
			}
			files[file] = true
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"dance"}, {"run"}, {"run", "-m", "x", "--", "true"}, {"run", "-m", "1", "--", "true"},
		{"run", "-share", "x", "--", "true"}, {"build", "more"}, {"test", "-only", "("}, {"test", "-only", "nothing has this name"}} {
		var out, errOut bytes.Buffer
		if code := run(context.Background(), args, &out, &errOut); code != exitUsage || errOut.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &errOut)
		}
	}
}

// The guest's files are what the builder and the agent take for granted.
func TestConfigure(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(root, "etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	if err := configure(root); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cri-evictd-vm", "resolv.conf", "systemd/system/evictd-agent.service", "systemd/system/evictd-vm.target"} {
		if info, err := os.Lstat(filepath.Join(root, "etc", name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "etc/systemd/system/default.target")); err != nil || to != "evictd-vm.target" {
		t.Errorf("default.target: %q, %v", to, err)
	}
}

func TestLastLines(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{{"a\nb\nc\n", 2, "b\nc"}, {"a\nb", 5, "a\nb"}, {"", 3, ""}, {"a", 1, "a"}} {
		if got := string(lastLines([]byte(tt.in), tt.n)); got != tt.want {
			t.Errorf("%q: %q", tt.in, got)
		}
	}
}
