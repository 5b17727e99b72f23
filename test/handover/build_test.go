package handover

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Two builds of the same source, in different folders, are the same bytes: whoever
// doubts a binary can make it.
func TestTwoBuildsAreTheSame(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("no git checkout: %v", err)
	}
	var built [2][]byte
	for i := range built {
		dir := t.TempDir()
		for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
			copyFile(t, filepath.Join("../..", name), filepath.Join(dir, name))
		}
		cmd := exec.Command("make", "build", "BIN=bin/cri-evictd", "VERSION=v1.2.3")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make build: %v\n%s", err, out)
		}
		if built[i], err = os.ReadFile(filepath.Join(dir, "bin/cri-evictd")); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(built[i], []byte(dir)) {
			t.Errorf("the folder %s is in the binary", dir)
		}
	}
	if !bytes.Equal(built[0], built[1]) {
		t.Errorf("two builds differ: %d and %d bytes", len(built[0]), len(built[1]))
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if os.IsNotExist(err) {
		return // removed and not committed
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, b, info.Mode().Perm())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What `make install` puts in place is what the units name, and uninstall removes
// all of it.
func TestInstallAndUninstall(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	run := func(target string) {
		t.Helper()
		// -o: the program is there already.
		cmd := exec.Command("make", "-C", "../..", "-o", "build", target, "BIN="+program, "DESTDIR="+root, "PREFIX=/opt/evictd")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
	}
	run("install")
	units, err := filepath.Glob("../../systemd/cri*.*")
	if err != nil || len(units) < 8 {
		t.Fatalf("%v, %v", units, err)
	}
	for _, unit := range units {
		b, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", filepath.Base(unit)))
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if !strings.HasPrefix(key, "Exec") {
				continue
			}
			path, _, _ := strings.Cut(strings.TrimLeft(value, "+-"), " ")
			if strings.HasPrefix(path, "/usr/lib/systemd/") || strings.HasPrefix(path, "/bin/") {
				continue
			}
			if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: %s: %v", filepath.Base(unit), line, err)
			}
		}
	}
	run("uninstall")
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
