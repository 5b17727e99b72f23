package cgroupfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/fscommon"
)

// benchPod opens a cgroup of this machine that has memory numbers; where there
// is none, one of a checked-in tree.
func benchPod(b *testing.B) *PodCgroup {
	b.Helper()
	f, err := Open(Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if err == nil {
		candidates := []string{"/"} // a v1 root has them
		if f.Mode() == V2 {
			dirs, err := f.dirs("/")
			if err != nil {
				b.Fatal(err)
			}
			candidates = candidates[:0]
			for _, d := range dirs {
				candidates = append(candidates, "/"+d)
			}
		}
		for _, c := range candidates {
			p, err := f.OpenPod(c)
			if err != nil {
				continue
			}
			if _, err := p.Usage(); err == nil {
				b.Cleanup(func() { _ = p.Close() }) // read only
				return p
			}
			_ = p.Close() // read only
		}
	}
	cgroups.TestMode = true // accept files outside a cgroup file system
	b.Cleanup(func() { cgroups.TestMode = false })
	return openPod(b, openTree(b, "v2-systemd"), systemdBurstable)
}

// BenchmarkUsage: the reading the alarm path takes of every planned pod.
//
//	kept              Usage of this package: one pread
//	opencontainers    the cheapest reader there: open, read, parse, close
//	opencontainers-stats  GetStats of the memory controller, the supported way
func BenchmarkUsage(b *testing.B) {
	p := benchPod(b)
	b.Run("kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Usage(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("opencontainers", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fscommon.GetCgroupParamUint(p.full, p.usageFile()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("opencontainers-stats", func(b *testing.B) { benchGetStats(b, p) })
}

// BenchmarkMemoryStat: the calm-time reading, the same comparison.
func BenchmarkMemoryStat(b *testing.B) {
	p := benchPod(b)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		var m MemoryStat
		for b.Loop() {
			if err := p.MemoryStat(&m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("opencontainers-stats", func(b *testing.B) { benchGetStats(b, p) })
}

func benchGetStats(b *testing.B, p *PodCgroup) {
	get := func() error { return (&fs.MemoryGroup{}).GetStats(p.full, cgroups.NewStats()) }
	if !p.fs.v1() {
		m, err := fs2.NewManager(&cgroups.Cgroup{}, p.full)
		if err != nil {
			b.Fatal(err)
		}
		get = func() error { _, err := m.GetStats(); return err }
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := get(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMeminfo(b *testing.B) {
	f := &FS{roots: Roots{Proc: "/proc"}}
	b.Run("kept", func(b *testing.B) {
		r, err := f.OpenMeminfo()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = r.Close() }) // read only
		b.ReportAllocs()
		var m Meminfo
		for b.Loop() {
			if err := r.Read(&m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		text, err := os.ReadFile(filepath.Join("testdata", "v1", "proc", "meminfo"))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		var m Meminfo
		for b.Loop() {
			if err := ParseMeminfo(text, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkVMStat(b *testing.B) {
	r, err := (&FS{roots: Roots{Proc: "/proc"}}).OpenVMStat()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() }) // read only
	b.ReportAllocs()
	var v VMStat
	for b.Loop() {
		if err := r.Read(&v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParsePodPath(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ParsePodPath(systemdBurstable); !ok {
			b.Fatal("not a pod")
		}
	}
}
