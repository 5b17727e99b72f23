package cgroupfs

import "testing"

// Readings of public reports, from the checked-in trees. The name of each test
// carries the number of the case.

func readMeminfo(t *testing.T, tree string) Meminfo {
	t.Helper()
	r, err := openTree(t, tree).OpenMeminfo()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	var m Meminfo
	if err := r.Read(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

func readRoot(t *testing.T, tree string) (usage, inactiveFile uint64) {
	t.Helper()
	r, err := openTree(t, tree).OpenRootMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	usage, inactiveFile, err = r.Read()
	if err != nil {
		t.Fatal(err)
	}
	return usage, inactiveFile
}

// B01: page cache on the active list. kubelet's reading is 1.5 GiB, the
// kernel's 11 GiB.
func TestB01ActivePageCache(t *testing.T) {
	m := readMeminfo(t, "hybrid")
	const kubelet, kernel = 1610612736, 11534336 * 1024
	if m.KubeletAvailable() != kubelet || m.KernelAvailable() != kernel {
		t.Errorf("kubelet %d, kernel %d, want %d, %d", m.KubeletAvailable(), m.KernelAvailable(), kubelet, kernel)
	}
	usage, inactive := readRoot(t, "hybrid")
	if usage != 16642998272 || inactive != 1073741824 {
		t.Errorf("root usage %d, inactive_file %d", usage, inactive)
	}
	if got := KubeletAvailableFrom(m.MemTotal, usage, inactive, m.HugePools()); got != kubelet {
		t.Errorf("from kubelet's own files: %d, want %d", got, kubelet)
	}
}

// B02: one formula for both hierarchies. The old v2 way (MemTotal − MemFree as
// usage) is 674 MiB lower.
func TestB02SameReadingOnBothHierarchies(t *testing.T) {
	const want, old = 14960428 * 1024, 14270024 * 1024
	for _, tree := range []string{"v1", "v2-systemd"} {
		m := readMeminfo(t, tree)
		if m.KubeletAvailable() != want || m.KernelAvailable() != 15020900*1024 {
			t.Errorf("%s: kubelet %d, kernel %d", tree, m.KubeletAvailable(), m.KernelAvailable())
		}
		usage, inactive := readRoot(t, tree)
		if got := KubeletAvailableFrom(m.MemTotal, usage, inactive, m.HugePools()); got != want {
			t.Errorf("%s: from kubelet's own files: %d, want %d", tree, got, want)
		}
		if got := KubeletAvailableFrom(m.MemTotal, m.MemTotal-m.MemFree, m.InactiveFile, 0); got != old {
			t.Errorf("%s: the fixture is not the report's: old reading %d, want %d", tree, got, old)
		}
	}
}

// B04: min_free_kbytes above the threshold. kubelet sees 2 GiB; less
// min_free_kbytes nothing is left, and the kernel agrees.
func TestB04MinFreeKbytes(t *testing.T) {
	m := readMeminfo(t, "v2-cgroupfs")
	if m.MemTotal != 256<<30 || m.KubeletAvailable() != 2<<30 || m.KernelAvailable() != 0 {
		t.Errorf("total %d, kubelet %d, kernel %d", m.MemTotal, m.KubeletAvailable(), m.KernelAvailable())
	}
	f := openTree(t, "v2-cgroupfs")
	free, err := f.MinFreeBytes()
	if err != nil || free != 4194304*1024 {
		t.Fatalf("min free %d, %v", free, err)
	}
	if got := satSub(m.KubeletAvailable(), free); got != 0 {
		t.Errorf("kubelet reading less min_free_kbytes: %d, want 0", got)
	}
	r, err := f.OpenVMStat()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	var v VMStat
	if err := r.Read(&v); err != nil || v != (VMStat{PgscanDirect: 50000, PgscanKswapd: 900000}) {
		t.Errorf("vmstat %+v, %v", v, err)
	}
}

// B10: files in a tmpfs volume are charged to the pod and to no running
// container.
func TestB10TmpfsIsChargedToThePod(t *testing.T) {
	p := openPod(t, openTree(t, "v2-cgroupfs"), "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555")
	usage, err := p.Usage()
	if err != nil || usage != 2147483648 {
		t.Errorf("pod usage %d, %v", usage, err)
	}
	var m MemoryStat
	if err := p.MemoryStat(&m); err != nil {
		t.Fatal(err)
	}
	if m.Shmem != 2040109466 || m.File != 2040109466 {
		t.Errorf("%+v", m)
	}
	if freed := satSub(usage, m.Shmem); freed != 107374182 || freed != m.Anon {
		t.Errorf("killing frees %d, want about 100 MiB", freed)
	}
	children, err := p.Children()
	if err != nil || len(children) != 1 {
		t.Fatalf("children %v, %v", children, err)
	}
	c := openPod(t, openTree(t, "v2-cgroupfs"), p.Path()+"/"+children[0])
	if usage, err := c.Usage(); err != nil || usage != 125829120 {
		t.Errorf("container usage %d, %v", usage, err)
	}
}
