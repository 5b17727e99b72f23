package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestIdentityRuns(t *testing.T) {
	id := identity{dir: "/tmp/celab-1/ctd"}
	tests := []struct {
		args string
		want bool
	}{
		{"/c/containerd --config /tmp/celab-1/ctd/config.toml", true},
		{"/c/containerd-shim-runc-v2 -namespace k8s.io -id x -address /tmp/celab-1/ctd/ctd.sock", true},
		{"runc --root /tmp/celab-1/ctd/runc/k8s.io create x", true},
		{"runc --root=/tmp/celab-1/ctd/runc create x", true},
		// Another lab whose name begins the same, the host's own, and others.
		{"/c/containerd --config /tmp/celab-12/ctd/config.toml", false},
		{"/c/containerd --config /tmp/celab-1/ctd2/config.toml", false},
		{"/usr/bin/containerd", false},
		{"/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -address /run/containerd/containerd.sock", false},
		{"vi /tmp/celab-1/ctd/config.toml", false},
		{"runc init", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := id.runs(process{args: strings.Fields(tt.args)}); got != tt.want {
			t.Errorf("runs(%q) = %t; want %t", tt.args, got, tt.want)
		}
	}
}

func TestIdentityContains(t *testing.T) {
	id := identity{dir: "/tmp/celab-1/ctd", onDisk: "/celab-1/ctd"} // /tmp is a file system of its own
	const table = `
ours by overlay     | 1 0 0:9 / / rw - overlay overlay rw,lowerdir=/tmp/celab-1/ctd/l,upperdir=/tmp/celab-1/ctd/u/fs,workdir=/w | true
ours by native copy | 1 0 8:1 /celab-1/ctd/root/snapshots/3 / rw - ext4 /dev/a rw | true
another lab         | 1 0 0:9 / / rw - overlay overlay rw,upperdir=/tmp/celab-12/ctd/u/fs | false
a lower layer only  | 1 0 0:9 / / rw - overlay overlay rw,lowerdir=/tmp/celab-1/ctd/l,upperdir=/elsewhere | false
a service that has copies of our mounts | 1 0 0:9 / /tmp/celab-1/ctd/shm rw - overlay overlay rw,upperdir=/tmp/celab-1/ctd/u | false
the host            | 1 0 8:1 / / rw - ext4 /dev/a rw | false`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		infos, err := mountinfo.GetMountsFromReader(strings.NewReader(strings.TrimSpace(f[1])), nil)
		if err != nil {
			t.Fatalf("%s: %v", f[0], err)
		}
		if got, want := id.contains(infos), strings.TrimSpace(f[2]) == "true"; got != want {
			t.Errorf("%s: %t; want %t", strings.TrimSpace(f[0]), got, want)
		}
	}
}

func TestParsePPid(t *testing.T) {
	for stat, want := range map[string]int{
		"12 (sh) S 7 12 12 0":          7,
		"12 (a) b) ) R 9 1":            9,
		"12 (x":                        0,
		"":                             0,
		"12 (sh) S":                    0,
		"12 (sh) S notanumber 12 12 0": 0,
	} {
		if got := parsePPid([]byte(stat)); got != want {
			t.Errorf("parsePPid(%q) = %d; want %d", stat, got, want)
		}
	}
}

func FuzzParsePPid(f *testing.F) {
	f.Add([]byte("12 (sh) S 7 12 12 0"))
	f.Add([]byte(")"))
	f.Add([]byte(""))
	f.Fuzz(func(_ *testing.T, b []byte) { parsePPid(b) })
}

// Leftovers has to see what no rule of find covers, and never its own caller.
func TestLeftoversOfAStranger(t *testing.T) {
	dir := t.TempDir()
	if left := Leftovers(dir); !slices.Equal(left, []string{"folder " + dir}) {
		t.Errorf("Leftovers of an empty folder: %q; want the folder", left)
	}
	if left := Leftovers(filepath.Join(dir, "gone")); len(left) > 0 {
		t.Errorf("Leftovers of no folder: %q; want none", left)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := exec.CommandContext(t.Context(), "mkfifo", fifo).Run(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "cat", fifo)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	}()
	waitFor(t, "cat to have started", func() bool {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "cmdline"))
		return err == nil && strings.HasPrefix(string(b), "cat")
	})
	want := "process " + strconv.Itoa(cmd.Process.Pid) + ": cat " + fifo
	if left := Leftovers(dir); !slices.Contains(left, want) {
		t.Errorf("Leftovers: %q; want %q in it", left, want)
	}
	found, err := newIdentity(dir).find()
	if err != nil || len(found) > 0 {
		t.Errorf("find: %v, %v; want none: Cleanup would kill it", found, err)
	}
}
