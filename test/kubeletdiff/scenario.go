package kubeletdiff

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// Layout is where images and writable layers lie.
type Layout string

// The layouts that kubelet tells apart.
const (
	SingleFs  Layout = "single"
	ImageFs   Layout = "imagefs" // images and writable layers apart from kubelet's directory
	SplitFs   Layout = "split"   // only images apart
	critical         = 2_000_000_000
	nodeBytes        = 16 << 30
)

// Scenario is everything both sides are given. A scenario without a Step decides
// nothing.
type Scenario struct {
	Seed   uint64
	Focus  eviction.Signal // the signal the scenario is about
	Layout Layout

	// Thresholds as they are written in KubeletConfiguration.
	Hard, Soft, SoftGrace, MinReclaim map[string]string
	MaxPodGrace                       int64 // seconds
	Transition                        time.Duration
	EnforcePods                       bool // enforceNodeAllocatable has "pods"
	// NoImageFs: the runtime names no file system of its images.
	NoImageFs bool

	Pods  []Pod
	Steps []Step
}

// Pod is what does not change of one pod.
type Pod struct {
	Name     string
	Priority *int32
	Static   bool
	Grace    *int64 // terminationGracePeriodSeconds
	// Containers are the memory requests of its containers; Init of its init
	// containers, Sidecars says which of those are sidecars.
	Containers, Init []int64
	Sidecars         []bool
	Overhead         int64
	PodLevel         *int64
	// Storage is the ephemeral-storage request of its first container.
	Storage int64
	// Inactive is page cache that is charged to it and not part of its working set.
	Inactive uint64
}

// Step is the world from one moment on.
type Step struct {
	Available map[eviction.Signal]uint64
	Pods      []Use // as Scenario.Pods
	Garbage   Garbage
	// Lasts is how long it goes on at least once everybody is at rest.
	Lasts time.Duration
}

// Garbage is what dead containers and unused images have on disk.
type Garbage struct{ Containers, Images Files }

// Use is what a pod uses. Measured is false when nobody can tell.
type Use struct {
	Measured bool
	Memory   uint64 // working set, bytes
	// Layer, Logs and Volume are its writable layer, its logs and a disk emptyDir.
	Layer, Logs, Volume Files
	Processes           uint64
}

// Files are what a part of a pod has on disk.
type Files struct{ Bytes, Inodes uint64 }

// grace is the grace period of the soft threshold that a signal has.
func (s *Scenario) grace(sig eviction.Signal) time.Duration {
	d, err := time.ParseDuration(s.SoftGrace[string(s.Layout.thresholdsOf(sig))])
	if err != nil {
		return 0
	}
	return d
}

// String prints the scenario to be read.
func (s *Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, focus %s, layout %s, max pod grace %ds, transition %s, allocatable enforced %t\n", s.Seed, s.Focus, s.Layout, s.MaxPodGrace, s.Transition, s.EnforcePods)
	for _, m := range []struct {
		name string
		of   map[string]string
	}{{"hard", s.Hard}, {"soft", s.Soft}, {"soft grace", s.SoftGrace}, {"min reclaim", s.MinReclaim}} {
		if len(m.of) > 0 {
			fmt.Fprintf(&b, "  %s: %s\n", m.name, join(m.of))
		}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		fmt.Fprintf(&b, "  pod %s: priority %s, requests %v init %v sidecars %v overhead %d pod %s storage %d, grace %s, static %t, inactive %d\n",
			p.Name, opt(p.Priority), p.Containers, p.Init, p.Sidecars, p.Overhead, opt(p.PodLevel), p.Storage, opt(p.Grace), p.Static, p.Inactive)
	}
	for i, st := range s.Steps {
		fmt.Fprintf(&b, "  step %d, at least %s, garbage %v:", i, st.Lasts, st.Garbage)
		for _, sig := range eviction.Signals() {
			if v, ok := st.Available[sig]; ok {
				fmt.Fprintf(&b, " %s=%d", sig, v)
			}
		}
		for j, u := range st.Pods {
			if !u.Measured {
				fmt.Fprintf(&b, " %s:?", s.Pods[j].Name)
			} else {
				fmt.Fprintf(&b, " %s:%s", s.Pods[j].Name, s.useText(u))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// useText is what the focus sees of a use.
func (s *Scenario) useText(u Use) string {
	switch s.Focus {
	case eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable:
		return fmt.Sprint(u.Memory)
	case eviction.PIDAvailable:
		return fmt.Sprint(u.Processes)
	}
	return fmt.Sprintf("layer %v logs %v volume %v", u.Layer, u.Logs, u.Volume)
}

func join(m map[string]string) string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for i, k := range keys {
		keys[i] = k + "<" + m[k]
	}
	return strings.Join(keys, ", ")
}

func opt[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}
