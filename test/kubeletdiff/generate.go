package kubeletdiff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
)

const mi = 1 << 20

// generator makes scenarios; the same seed makes the same scenario.
type generator struct{ *rand.Rand }

// Generate makes the scenario of a seed about a signal.
func Generate(seed uint64, focus eviction.Signal, layout Layout) *Scenario {
	g := generator{rand.New(rand.NewPCG(seed, 0x6b75626564696666))}
	s := &Scenario{
		Seed: seed, Focus: focus, Layout: layout,
		Hard: map[string]string{}, Soft: map[string]string{}, SoftGrace: map[string]string{}, MinReclaim: map[string]string{},
		MaxPodGrace: int64(g.IntN(40)),
		Transition:  time.Duration(1+g.IntN(60)) * time.Second,
	}
	levels := g.thresholds(s)
	barred := g.chance(15) // a node of which kubelet takes nobody
	for i := range 1 + g.IntN(8) {
		p := g.pod(i)
		if barred && !p.isCritical() {
			p.Static = true
		}
		s.Pods = append(s.Pods, p)
	}
	for range 3 + g.IntN(4) {
		s.Steps = append(s.Steps, g.step(s, levels))
	}
	return s
}

// chance is true n times out of 100.
func (g generator) chance(n int) bool { return g.IntN(100) < n }

// level is an amount at which something changes.
type level struct {
	signal eviction.Signal
	amount uint64
	// rounded: kubelet's float32 percentage may be off by some units.
	rounded bool
}

// thresholds configures the focus, and at times another signal beside it. It
// returns the amounts near which the steps are.
func (g generator) thresholds(s *Scenario) []level {
	focus := s.Layout.thresholdsOf(s.Focus)
	signals := []eviction.Signal{focus}
	if others := g.others(focus); g.chance(25) {
		signals = append(signals, others[g.IntN(len(others))])
	}
	if focus != s.Focus && g.chance(50) { // written, and of no effect
		s.Hard[string(s.Focus)] = fmt.Sprint(capacityOf(s.Focus) / 2)
	}
	var levels []level
	for _, sig := range signals {
		top := capacityOf(sig)
		hard := top/100*uint64(1+g.IntN(20)) + uint64(g.IntN(3))
		soft := hard + top/100*uint64(g.IntN(10)) // at times below or at the hard one
		if g.chance(10) {
			soft = hard - hard/4
		}
		mode := g.IntN(4) // hard, soft, both, both
		if mode != 1 {
			levels = append(levels, g.amount(s.Hard, sig, hard))
		}
		if mode != 0 {
			levels = append(levels, g.amount(s.Soft, sig, soft))
			s.SoftGrace[string(sig)] = (time.Duration(1+g.IntN(20000)) * time.Millisecond).String()
		}
		if g.chance(50) {
			levels = append(levels, g.reclaim(s, sig, levels)...)
		}
	}
	// A written allocatable threshold is one more in kubelet and replaces the clone
	// in ours (TestDeparturesWithoutASwitch).
	if s.Hard[string(eviction.AllocatableMemoryAvailable)] == "" && s.Hard[string(eviction.MemoryAvailable)] != "" {
		s.EnforcePods = g.chance(40)
	}
	if s.EnforcePods {
		for _, l := range levels {
			if l.signal == eviction.MemoryAvailable {
				l.signal = eviction.AllocatableMemoryAvailable
				if l.rounded { // the same percentage of less
					l.amount /= nodeBytes / capacityOf(l.signal)
				}
				levels = append(levels, l)
			}
		}
	}
	return levels
}

// others are the signals that can be configured, but for one.
func (g generator) others(than eviction.Signal) []eviction.Signal {
	var out []eviction.Signal
	for _, sig := range eviction.Signals() {
		switch sig {
		case than, eviction.AllocatableMemoryAvailable, eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree:
		default:
			out = append(out, sig)
		}
	}
	return out
}

// reclaim configures a minimum reclaim and returns the levels it makes.
func (g generator) reclaim(s *Scenario, sig eviction.Signal, levels []level) []level {
	top := capacityOf(sig)
	n, rounded := top/200*uint64(1+g.IntN(10)), false
	text := fmt.Sprint(n)
	if g.chance(30) {
		percent := uint64(1 + g.IntN(5))
		n, rounded, text = top/100*percent, true, fmt.Sprintf("%d%%", percent)
	}
	s.MinReclaim[string(sig)] = text
	var out []level
	for _, l := range levels {
		if l.signal == sig {
			out = append(out, level{sig, l.amount + n, l.rounded || rounded})
		}
	}
	return out
}

// amount writes a threshold of about this much and returns what it means.
func (g generator) amount(to map[string]string, sig eviction.Signal, about uint64) level {
	top := capacityOf(sig)
	if percent := about * 100 / top; percent > 0 && g.chance(30) {
		to[string(sig)] = fmt.Sprintf("%d%%", percent)
		return level{sig, top / 100 * percent, true}
	}
	about = max(about, 1)
	to[string(sig)] = fmt.Sprint(about)
	return level{sig, about, false}
}

