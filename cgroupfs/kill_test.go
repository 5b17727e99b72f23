package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// In a checked-in tree the numbers in cgroup.procs would belong to strangers.
func TestKillRefusesATree(t *testing.T) {
	for _, tree := range trees() {
		f, _ := copyTree(t, tree.name)
		p := openPod(t, f, tree.burstable)
		if n, err := p.Kill(KillOptions{}); n != 0 || !errors.Is(err, ErrNotLive) {
			t.Errorf("%s: Kill: %d, %v, want ErrNotLive", tree.name, n, err)
		}
		if n, err := p.KillByPidfd(); n != 0 || !errors.Is(err, ErrNotLive) {
			t.Errorf("%s: KillByPidfd: %d, %v, want ErrNotLive", tree.name, n, err)
		}
	}
}

func TestKillRefusesWhatIsNoPod(t *testing.T) {
	for _, tree := range trees() {
		f := openTree(t, tree.name)
		for _, path := range []string{"/", filepath.Dir(tree.burstable), filepath.Dir(filepath.Dir(tree.burstable)), "/system.slice"} {
			p := openPod(t, f, path)
			_, err := p.Kill(KillOptions{})
			_, ferr := p.KillByPidfd()
			if !errors.Is(err, ErrNotPod) || !errors.Is(ferr, ErrNotPod) {
				t.Errorf("%s %s: %v, %v, want ErrNotPod", tree.name, path, err, ferr)
			}
		}
	}
}

func TestKillWritesToCgroupKill(t *testing.T) {
	_, r := copyTree(t, "v2-systemd")
	file := filepath.Join(r.Cgroup, systemdBurstable, "cgroup.kill")
	writeFile(t, "", file)
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	p := openPod(t, f, systemdBurstable)
	n, err := p.Kill(KillOptions{Skip: []int{1}}) // nobody of the pod
	if err != nil || n != UnknownCount {
		t.Errorf("%d, %v", n, err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "1" {
		t.Errorf("cgroup.kill has %q, %v", got, err)
	}
}

// With somebody to be spared inside, the whole cgroup must not be killed.
func TestKillSparesOnV2(t *testing.T) {
	_, r := copyTree(t, "v2-systemd")
	file := filepath.Join(r.Cgroup, systemdBurstable, "cgroup.kill")
	writeFile(t, "", file)
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	p := openPod(t, f, systemdBurstable)
	if _, err := p.Kill(KillOptions{Skip: []int{5000002}}); !errors.Is(err, ErrNotLive) {
		t.Errorf("%v, want the way one by one, which a tree refuses", err)
	}
	if got, err := os.ReadFile(file); err != nil || len(got) != 0 {
		t.Errorf("cgroup.kill has %q, %v", got, err)
	}
}

func TestThawWrites(t *testing.T) {
	for _, tree := range trees() {
		f, r := copyTree(t, tree.name)
		file := filepath.Join(r.Cgroup, tree.burstable, "cgroup.freeze")
		frozen, want := "1", "0"
		if tree.mode != V2 {
			file = filepath.Join(r.Cgroup, "freezer", tree.burstable, freezerState)
			frozen, want = "FROZEN", "THAWED"
		}
		p := openPod(t, f, tree.burstable)
		for name, thaw := range map[string]func() error{
			"Thaw":     p.Thaw,
			"ThawPath": func() error { return f.ThawPath(tree.burstable) },
		} {
			writeFile(t, frozen, file)
			if err := thaw(); err != nil {
				t.Errorf("%s: %s: %v", tree.name, name, err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != want {
				t.Errorf("%s: %s wrote %q, %v", tree.name, name, got, err)
			}
		}
		if err := f.ThawPath("/kubepods/podNobody"); err != nil {
			t.Errorf("%s: a cgroup that is gone needs no thaw: %v", tree.name, err)
		}
		for _, bad := range []string{"", "/", "kubepods", "/.."} {
			if err := f.ThawPath(bad); err == nil {
				t.Errorf("%s: ThawPath(%q) accepted", tree.name, bad)
			}
		}
	}
}
