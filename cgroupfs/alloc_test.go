package cgroupfs

import "testing"

// The alarm path must not allocate: a garbage collection at that moment costs
// more than everything else.
func TestHotReadersDoNotAllocate(t *testing.T) {
	for _, tree := range trees() {
		f := openTree(t, tree.name)
		p := openPod(t, f, tree.burstable)
		meminfo, err := f.OpenMeminfo()
		if err != nil {
			t.Fatal(err)
		}
		vmstat, err := f.OpenVMStat()
		if err != nil {
			t.Fatal(err)
		}
		root, err := f.OpenRootMemory()
		if err != nil {
			t.Fatal(err)
		}
		var m Meminfo
		var v VMStat
		for name, call := range map[string]func() error{
			"meminfo": func() error { return meminfo.Read(&m) },
			"vmstat":  func() error { return vmstat.Read(&v) },
			"root":    func() error { _, _, err := root.Read(); return err },
			"usage":   func() error { _, err := p.Usage(); return err },
		} {
			var failed error
			n := testing.AllocsPerRun(200, func() {
				if err := call(); err != nil {
					failed = err
				}
			})
			if n != 0 || failed != nil {
				t.Errorf("%s: %s: %v allocations, %v", tree.name, name, n, failed)
			}
		}
		for _, c := range []interface{ Close() error }{meminfo, vmstat, root} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// v2 asks the kernel for the state of a subtree with one read.
func TestPopulatedDoesNotAllocateOnV2(t *testing.T) {
	p := openPod(t, openTree(t, "v2-systemd"), systemdBurstable)
	var failed error
	n := testing.AllocsPerRun(200, func() {
		if _, err := p.Populated(); err != nil {
			failed = err
		}
	})
	if n != 0 || failed != nil {
		t.Errorf("%v allocations, %v", n, failed)
	}
}

// The kill of the alarm path is one write to a kept descriptor.
func TestKillDoesNotAllocateOnV2(t *testing.T) {
	_, r := copyTree(t, "v2-systemd")
	writeFile(t, "", r.Cgroup, systemdBurstable, "cgroup.kill")
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	p := openPod(t, f, systemdBurstable)
	var failed error
	n := testing.AllocsPerRun(200, func() {
		if _, err := p.Kill(KillOptions{}); err != nil {
			failed = err
		}
	})
	if n != 0 || failed != nil {
		t.Errorf("%v allocations, %v", n, failed)
	}
}