// capacityOf is the capacity of a signal, in its unit.
func capacityOf(sig eviction.Signal) uint64 {
	switch sig {
	case eviction.PIDAvailable:
		return 32768
	case eviction.NodeFsInodesFree, eviction.ImageFsInodesFree, eviction.ContainerFsInodesFree:
		return 4_000_000
	case eviction.AllocatableMemoryAvailable:
		return nodeBytes / 2
	}
	return nodeBytes
}

func (g generator) pod(i int) Pod {
	p := Pod{Name: fmt.Sprintf("p%d", i)}
	switch n := g.IntN(20); {
	case n < 3: // no priority
	case n < 4:
		p.Priority = ptr(int32(critical + g.IntN(2)*1000))
	case n < 5:
		p.Priority = ptr(int32(critical - 1))
	default:
		p.Priority = ptr(int32(g.IntN(4)*1000 - 1000))
	}
	p.Static = g.chance(4)
	if g.chance(80) {
		p.Grace = ptr(int64(g.IntN(60)))
	}
	for range 1 + g.IntN(3) {
		p.Containers = append(p.Containers, g.request())
	}
	if g.chance(20) {
		for range 1 + g.IntN(2) {
			p.Init, p.Sidecars = append(p.Init, g.request()), append(p.Sidecars, g.chance(50))
		}
	}
	if g.chance(10) {
		p.Overhead = 64 * mi
	}
	if g.chance(10) {
		p.PodLevel = ptr(g.request())
	}
	if g.chance(50) {
		p.Storage = int64(1+g.IntN(8)) * 128 * mi
	}
	if g.chance(50) {
		p.Inactive = uint64(g.IntN(512)) * mi
	}
	return p
}

// request is a memory request; equal ones are likely.
func (g generator) request() int64 {
	switch g.IntN(4) {
	case 0:
		return 0
	case 1:
		return 256 * mi
	}
	return int64(g.IntN(16)) * 64 * mi
}

func (g generator) step(s *Scenario, levels []level) Step {
	st := Step{Available: map[eviction.Signal]uint64{}}
	for _, sig := range eviction.Signals() {
		st.Available[sig] = capacityOf(sig) / 4 * 3
	}
	for _, l := range levels {
		top := capacityOf(l.signal)
		if g.chance(45) {
			continue // calm, or what another level made of it
		}
		around := int64(l.amount)
		n := g.IntN(8)
		if s.Layout.rounded(l.signal, levels) {
			n += 3
		}
		switch n {
		case 0: // just at it
		case 1:
			around--
		case 2:
			around++
		case 3:
			around = int64(g.IntN(int(l.amount)))
		default:
			around += (2*int64(g.IntN(1000)) - 1199) * int64(top) / 100_000
		}
		st.Available[s.Layout.source(l.signal)] = uint64(max(0, min(around, int64(top))))
	}
	if g.chance(50) {
		st.Garbage = Garbage{Containers: g.garbage(), Images: g.garbage()}
	}
	switch g.IntN(4) {
	case 0:
		st.Lasts = time.Duration(g.IntN(25)) * time.Second
	case 1:
		st.Lasts = time.Duration(g.IntN(8)) * time.Second
	}
	for i := range s.Pods {
		st.Pods = append(st.Pods, g.use(&s.Pods[i]))
	}
	return st
}

// rounded says whether a threshold about the same device is a percentage, which
// kubelet's float32 may put some units off.
func (l Layout) rounded(sig eviction.Signal, levels []level) bool {
	return slices.ContainsFunc(levels, func(o level) bool { return o.rounded && l.source(o.signal) == l.source(sig) })
}

// use lies around the pod's request, so that excesses are of both signs; equal
// ones are likely.
func (g generator) use(p *Pod) Use {
	u := Use{Measured: !g.chance(4)}
	request := p.request(v1.ResourceMemory)
	u.Layer, u.Logs, u.Volume = g.files(p), g.files(p), g.files(p)
	u.Processes = uint64(g.IntN(6) * 10)
	switch g.IntN(6) {
	case 0:
		u.Memory = uint64(request)
	case 1:
		u.Memory = uint64(request) + 128*mi
	case 2:
		u.Memory = uint64(request / 2)
	case 3:
		u.Memory = uint64(g.IntN(3)) * 4096
	default:
		u.Memory = uint64(g.IntN(2048)) * mi
	}
	return u
}

// garbage is often enough, and often not.
func (g generator) garbage() Files {
	part := g.IntN(3) // none, a little, much
	return Files{
		Bytes:  capacityOf(eviction.NodeFsAvailable) / 100 * uint64(part*g.IntN(8)),
		Inodes: capacityOf(eviction.NodeFsInodesFree) / 100 * uint64(part*g.IntN(8)),
	}
}

// files are often equal, and often none.
func (g generator) files(p *Pod) Files {
	switch g.IntN(4) {
	case 0:
		return Files{}
	case 1:
		return Files{Bytes: uint64(p.Storage) / 2, Inodes: 100}
	case 2:
		return Files{Bytes: uint64(g.IntN(4)) * 128 * mi, Inodes: uint64(g.IntN(4)) * 1000}
	}
	return Files{Bytes: uint64(g.IntN(1<<30)) &^ 4095, Inodes: uint64(g.IntN(100_000))}
}

func ptr[T any](v T) *T { return &v }
