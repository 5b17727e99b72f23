package eviction

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// rootTree is a hierarchy with these files at its root.
func rootTree(t *testing.T, files map[string]string) *cgroupfs.RootMemory {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := cgroupfs.Open(cgroupfs.Roots{Proc: dir, Cgroup: dir})
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.OpenRootMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func v1Root(t *testing.T, usage, inactive uint64) *cgroupfs.RootMemory {
	t.Helper()
	return rootTree(t, map[string]string{
		"memory/memory.usage_in_bytes": fmt.Sprintf("%d\n", usage),
		"memory/memory.stat":           fmt.Sprintf("total_cache 1\ntotal_inactive_file %d\n", inactive),
	})
}

func v2Root(t *testing.T, anon, file, inactive uint64) *cgroupfs.RootMemory {
	t.Helper()
	return rootTree(t, map[string]string{
		"cgroup.controllers": "memory\n",
		"memory.stat":        fmt.Sprintf("anon %d\nfile %d\ninactive_file %d\n", anon, file, inactive),
	})
}

// bugs.md B02: one verdict on both hierarchies, from kubelet's own sources and
// from /proc/meminfo alike.
func TestCaseB02(t *testing.T) {
	const ki = 1024
	text := &meminfoText{"MemTotal: 16393244 kB\nMemFree: 9744148 kB\nMemAvailable: 15020900 kB\nBuffers: 132344 kB\nCached: 5207356 kB\n" +
		"SwapCached: 0 kB\nInactive(file): 4525876 kB\nAnonPages: 618992 kB\n"}
	const anon, file, inactive = 618992 * ki, (5207356 + 132344) * ki, 4525876 * ki
	for _, from := range []MemoryAvailableFrom{Verified, FromKubelet, FromKernel} {
		for name, root := range map[string]*cgroupfs.RootMemory{"v1": v1Root(t, anon+file, inactive), "v2": v2Root(t, anon, file, inactive)} {
			t.Run(fmt.Sprint(from, " ", name), func(t *testing.T) {
				for amount, want := range map[uint64]bool{14300000 * ki: false, 14960428 * ki: false, 14960429 * ki: from == FromKubelet} {
					s := newSamplerRig(t, Rules{From: from, Amount: amount, Floor: 100 * mi}, 0)
					s.mem, s.root = text, root
					p, _ := hog(t, "u1", 3*gi)
					s.offer(p)
					s.after(alarm)
					if got := s.latest.met.Load(); got != want {
						t.Errorf("threshold %d: met %v", amount, got)
					}
					if got := s.latest.kubelet.Load(); got != 14960428*ki {
						t.Errorf("kubelet's reading %d kB", got/ki)
					}
				}
			})
		}
	}
}

// bugs.md B01 from the hierarchy of v1: 1.5 GiB by kubelet's own source, 11 GiB by
// the kernel, both reported. Only memoryAvailableFrom: kubelet acts on it.
func TestCaseB01RootUsage(t *testing.T) {
	text := &meminfoText{"MemTotal: 16777216 kB\nMemFree: 524288 kB\nMemAvailable: 11534336 kB\nBuffers: 0 kB\nCached: 11534336 kB\n" +
		"SwapCached: 0 kB\nActive(file): 10485760 kB\nInactive(file): 1048576 kB\nAnonPages: 4718592 kB\n"}
	for from, want := range map[MemoryAvailableFrom]bool{Verified: false, FromKernel: false, FromKubelet: true} {
		s := newSamplerRig(t, Rules{From: from, Amount: 2 * gi, Floor: 100 * mi}, 0)
		s.mem, s.root = text, v1Root(t, 16642998272, 1073741824)
		p, _ := hog(t, "u1", 3*gi)
		s.offer(p)
		s.after(alarm)
		l := &s.latest
		if l.met.Load() != want || l.kubelet.Load() != 1610612736 || l.kernel.Load() != 11*gi {
			t.Errorf("%v: met %v, kubelet's %d, kernel's %d", from, l.met.Load(), l.kubelet.Load(), l.kernel.Load())
		}
	}
}

// memoryAvailableFrom: kubelet is exactly kubelet's number: root usage less
// inactive_file, less huge page pools, and nothing off for min_free_kbytes.
func TestKubeletsOwnSources(t *testing.T) {
	info := cgroupfs.Meminfo{MemTotal: 16 * gi, MemAvailable: 12 * gi, AnonPages: gi, HasAvailable: true, HasKubelet: true, HasHugetlb: true, Hugetlb: 2 * gi}
	for name, root := range map[string]RootSource{"v1": v1Root(t, 13*gi, gi), "v2": v2Root(t, 10*gi, 3*gi, gi)} {
		t.Run(name, func(t *testing.T) {
			s := newSamplerRig(t, Rules{From: FromKubelet, Amount: 3 * gi}, 0)
			s.mem, s.root, s.minFree = &meminfoFixed{info}, root, gi
			s.after(alarm)
			if l := &s.latest; l.available.Load() != 2*gi || l.kubelet.Load() != 2*gi || l.kernel.Load() != 12*gi || !l.met.Load() {
				t.Errorf("available %d, kubelet's %d, kernel's %d", l.available.Load(), l.kubelet.Load(), l.kernel.Load())
			}
			// In the other modes nobody reads memory.stat in the fast half.
			s.use(&Settings{Rules: Rules{From: Verified, Amount: 3 * gi}})
			s.root = unreadableRoot{}
			s.after(alarm)
			if got := s.latest.kubelet.Load(); got != 13*gi || s.latest.failing.Load() {
				t.Errorf("verified: kubelet's reading %d", got)
			}
		})
	}
}

type unreadableRoot struct{}

func (unreadableRoot) Read() (uint64, uint64, error) { return 0, 0, errors.New("input/output error") }

func TestUnreadableRootConcludesNothing(t *testing.T) {
	s := newSamplerRig(t, Rules{From: FromKubelet, Amount: 3 * gi}, 100*mi)
	s.root = unreadableRoot{}
	p, _ := hog(t, "u1", 3*gi)
	s.offer(p)
	s.quiet(5, alarm, "kubelet's number is not known")
	if !s.latest.failing.Load() {
		t.Error("not shown as failing")
	}
}

// A memory.stat costs the kernel a flush: not every 2 ms.
func TestKubeletsOwnSourcesAreReadSparingly(t *testing.T) {
	s := newSamplerRig(t, Rules{From: FromKubelet, Amount: 3 * gi}, 100*mi)
	s.root = v1Root(t, 15*gi, 0)
	s.clock.advance(time.Second)
	if got := s.tick(); got != rootPeriod {
		t.Errorf("the next reading after %v", got)
	}
}

// bugs.md B04: min_free_kbytes far above the threshold. Nobody can allocate
// those pages: MemAvailable is below, and kubelet's reading less them is too.
func TestCaseB04(t *testing.T) {
	info := cgroupfs.Meminfo{MemTotal: 256 * gi, MemAvailable: 0, AnonPages: 254 * gi, HasAvailable: true, HasKubelet: true}
	p, _ := hog(t, "u1", 200*gi)
	for minFree, kills := range map[uint64]int{4194304 << 10: 1, 0: 0} {
		s := newSamplerRig(t, Rules{Amount: 100 * mi, Floor: 100 * mi}, 0)
		s.mem, s.minFree = &meminfoFixed{info}, minFree
		s.offer(p)
		got := 0
		for range 20 {
			if s.after(alarm) != nil {
				got++
			}
		}
		if got != kills {
			t.Errorf("min_free_kbytes %d: %d kills, want %d", minFree>>10, got, kills)
		}
	}
	// pgscan_direct +50000/s alone would have done as well, after a second.
	s := newSamplerRig(t, Rules{Amount: 100 * mi, Floor: 100 * mi}, 0)
	s.mem, s.scan = &meminfoFixed{info}, &fakeScan{}
	s.offer(p)
	s.quiet(100, 10*time.Millisecond, "a second has not passed")
	d := s.after(10 * time.Millisecond)
	if d == nil {
		d = s.after(10 * time.Millisecond)
	}
	wantVictim(t, d, "u1")
}
