package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The archive is read back by another implementation, where there is one.
func TestCpioIsReadByCpio(t *testing.T) {
	var b bytes.Buffer
	c := &cpio{w: &b}
	c.dir("bin")
	c.program("bin/tool", []byte("#!/bin/sh\n"))
	c.link("bin/other", "tool")
	c.program("init", bytes.Repeat([]byte("x"), 4097))
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if b.Len()%4 != 0 {
		t.Errorf("%d bytes: another archive could not follow", b.Len())
	}
	if got := names(t, b.Bytes()); !equal(got, "bin", "bin/tool", "bin/other", "init") {
		t.Errorf("entries %q", got)
	}

	var command []string
	for _, name := range []string{"cpio", "busybox"} {
		if p, err := exec.LookPath(name); err == nil {
			command = []string{p}
			if name == "busybox" {
				command = append(command, "cpio")
			}
			break
		}
	}
	if command == nil {
		return // the kernel reads it in every boot
	}
	dir := t.TempDir()
	cmd := exec.Command(command[0], append(command[1:], "-i", "-d")...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(b.Bytes())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	body, err := os.ReadFile(filepath.Join(dir, "bin/other")) // through the link
	if err != nil || string(body) != "#!/bin/sh\n" {
		t.Errorf("bin/other: %q, %v", body, err)
	}
	info, err := os.Stat(filepath.Join(dir, "init"))
	if err != nil || info.Size() != 4097 || info.Mode().Perm() != 0o755 {
		t.Errorf("init: %v, %v", info, err)
	}
}

// names reads the archive's headers as the kernel does: fixed fields of eight hex
// digits, everything on a multiple of four.
func names(t *testing.T, b []byte) []string {
	t.Helper()
	field := func(i int) int {
		var v int
		for _, c := range b[6+8*i : 6+8*i+8] {
			v = v<<4 | strings.IndexByte("0123456789abcdef", c)
		}
		return v
	}
	var out []string
	for len(b) > 110 {
		if string(b[:6]) != "070701" {
			t.Fatalf("no header after %q: %.20q", out, b)
		}
		size, nameSize := field(6), field(11)
		name := string(b[110 : 110+nameSize-1])
		if name == "TRAILER!!!" {
			return out
		}
		out = append(out, name)
		next := 110 + nameSize
		next += (4 - next%4) % 4
		next += size
		next += (4 - next%4) % 4
		b = b[next:]
	}
	t.Fatalf("no trailer after %q", out)
	return nil
}

func equal(got []string, want ...string) bool {
	return strings.Join(got, "\n") == strings.Join(want, "\n")
}

func TestCpioReportsTheFirstError(t *testing.T) {
	c := &cpio{w: brokenWriter{}}
	c.dir("bin")
	if err := c.close(); !errors.Is(err, errBroken) {
		t.Errorf("close: %v", err)
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
