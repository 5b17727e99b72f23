package eviction

import (
	"fmt"
	"time"
)

// MemoryAvailableFrom selects the reading that memory.available is compared
// with.
type MemoryAvailableFrom uint8

const (
	// Verified needs both readings to agree, or the kernel's and steady direct
	// reclaim (design §7).
	Verified MemoryAvailableFrom = iota
	// FromKubelet is kubelet's working-set reading alone.
	FromKubelet
	// FromKernel is the kernel's MemAvailable alone.
	FromKernel
)

// String returns the word used in the configuration.
func (f MemoryAvailableFrom) String() string {
	switch f {
	case FromKubelet:
		return "kubelet"
	case FromKernel:
		return "kernel"
	default:
		return "verified"
	}
}

// ParseMemoryAvailableFrom is the inverse of String.
func ParseMemoryAvailableFrom(s string) (MemoryAvailableFrom, error) {
	for _, f := range []MemoryAvailableFrom{Verified, FromKubelet, FromKernel} {
		if s == f.String() {
			return f, nil
		}
	}
	return Verified, fmt.Errorf("must be verified, kubelet or kernel")
}

// MemorySample is one reading of the node's memory, all amounts in bytes and
// from one read of /proc/meminfo.
type MemorySample struct {
	At       time.Time
	Capacity uint64 // MemTotal
	Kernel   uint64 // MemAvailable
	Kubelet  uint64 // MemTotal − working set − huge page pools
	MinFree  uint64 // vm.min_free_kbytes
	// DirectScan is pgscan_direct of /proc/vmstat in pages since boot; valid
	// when HasDirectScan.
	DirectScan    uint64
	HasDirectScan bool
	// SwapTotal and SwapFree play no part in a hard decision; they are for the
	// reader.
	SwapTotal, SwapFree uint64
}

const (
	// scanWindow is how long pgscan_direct must have risen without a break to
	// stand in for the second reading.
	scanWindow = time.Second
	// scanSpacing keeps the comparison of two pgscan readings meaningful: in
	// 2 ms even a reclaiming kernel may not have finished a batch.
	scanSpacing = 10 * time.Millisecond
	// scanGap is the longest distance of two pgscan readings that still counts
	// as unbroken observation.
	scanGap = 250 * time.Millisecond
)

// directReclaim follows pgscan_direct and knows since when it has been rising
// in every sample.
type directReclaim struct {
	last   uint64
	lastAt time.Time
	since  time.Time
	rising bool
	known  bool
}

// observe takes one sample. It ignores samples closer than scanSpacing to the
// previous one.
func (d *directReclaim) observe(s *MemorySample) {
	if !s.HasDirectScan {
		*d = directReclaim{}
		return
	}
	if !d.known {
		*d = directReclaim{last: s.DirectScan, lastAt: s.At, known: true}
		return
	}
	gap := s.At.Sub(d.lastAt)
	if gap < scanSpacing {
		return
	}
	rose := s.DirectScan > d.last && gap <= scanGap
	switch {
	case !rose:
		d.rising = false
	case !d.rising:
		d.rising, d.since = true, d.lastAt
	}
	d.last, d.lastAt = s.DirectScan, s.At
}

// steady says whether pgscan_direct rose in every sample of the last second.
func (d *directReclaim) steady(now time.Time) bool {
	return d.rising && now.Sub(d.since) >= scanWindow && now.Sub(d.lastAt) <= scanGap
}

// MemoryVerdict is what one sample means for the hard threshold.
type MemoryVerdict struct {
	// Available is the number compared with the threshold, in bytes.
	Available uint64
	// KernelMet and KubeletMet say what each reading alone would have said;
	// kubelet's is taken less min_free_kbytes, which nobody can allocate.
	KernelMet  bool
	KubeletMet bool
	// DirectReclaim says that direct reclaim stood in for kubelet's reading.
	DirectReclaim bool
	// Met: Available lies below the threshold. Half: below half of it.
	Met  bool
	Half bool
}

// judge compares a sample with a threshold of amount bytes. steadyReclaim is
// directReclaim.steady.
func judge(from MemoryAvailableFrom, s *MemorySample, amount uint64, steadyReclaim bool) MemoryVerdict {
	usable := s.Kubelet - min(s.Kubelet, s.MinFree)
	v := MemoryVerdict{
		KernelMet:  Met(s.Kernel, amount),
		KubeletMet: Met(usable, amount),
	}
	switch from {
	case FromKernel:
		v.Available = s.Kernel
	case FromKubelet:
		// exactly kubelet's number, min_free_kbytes included
		v.Available = s.Kubelet
	default:
		v.Available = max(s.Kernel, usable)
		if v.KernelMet && !v.KubeletMet && steadyReclaim {
			v.Available, v.DirectReclaim = s.Kernel, true
		}
	}
	v.Met = Met(v.Available, amount)
	v.Half = Met(v.Available, amount/2)
	return v
}
