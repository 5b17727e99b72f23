package cgroupfs

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// seedFiles adds the files of that name of all checked-in trees.
func seedFiles(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds at %s: %v", pattern, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// onlyBroken accepts the errors a pure parser may return.
func onlyBroken(t *testing.T, err error, also ...error) {
	t.Helper()
	var b *BrokenError
	if err == nil || errors.As(err, &b) && len(b.Text) <= maxQuoted {
		return
	}
	for _, a := range also {
		if errors.Is(err, a) {
			return
		}
	}
	t.Errorf("unexpected error %#v", err)
}

func FuzzParseMeminfo(f *testing.F) {
	seedFiles(f, "*/proc/meminfo")
	f.Add([]byte("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\nAnonPages: 18446744073709551615 kB\n"))
	f.Add([]byte("MemTotal: -1 kB\r\nMemAvailable:"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Meminfo
		err := ParseMeminfo(b, &m)
		onlyBroken(t, err)
		if err != nil {
			return
		}
		if m.MemTotal == 0 || !m.HasAvailable || m.KernelAvailable() > m.MemTotal || m.KubeletAvailable() > m.MemTotal {
			t.Errorf("%+v kubelet %d", m, m.KubeletAvailable())
		}
	})
}

func FuzzParseVMStat(f *testing.F) {
	seedFiles(f, "*/proc/vmstat")
	f.Add([]byte("pgscan_direct 18446744073709551616\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v VMStat
		onlyBroken(t, ParseVMStat(b, &v), ErrAbsent)
	})
}

func FuzzParseMemoryStat(f *testing.F) {
	for _, pattern := range []string{"*/cgroup/memory.stat", "*/cgroup/memory/kubepods/burstable/*/memory.stat"} {
		files, err := filepath.Glob(filepath.Join("testdata", pattern))
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds at %s: %v", pattern, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, true)
			f.Add(b, false)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, v1 bool) {
		var m MemoryStat
		seen, err := parseMemoryStat(b, v1, &m)
		onlyBroken(t, err)
		if err == nil && seen&statInactive == 0 && m.InactiveFile != 0 {
			t.Errorf("inactive_file %d from nowhere", m.InactiveFile)
		}
		for _, v := range []uint64{m.Anon, m.File, m.Shmem, m.InactiveFile, m.ActiveFile} {
			if v >= absurdFrom {
				t.Errorf("absurd value %d let through", v)
			}
		}
	})
}

func FuzzParsePodPath(f *testing.F) {
	for _, tree := range trees() {
		f.Add(tree.burstable)
		f.Add(tree.guaranteed)
		f.Add(tree.bestEffort)
		f.Add(tree.burstable + tree.guaranteed)
	}
	f.Add("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podX.slice")
	f.Add("/kubepods/burstable/../podX/.")
	f.Fuzz(func(t *testing.T, in string) {
		pp, ok := ParsePodPath(in)
		if !ok {
			if pp != (PodPath{}) {
				t.Errorf("%q: refused with %+v", in, pp)
			}
			return
		}
		if pp.Path != path.Clean(in) || !strings.HasPrefix(pp.Path, "/") || !validUID(pp.UID) {
			t.Errorf("%q: %+v", in, pp)
		}
		last := strings.ReplaceAll(path.Base(pp.Path), "_", "-")
		if !strings.HasSuffix(strings.TrimSuffix(last, sliceSuffix), podPrefix+pp.UID) && pp.Driver == Systemd ||
			pp.Driver == Cgroupfs && path.Base(pp.Path) != podPrefix+pp.UID {
			t.Errorf("%q: the last element does not carry %q", in, pp.UID)
		}
		if !strings.Contains(path.Dir(pp.Path), kubepods) {
			t.Errorf("%q: not below kubepods", in)
		}
		if again, ok := ParsePodPath(pp.Path); !ok || again != pp {
			t.Errorf("%q: again %+v %v, first %+v", in, again, ok, pp)
		}
		if _, ok := ParsePodPath(pp.Path + "/kubepods/podX"); ok {
			t.Errorf("%q: a pod inside it is taken for one of this node", in)
		}
	})
}

func FuzzResolveParent(f *testing.F) {
	for _, s := range []string{
		"/kubepods/burstable/podX", "kubepods-burstable-podX.slice", "", "/", "../x", ".slice", "-.slice", "a--b.slice",
		"/a/../../b", "/x/kubepods.slice", "a\x00b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		p, err := ResolveParent(in)
		if err != nil {
			if p != "" {
				t.Errorf("%q: %q beside %v", in, p, err)
			}
			return
		}
		if !strings.HasPrefix(p, "/") || p == "/" || path.Clean(p) != p || strings.Contains(p, "/../") || strings.HasSuffix(p, "/..") {
			t.Errorf("%q: %q", in, p)
		}
	})
}

func FuzzParsePopulated(f *testing.F) {
	f.Add([]byte("populated 1\nfrozen 0\n"))
	f.Add([]byte("frozen 0\npopulated 0\n"))
	f.Add([]byte("populated 18446744073709551615"))
	f.Fuzz(func(t *testing.T, b []byte) {
		populated, err := parsePopulated(b)
		onlyBroken(t, err)
		if populated && !strings.Contains(string(b), "1") {
			t.Errorf("%q: populated", b)
		}
	})
}

// FuzzPidScanner: the same numbers come out however the text is cut.
func FuzzPidScanner(f *testing.F) {
	f.Add("1\n22\n333\n", 2)
	f.Add("0\n4194304", 3)
	f.Add("-1\n", 1)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = max(0, min(at, len(text)))
		whole, werr := scanPids(text)
		var pieces []string
		for _, p := range []string{text[:at], text[at:]} {
			if p != "" { // an empty piece means the end
				pieces = append(pieces, p)
			}
		}
		cut, cerr := scanPids(pieces...)
		if (werr == nil) != (cerr == nil) || len(whole) != len(cut) {
			t.Fatalf("%q cut at %d: %v %v, whole %v %v", text, at, cut, cerr, whole, werr)
		}
		for i, pid := range whole {
			if pid != cut[i] || pid <= 0 {
				t.Errorf("%q: %v against %v", text, whole, cut)
			}
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	seedFiles(f, "*/proc/5000003/status")
	f.Add([]byte("Name:\n"))
	f.Add([]byte("NSpid:\t1\t2\nName:\tx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, err := parseStatus(b)
		onlyBroken(t, err)
	})
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"max", "0", "9223372036854771712", "-1", "18446744073709551616"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		limit, limited, err := parseLimit("/f", b)
		onlyBroken(t, err)
		if limit >= absurdFrom || !limited && limit != 0 || err != nil && limited {
			t.Errorf("%q: %d %v %v", b, limit, limited, err)
		}
	})
}
