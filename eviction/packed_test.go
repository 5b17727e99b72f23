package eviction

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/internal/fakenode"
)

// packedNode is a node whose Guaranteed pods use all of Allocatable, with the
// settings that are made of the default configuration.
type packedNode struct {
	*rig
	fakenode.Node
	pods []*fakeCgroup

	mu  sync.Mutex
	use fakenode.Use // of the Guaranteed pods
	hog *fakeCgroup
}

const packedPods = 10

func newPacked(t *testing.T, n fakenode.Node) *packedNode {
	t.Helper()
	p := &packedNode{rig: newRig(t), Node: n, use: n.Full()}
	p.set.Rules = Rules{Amount: AutoMemory(n.Total, n.MinFree, n.KubeletHard), Floor: n.KubeletHard, SmallGainLast: true}
	p.set.Allocatable = p.set.Rules // the clone
	p.meminfo, p.minFree, p.scan = &packedInfo{p: p}, n.MinFree, packedScan{}
	p.openPods = func() (PodsMemory, error) { return packedPodsMemory{p}, nil }
	for i := range packedPods {
		uid, size := fmt.Sprintf("gu-%d", i), p.share(i)
		c := p.add(testPod{uid: uid, usage: size, request: int64(size), parent: "/kubepods/pod" + uid})
		c.inactive = p.use.InactiveFile / packedPods
		p.pods = append(p.pods, c)
	}
	return p
}

// share is what one of the pods asked for and uses.
func (p *packedNode) share(i int) uint64 {
	share := p.Allocatable() / packedPods
	if i == 0 {
		return p.Allocatable() - share*(packedPods-1)
	}
	return share
}

// now is the memory in use. What the kernel needs to keep free it takes from the
// pods' page cache, inactive first.
func (p *packedNode) now() fakenode.Use {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.use
	if p.hog != nil {
		u.Anon += p.hog.bytes()
	}
	for i, c := range p.pods {
		if c.bytes() == 0 { // it was killed
			u.Anon -= min(u.Anon, p.share(i))
		}
	}
	lacking := uint64(max(int64(p.High())-p.Free(u), 0))
	for _, file := range []*uint64{&u.InactiveFile, &u.ActiveFile} {
		taken := min(lacking, *file)
		*file -= taken
		lacking -= taken
	}
	if p.hog == nil && p.Free(u) < int64(p.MinFree) {
		p.t.Errorf("%d bytes are free: no kernel gets there", p.Free(u))
	}
	return u
}

// packedInfo is the node's /proc/meminfo.
type packedInfo struct {
	p    *packedNode
	last fakenode.Use
	info cgroupfs.Meminfo // of last
}

func (i *packedInfo) Read(m *cgroupfs.Meminfo) (err error) {
	if now := i.p.now(); now != i.last {
		i.last = now
		err = cgroupfs.ParseMeminfo([]byte(i.p.Meminfo(now)), &i.info)
	}
	*m = i.info
	return err
}

// packedScan says that the kernel reclaims in every sample, as where there is no
// page to spare.
type packedScan struct{}

func (packedScan) Read(v *cgroupfs.VMStat) error {
	v.PgscanDirect = uint64(time.Now().UnixMicro())
	return nil
}

// packedPodsMemory is the pods' cgroup.
type packedPodsMemory struct{ p *packedNode }

func (m packedPodsMemory) Path() string           { return "/kubepods" }
func (m packedPodsMemory) Limit() (uint64, error) { return m.p.PodsLimit(), nil }
func (m packedPodsMemory) Close() error           { return nil }

func (m packedPodsMemory) Usage() (uint64, error) {
	u := m.p.now()
	return u.Anon + u.ActiveFile + u.InactiveFile, nil
}

func (m packedPodsMemory) Stat(s *cgroupfs.MemoryStat) error {
	u := m.p.now()
	*s = cgroupfs.MemoryStat{Anon: u.Anon, File: u.ActiveFile + u.InactiveFile, InactiveFile: u.InactiveFile, ActiveFile: u.ActiveFile}
	return nil
}

