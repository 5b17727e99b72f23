package cgroupfs

import (
	"os"
	"path/filepath"
	"testing"
)

// trees are the checked-in machines with what is to be seen on each.
func trees() []struct {
	name                              string
	mode                              Mode
	burstable, guaranteed, bestEffort string
} {
	return []struct {
		name                              string
		mode                              Mode
		burstable, guaranteed, bestEffort string
	}{
		{"v1", V1, cgroupfsBurstable, cgroupfsGuaranteed, cgroupfsBestEffort},
		{"hybrid", Hybrid, cgroupfsBurstable, cgroupfsGuaranteed, cgroupfsBestEffort},
		{"v2-cgroupfs", V2, cgroupfsBurstable, cgroupfsGuaranteed, cgroupfsBestEffort},
		{"v2-systemd", V2, systemdBurstable, systemdGuaranteed, systemdBestEffort},
	}
}

const (
	cgroupfsBurstable  = "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555"
	cgroupfsGuaranteed = "/kubepods/pod0123456789abcdef0123456789abcdef"
	cgroupfsBestEffort = "/kubepods/besteffort/podhog.test-1"
	systemdBurstable   = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
	systemdGuaranteed  = "/kubepods.slice/kubepods-pod0123456789abcdef0123456789abcdef.slice"
	systemdBestEffort  = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podhog.test_1.slice"
)

func openTree(t testing.TB, name string) *FS {
	t.Helper()
	f, err := Open(Roots{Proc: filepath.Join("testdata", name, "proc"), Cgroup: filepath.Join("testdata", name, "cgroup")})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// copyTree gives a tree of its own to a test that changes it.
func copyTree(t testing.TB, name string) (*FS, Roots) {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	r := Roots{Proc: filepath.Join(root, "proc"), Cgroup: filepath.Join(root, "cgroup")}
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	return f, r
}

func openPod(t testing.TB, f *FS, path string) *PodCgroup {
	t.Helper()
	p, err := f.OpenPod(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func writeFile(t testing.TB, text string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
