package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// meminfoText is a MeminfoSource with a checked-in /proc/meminfo.
type meminfoText struct{ text string }

func (m *meminfoText) Read(i *cgroupfs.Meminfo) error {
	return cgroupfs.ParseMeminfo([]byte(m.text), i)
}

// decisions feeds samples to a sampler with one huge pod and counts the kills it
// orders.
func decisions(t *testing.T, rules Rules, src MeminfoSource, pods ...PlanPod) func(n int) int {
	t.Helper()
	s := newSamplerRig(t, rules, 0)
	s.mem = src
	return func(n int) int {
		kills := 0
		for range n {
			if s.inflight != nil {
				s.inflight.kill.advance(killSettled)
			}
			s.offer(pods...)
			if s.after(10*time.Millisecond) != nil {
				kills++
			}
		}
		return kills
	}
}

// bugs.md B01: page cache on the active list.
func TestCaseB01(t *testing.T) {
	const text = "MemTotal: 16777216 kB\nMemFree: 524288 kB\nMemAvailable: %d kB\nBuffers: 0 kB\nCached: 11534336 kB\n" +
		"SwapCached: 0 kB\nActive(file): 10485760 kB\nInactive(file): 1048576 kB\nAnonPages: 4718592 kB\n"
	src := &meminfoText{fmt.Sprintf(text, 11534336)}
	var info cgroupfs.Meminfo
	if err := src.Read(&info); err != nil || info.KubeletAvailable() != 1610612736 || info.KernelAvailable() != 11*gi {
		t.Fatalf("readings %d and %d, %v; want 1.5Gi and 11Gi", info.KubeletAvailable(), info.KernelAvailable(), err)
	}
	p, _ := hog(t, "u1", 3*gi)
	rules := Rules{Amount: 2 * gi, Floor: 100 * mi}
	run := decisions(t, rules, src, p)
	if n := run(500); n != 0 {
		t.Errorf("%d kills for page cache", n)
	}
	src.text = fmt.Sprintf(text, 1048576)
	if n := run(2); n != 1 {
		t.Errorf("%d kills when the kernel agrees, want 1", n)
	}
	// kubelet's own source, chosen by the operator, does act on it.
	src.text = fmt.Sprintf(text, 11534336)
	rules.From = FromKubelet
	if n := decisions(t, rules, src, p)(2); n != 1 {
		t.Errorf("%d kills with memoryAvailableFrom: kubelet, want 1", n)
	}
}

// bugs.md B05 and the like: absurd or missing numbers are no sample.
func TestCaseB05(t *testing.T) {
	p, _ := hog(t, "u1", 3*gi)
	for name, text := range map[string]string{
		"more available than there is": "MemTotal: 1000 kB\nMemAvailable: 2000 kB\n",
		"no total":                     "MemAvailable: 10 kB\n",
		"a total of zero":              "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
		"no available":                 "MemTotal: 16777216 kB\nMemFree: 10 kB\n",
		"negative":                     "MemTotal: 16777216 kB\nMemAvailable: -1 kB\n",
		"cut off":                      "MemTotal: 16777216 kB\nMemAvailable: 1",
		"nothing":                      "",
	} {
		t.Run(name, func(t *testing.T) {
			if n := decisions(t, hardRules, &meminfoText{text}, p)(50); n != 0 {
				t.Errorf("%d kills", n)
			}
		})
	}
}

// bugs.md B06: the root counter says nearly full, the kernel says there is room.
func TestCaseB06(t *testing.T) {
	n := newNode(0)
	n.capacity, n.system = 8*gi, 8*gi-6963*mi // MemAvailable 6.8 GiB
	n.cache = 6863 * mi                       // kubelet's reading: 0.1 GiB left
	p, _ := hog(t, "u1", 300*mi)
	if got := decisions(t, hardRules, n, p)(500); got != 0 {
		t.Errorf("%d kills on an idle node", got)
	}
}

// bugs.md B07, variant hard threshold: a kill at once, however much swap is free.
func TestCaseB07(t *testing.T) {
	p, _ := hog(t, "u1", 3*gi)
	src := &meminfoText{"MemTotal: 8388608 kB\nMemAvailable: 460800 kB\nBuffers: 0 kB\nCached: 0 kB\nInactive(file): 0 kB\nAnonPages: 7927808 kB\nSwapTotal: 8388608 kB\nSwapFree: 8283750 kB\n"}
	if n := decisions(t, hardRules, src, p)(2); n != 1 {
		t.Errorf("%d kills", n)
	}
}

// bugs.md B25: QoS is not the order; each next victim in turn.
func TestCaseB25(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "p-gu", usage: 4 * gi * 39 / 40, request: 4 * gi, parent: "/kubepods/podp-gu"})
		r.add(testPod{uid: "p-be", usage: gi, parent: "/kubepods/besteffort/podp-be"})
		r.add(testPod{uid: "p-bu", usage: 3 * gi, request: gi})
		r.node.setAvailable(5 * gi)
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		for range 3 {
			r.node.setAvailable(50 * mi)
			pass(1500 * time.Millisecond)
		}
		r.wantOutcomes("evicted p-bu", "evicted p-be", "evicted p-gu")
	})
}

// bugs.md B89: while the lists were never read, nobody is judged.
func TestCaseB89(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.runtime.listErr = errors.New("connection refused")
		c := r.add(testPod{uid: "hog", usage: 4 * gi})
		stop := r.start()
		defer stop()
		// What passed through the proxy is known, and is not enough: it may be
		// one pod of many.
		ref := inventory.Ref{Namespace: "default", Name: "hog", UID: "hog"}
		r.eng.syncer.Take(inventory.Event{Type: inventory.SandboxStarted, Time: time.Now(), Pod: ref, Sandbox: inventory.Sandbox{ID: "s-hog", Ready: true, CgroupParent: c.path}})
		r.node.setAvailable(50 * mi)
		pass(20 * time.Second)
		if len(r.eng.store.Snapshot().Pods) != 1 {
			t.Fatal("the event was lost")
		}
		if killsOf(c) != 0 {
			t.Fatal("killed by an inventory that was never read")
		}
		r.wantOutcomes("noVictim -")
		if s := r.eng.State(); s.Waiting != "no pod is known" || s.Inventory.Listed || s.Inventory.ListError == "" {
			t.Errorf("state %+v", s)
		}
		r.runtime.mu.Lock()
		r.runtime.listErr = nil
		r.runtime.mu.Unlock()
		pass(10 * time.Second)
		r.wantOutcomes("noVictim -", "evicted hog")
	})
}

// bugs.md B31: where a pod's cgroup is, in both drivers, and what class it has.
func TestCaseB31(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice": "11111111-2222-3333-4444-555555555555",
		"/kubepods/pod11111111-2222-3333-4444-555555555555":                      "11111111-2222-3333-4444-555555555555",
		"/kubepods/pod0123456789abcdef0123456789abcdef":                          "0123456789abcdef0123456789abcdef",
	} {
		t.Run(path, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.add(testPod{uid: want, usage: 2 * gi, parent: path})
				defer r.evicted(want)()
				rep := r.eng.History(1)[0]
				if c := rep.Candidates[0]; c.QoS.Value != "Guaranteed" || c.NoDirect != "" || !rep.Kill.Direct {
					t.Errorf("QoS %q, no direct kill %q", c.QoS.Value, c.NoDirect)
				}
			})
		})
	}
}