// breathe lets time pass in which the pods give some memory back and take it
// again, and page cache changes its list.
func (p *packedNode) breathe(d time.Duration) {
	full := p.Full()
	for at := time.Duration(0); at < d; at += 5 * time.Second {
		p.mu.Lock()
		p.use = full
		switch at / (5 * time.Second) % 4 {
		case 1:
			p.use.Anon -= 64 * mi
		case 3:
			p.use.InactiveFile, p.use.ActiveFile = full.ActiveFile, full.InactiveFile
		}
		p.mu.Unlock()
		pass(5 * time.Second)
	}
}

func (p *packedNode) guaranteedKills() (n int) {
	for _, c := range p.pods {
		n += killsOf(c) + pidfdsOf(c)
	}
	return n
}

// A fully packed node, as kubeadm and Amazon reserve: Guaranteed pods use all of
// Allocatable for ten minutes, and nobody is killed, by either signal.
func TestPackedNode(t *testing.T) {
	for _, n := range fakenode.Packed() {
		t.Run(n.Name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPacked(t, n)
				stop := p.start()
				defer stop()
				p.breathe(10 * time.Minute)
				if got := p.guaranteedKills(); got != 0 || len(p.runtime.stopped()) != 0 || len(p.writer.Records()) != 0 {
					t.Errorf("%d kills, stopped %q, decisions %q", got, p.runtime.stopped(), p.outcomes())
				}
				m := p.eng.State().Memory
				t.Logf("threshold %dMi, floor %dMi; memory.available %dMi by the kernel, %dMi by kubelet",
					m.Threshold/mi, m.Floor/mi, m.AvailableKernel/mi, m.AvailableKubelet/mi)
				if a := p.eng.sampler.allocatable.latest.available.Load(); a < n.KubeletHard || a >= p.set.Allocatable.Amount && n.PodsFile == 0 {
					t.Errorf("allocatableMemory.available is %dMi: the node is not packed", a/mi)
				}
				// That the early band spares them is said, once per breach.
				for _, o := range p.outcomes() {
					if o != "noVictim -" {
						t.Errorf("decision %q", o)
					}
				}
			})
		})
	}
}

// The same node and one BestEffort pod that takes what is left, slowly, fast and
// very fast: it dies, and no Guaranteed pod does.
func TestPackedNodeWithAHog(t *testing.T) {
	for _, n := range fakenode.Packed() {
		for _, rate := range []uint64{20 * mi, 200 * mi, 1000 * mi} {
			t.Run(fmt.Sprintf("%s, %d MiB/s", n.Name, rate/mi), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newPacked(t, n)
					stop := p.start()
					defer stop()
					pass(10 * time.Second)
					spec := testPod{uid: "hog", usage: 0, parent: "/kubepods/besteffort/podhog"}
					c := p.add(spec)
					p.mu.Lock()
					p.hog = c
					p.mu.Unlock()
					p.eng.syncer.MarkDirty()          // as the proxy tells of its start
					pass(200 * time.Millisecond)      // a process has to be loaded
					const step = 5 * time.Millisecond // what the fast half is given a CPU for
					for p.now().Anon < n.Total+gi {   // more than there is
						if killsOf(c) > 0 {
							break
						}
						c.change(func(c *fakeCgroup) { c.current += rate * uint64(step) / uint64(time.Second) })
						pass(step)
					}
					pass(20 * time.Second)
					if killsOf(c) != 1 {
						t.Errorf("the hog was killed %d times", killsOf(c))
					}
					if got := p.guaranteedKills(); got != 0 {
						t.Errorf("%d kills of Guaranteed pods: %q", got, p.outcomes())
					}
					evicted := 0
					for _, o := range p.outcomes() {
						if strings.HasPrefix(o, "evicted") {
							evicted++
						}
					}
					if evicted != 1 {
						t.Errorf("decisions %q", p.outcomes())
					}
				})
			})
		}
	}
}

// Where the pods' memory is all anonymous, kubeadm's reservations leave less than
// the kernel keeps free: below the floor every pod can be taken, by kubelet as
// well. check says how much has to be reserved.
func TestPackedNodeWithoutReservations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := fakenode.Node{Total: 16 * gi, MinFree: 66 * mi, KubeletHard: 100 * mi}
		p := newPacked(t, n)
		stop := p.start()
		defer stop()
		pass(10 * time.Minute)
		if got := p.guaranteedKills(); got != 1 {
			t.Errorf("%d kills, want one that makes room: %q", got, p.outcomes())
		}
	})
}
