package cgroupfs

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestParseMemoryStat(t *testing.T) {
	const all = statAnon | statFile | statShmem | statInactive | statActive
	v2 := "anon 1\nfile 2\nkernel 9\nshmem 3\nfile_mapped 9\ninactive_anon 9\ninactive_file 4\nactive_file 5\n"
	v1 := "cache 9\nrss 9\nshmem 9\ninactive_file 9\nactive_file 9\nhierarchical_memory_limit 9223372036854771712\n" +
		"total_cache 2\ntotal_rss 1\ntotal_rss_huge 9\ntotal_shmem 3\ntotal_inactive_file 4\ntotal_active_file 5\n"
	full := MemoryStat{Anon: 1, File: 2, Shmem: 3, InactiveFile: 4, ActiveFile: 5}
	for _, tc := range []struct {
		name, in string
		v1       bool
		want     MemoryStat
		seen     statField
		why      error
		field    string
	}{
		{"v2", v2, false, full, all, nil, ""},
		{"v1", v1, true, full, all, nil, ""},
		{"v1 own lines do not count", "cache 1\nrss 2\ninactive_file 3\n", true, MemoryStat{}, 0, nil, ""},
		{"v2 without inactive_file", "anon 1\n", false, MemoryStat{Anon: 1}, statAnon, nil, ""},
		{"empty", "", false, MemoryStat{}, 0, nil, ""},
		{"zero is a number", "inactive_file 0\n", false, MemoryStat{}, statInactive, nil, ""},
		{"negative", "anon -1\n", false, MemoryStat{}, 0, errNotNumber, "anon"},
		{"word", "anon max\n", false, MemoryStat{}, 0, errNotNumber, "anon"},
		{"more words", "anon 1 2\n", false, MemoryStat{}, 0, errNotNumber, "anon"},
		{"underflown counter", "inactive_file 18446744073709551615\n", false, MemoryStat{}, 0, errAbsurd, "inactive_file"},
		{"cut", "anon 1\nfile 2", false, MemoryStat{}, 0, errCut, "file"},
	} {
		got := MemoryStat{Anon: 77, Shmem: 77}
		seen, err := parseMemoryStat([]byte(tc.in), tc.v1, &got)
		if !errors.Is(err, tc.why) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.why)
		}
		var b *BrokenError
		if errors.As(err, &b) != (tc.field != "") || tc.field != "" && b.Field != tc.field {
			t.Errorf("%s: %v, want field %q", tc.name, err, tc.field)
		}
		if err == nil && (got != tc.want || seen != tc.seen) {
			t.Errorf("%s: %+v %b, want %+v %b", tc.name, got, seen, tc.want, tc.seen)
		}
	}
}

// A field this kernel lacks is absent, and never zero.
func TestMemoryStatWithoutAField(t *testing.T) {
	for _, tree := range trees() {
		f, _ := copyTree(t, tree.name)
		dir := f.memory
		text := "anon 5\nfile 6\nshmem 7\nactive_file 8\n"
		name := "inactive_file"
		if tree.mode != V2 {
			text = "total_rss 5\ntotal_cache 6\ntotal_shmem 7\ntotal_active_file 8\n"
			name = "total_inactive_file"
		}
		writeFile(t, text, dir, tree.burstable, "memory.stat")
		p := openPod(t, f, tree.burstable)
		if v, err := p.InactiveFile(); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: InactiveFile %d, %v, want ErrAbsent", tree.name, v, err)
		}
		var m MemoryStat
		err := p.MemoryStat(&m)
		if !errors.Is(err, ErrAbsent) || m.Anon != 5 || m.Shmem != 7 {
			t.Errorf("%s: %+v, %v, want the others and ErrAbsent", tree.name, m, err)
		}
		writeFile(t, name+" x\n", dir, tree.burstable, "memory.stat")
		var b *BrokenError
		if _, err := p.InactiveFile(); !errors.As(err, &b) || b.Field != name || b.Path != filepath.Join(dir, tree.burstable, "memory.stat") {
			t.Errorf("%s: %v", tree.name, err)
		}
	}
}

func TestRootMemoryErrors(t *testing.T) {
	root := t.TempDir()
	writeFile(t, "", root, "cgroup.controllers")
	f, err := Open(Roots{Cgroup: root})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.OpenRootMemory(); !errors.Is(err, ErrAbsent) {
		t.Errorf("v2 root without memory.stat: %v", err)
	}
	writeFile(t, "anon 1\nfile 2\n", root, "memory.stat")
	r, err := f.OpenRootMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, _, err := r.Read(); !errors.Is(err, ErrAbsent) {
		t.Errorf("no inactive_file: %v", err)
	}
}

func TestKubeletAvailableFromSaturates(t *testing.T) {
	for _, tc := range []struct{ total, usage, inactive, pools, want uint64 }{
		{100, 60, 20, 10, 50},
		{100, 20, 60, 0, 100}, // inactive_file of a moment later
		{100, 200, 0, 0, 0},   // v1 root usage above MemTotal, with many dying cgroups
		{100, 60, 0, 50, 0},
	} {
		if got := KubeletAvailableFrom(tc.total, tc.usage, tc.inactive, tc.pools); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}
