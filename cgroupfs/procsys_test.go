package cgroupfs

import (
	"errors"
	"testing"
)

func TestProcSysOfTrees(t *testing.T) {
	boot := map[string]string{
		"v1":          "11111111-1111-4111-8111-111111111111",
		"v2-systemd":  "22222222-2222-4222-8222-222222222222",
		"hybrid":      "33333333-3333-4333-8333-333333333333",
		"v2-cgroupfs": "44444444-4444-4444-8444-444444444444",
	}
	free := map[string]uint64{"v1": 67584 * kB, "v2-systemd": 67584 * kB, "hybrid": 67584 * kB, "v2-cgroupfs": 4 << 30}
	for _, tree := range trees() {
		f := openTree(t, tree.name)
		if got, err := f.BootID(); err != nil || got != boot[tree.name] {
			t.Errorf("%s: boot id %q, %v", tree.name, got, err)
		}
		if got, err := f.MinFreeBytes(); err != nil || got != free[tree.name] {
			t.Errorf("%s: min free %d, %v", tree.name, got, err)
		}
		for pid, want := range map[int]int{5000001: -998, 5000002: 939, 5000003: 1000} {
			if got, err := f.OOMScoreAdj(pid); err != nil || got != want {
				t.Errorf("%s: oom_score_adj of %d: %d, %v, want %d", tree.name, pid, got, err, want)
			}
		}
	}
}

func TestProcSysErrors(t *testing.T) {
	root := t.TempDir()
	f := &FS{roots: Roots{Proc: root}}
	if _, err := f.MinFreeBytes(); !errors.Is(err, ErrAbsent) {
		t.Errorf("min free: %v", err)
	}
	if _, err := f.BootID(); !errors.Is(err, ErrAbsent) {
		t.Errorf("boot id: %v", err)
	}
	if _, err := f.OOMScoreAdj(5000009); !errors.Is(err, ErrGone) {
		t.Errorf("oom_score_adj of nobody: %v", err)
	}
	writeFile(t, "-5\n", root, "sys/vm/min_free_kbytes")
	writeFile(t, "\n", root, "sys/kernel/random/boot_id")
	writeFile(t, "1001\n", root, "5000008/oom_score_adj")
	writeFile(t, "none\n", root, "5000007/oom_score_adj")
	calls := map[string]func() error{
		"min free":              func() error { _, err := f.MinFreeBytes(); return err },
		"boot id":               func() error { _, err := f.BootID(); return err },
		"oom_score_adj absurd":  func() error { _, err := f.OOMScoreAdj(5000008); return err },
		"oom_score_adj no word": func() error { _, err := f.OOMScoreAdj(5000007); return err },
	}
	for name, call := range calls {
		var b *BrokenError
		if err := call(); !errors.As(err, &b) || b.Path == "" {
			t.Errorf("%s: %v, want a BrokenError with its path", name, err)
		}
	}
	writeFile(t, "18446744073709551615\n", root, "sys/vm/min_free_kbytes")
	if got, err := f.MinFreeBytes(); err != nil || got != 1<<64-1 {
		t.Errorf("min free saturates: %d, %v", got, err)
	}
}
