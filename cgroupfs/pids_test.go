package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func pidsTree(t *testing.T, files map[string]string) *FS {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(Roots{Proc: filepath.Join(root, "proc"), Cgroup: filepath.Join(root, "cgroup")})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPIDs(t *testing.T) {
	tree := func(pidMax, threads, loadavg string) map[string]string {
		return map[string]string{
			"cgroup/cgroup.controllers":    "memory pids\n",
			"proc/sys/kernel/pid_max":      pidMax,
			"proc/sys/kernel/threads-max":  threads,
			"proc/loadavg":                 loadavg,
			"proc/sys/kernel/unrelated_32": "1",
		}
	}
	for _, c := range []struct {
		name, pidMax, threads, loadavg string
		want                           PIDs
		available                      uint64
		broken                         bool
	}{
		{"pid_max is the limit", "32768\n", "127213\n", "0.20 0.18 0.12 1/80 11206\n", PIDs{32768, 80}, 32688, false},
		{"threads-max is", "4194304\n", "63000\n", "9.00 8.00 7.00 12/62999 4194303\n", PIDs{63000, 62999}, 1, false},
		{"more than allowed", "1000\n", "1000\n", "1 1 1 1/1200 7\n", PIDs{1000, 1200}, 0, false},
		{"no tasks", "1000\n", "1000\n", "1 1 1 1/0 7\n", PIDs{}, 0, true},
		{"cut off", "1000\n", "1000\n", "1 1 1\n", PIDs{}, 0, true},
		{"no slash", "1000\n", "1000\n", "1 1 1 80 7\n", PIDs{}, 0, true},
		{"zero is no limit", "0\n", "1000\n", "1 1 1 1/80 7\n", PIDs{}, 0, true},
	} {
		got, err := pidsTree(t, tree(c.pidMax, c.threads, c.loadavg)).PIDs()
		var b *BrokenError
		if errors.As(err, &b) != c.broken || got != c.want || got.Available() != c.available {
			t.Errorf("%s: %+v, available %d, %v; want %+v, %d", c.name, got, got.Available(), err, c.want, c.available)
		}
	}
}

func TestCgroupPIDs(t *testing.T) {
	v1 := pidsTree(t, map[string]string{
		"cgroup/memory/memory.usage_in_bytes":          "1",
		"cgroup/pids/kubepods/podu1/pids.current":      "12000\n",
		"cgroup/pids/kubepods/podbroken/pids.current":  "max\n",
		"cgroup/pids/kubepods/podwithout/cgroup.procs": "",
	})
	v2 := pidsTree(t, map[string]string{
		"cgroup/cgroup.controllers":                        "memory pids\n",
		"cgroup/kubepods.slice/kubepods-podu1.slice/x":     "",
		"cgroup/kubepods.slice/kubepods-podu2.slice/y":     "",
		"cgroup/kubepods.slice/kubepods-podu2.slice/cg":    "",
		"cgroup/kubepods.slice/pids.current":               "77\n",
		"cgroup/kubepods.slice/kubepods-podu3.slice/other": "",
	})
	for _, c := range []struct {
		fs   *FS
		path string
		want uint64
		err  error
	}{
		{v1, "/kubepods/podu1", 12000, nil},
		{v1, "/kubepods/podgone", 0, ErrGone},
		{v1, "/kubepods/podwithout", 0, ErrAbsent},
		{v1, "/../../kubepods/podu1", 12000, nil},
		{v2, "/kubepods.slice", 77, nil},
		{v2, "/kubepods.slice/kubepods-podu1.slice", 0, ErrAbsent},
	} {
		got, err := c.fs.CgroupPIDs(c.path)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v; want %d, %v", c.path, got, err, c.want, c.err)
		}
	}
	var b *BrokenError
	if _, err := v1.CgroupPIDs("/kubepods/podbroken"); !errors.As(err, &b) {
		t.Errorf("what is no number: %v", err)
	}
}
