package cgroupfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

const mib = uint64(1) << 20

func TestPodOfEachTree(t *testing.T) {
	for _, tree := range trees() {
		f := openTree(t, tree.name)
		p := openPod(t, f, tree.guaranteed)
		if p.Path() != tree.guaranteed || p.Inode() == 0 {
			t.Errorf("%s: path %s, inode %d", tree.name, p.Path(), p.Inode())
		}
		if got, err := p.Usage(); err != nil || got != 256*mib {
			t.Errorf("%s: usage %d, %v", tree.name, got, err)
		}
		if got, err := p.InactiveFile(); err != nil || got != 2*mib {
			t.Errorf("%s: inactive file %d, %v", tree.name, got, err)
		}
		var m MemoryStat
		want := MemoryStat{Anon: 250 * mib, File: 6 * mib, InactiveFile: 2 * mib, ActiveFile: 4 * mib}
		if err := p.MemoryStat(&m); err != nil || m != want {
			t.Errorf("%s: %+v, %v", tree.name, m, err)
		}
		if limit, limited, err := p.MemoryLimit(); err != nil || !limited || limit != 300*mib {
			t.Errorf("%s: limit %d %v, %v", tree.name, limit, limited, err)
		}
		be := openPod(t, f, tree.bestEffort)
		if limit, limited, err := be.MemoryLimit(); err != nil || limited {
			t.Errorf("%s: limit %d %v, %v, want none", tree.name, limit, limited, err)
		}
		if populated, err := be.Populated(); err != nil || !populated {
			t.Errorf("%s: populated %v, %v", tree.name, populated, err)
		}
	}
}

func TestPodChildren(t *testing.T) {
	const id = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff"
	for _, tree := range trees() {
		want := id
		if tree.name == "v2-systemd" {
			want = "cri-containerd-" + id + ".scope"
		}
		p := openPod(t, openTree(t, tree.name), tree.burstable)
		got, err := p.Children()
		if err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s: children %v, %v", tree.name, got, err)
		}
		pids, err := p.Pids([]int{7})
		if err != nil || !slices.Equal(pids, []int{7, 5000001, 5000002}) {
			t.Errorf("%s: pids %v, %v", tree.name, pids, err)
		}
		limit, limited, err := p.ChildMemoryLimit(want)
		if err != nil || limited != (tree.name != "v2-cgroupfs") || limited && limit != 512*mib {
			t.Errorf("%s: child limit %d %v, %v", tree.name, limit, limited, err)
		}
		for _, bad := range []string{"", ".", "..", "../x", "a/b"} {
			if _, _, err := p.ChildMemoryLimit(bad); err == nil {
				t.Errorf("%s: child %q accepted", tree.name, bad)
			}
		}
	}
}

func TestOpenPodErrors(t *testing.T) {
	f := openTree(t, "v1")
	for _, p := range []string{"/kubepods/podNobody", "/kubepods/../../../nothing"} {
		if _, err := f.OpenPod(p); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v, want ErrGone", p, err)
		}
	}
	for _, p := range []string{"", "kubepods", ".."} {
		if _, err := f.OpenPod(p); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%q: %v", p, err)
		}
	}
	var b *BrokenError
	if _, err := f.OpenPod("/kubepods/cgroup.procs"); !errors.As(err, &b) {
		t.Errorf("a file: %v, want a BrokenError", err)
	}
}

func TestBrokenNumbers(t *testing.T) {
	f, r := copyTree(t, "v2-systemd")
	p := openPod(t, f, systemdBurstable)
	file := filepath.Join(r.Cgroup, systemdBurstable, "memory.current")
	for text, why := range map[string]error{
		"": errNotNumber, "max\n": errNotNumber, "-1\n": errNotNumber, "1 2\n": errNotNumber,
		"18446744073709551615\n": errAbsurd, "99999999999999999999999999999999999\n": errNotNumber,
	} {
		writeFile(t, text, file)
		got, err := p.Usage()
		var b *BrokenError
		if !errors.As(err, &b) || b.Path != file || !errors.Is(err, why) {
			t.Errorf("%q: %d, %v, want %v naming %s", text, got, err, why, file)
		}
	}
	writeFile(t, "77\n", file)
	if got, err := p.Usage(); err != nil || got != 77 {
		t.Errorf("afterwards: %d, %v", got, err)
	}
	writeFile(t, "many\n", r.Cgroup, systemdBurstable, "memory.max")
	var b *BrokenError
	if _, _, err := p.MemoryLimit(); !errors.As(err, &b) {
		t.Errorf("limit: %v", err)
	}
}

// A cgroup without the memory controller lives, but has no numbers.
func TestPodWithoutMemoryController(t *testing.T) {
	f, r := copyTree(t, "v2-systemd")
	for _, name := range []string{"memory.current", "memory.stat", "memory.max"} {
		if err := os.Remove(filepath.Join(r.Cgroup, systemdBurstable, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := openPod(t, f, systemdBurstable)
	_, usage := p.Usage()
	_, inactive := p.InactiveFile()
	_, _, limit := p.MemoryLimit()
	for name, err := range map[string]error{"usage": usage, "inactive": inactive, "limit": limit} {
		if !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %v, want ErrAbsent", name, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(r.Cgroup, systemdBurstable)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Usage(); !errors.Is(err, ErrGone) {
		t.Errorf("after removal: %v, want ErrGone", err)
	}
}

func TestUseAfterClose(t *testing.T) {
	p, err := openTree(t, "v1").OpenPod(cgroupfsBurstable)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"Usage":      func() error { _, err := p.Usage(); return err },
		"MemoryStat": func() error { return p.MemoryStat(&MemoryStat{}) },
		"Populated":  func() error { _, err := p.Populated(); return err },
		"Pids":       func() error { _, err := p.Pids(nil); return err },
		"Children":   func() error { _, err := p.Children(); return err },
		"Limit":      func() error { _, _, err := p.MemoryLimit(); return err },
		"Kill":       func() error { _, err := p.Kill(KillOptions{}); return err },
		"ByPidfd":    func() error { _, err := p.KillByPidfd(); return err },
		"Thaw":       p.Thaw,
		"Close":      p.Close,
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

// Close while others read: nobody may ever see a number of another file, which
// a reused descriptor would give.
func TestCloseWhileReading(t *testing.T) {
	f := openTree(t, "v1")
	for range 200 {
		p, err := f.OpenPod(cgroupfsGuaranteed)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					v, err := p.Usage()
					if errors.Is(err, fs.ErrClosed) {
						return
					}
					if err != nil || v != 256*mib {
						t.Errorf("%d, %v", v, err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			// Takes the lowest free descriptors with other contents.
			q, err := f.OpenPod(cgroupfsBestEffort)
			if err != nil {
				t.Error(err)
				return
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}
