package eviction

import (
	"testing"
	"time"
)

var t0 = time.Unix(1_700_000_000, 0)

func sample(at time.Duration, kernel, kubelet uint64) MemorySample {
	return MemorySample{At: t0.Add(at), Capacity: 16 * gi, Kernel: kernel, Kubelet: kubelet}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name              string
		from              MemoryAvailableFrom
		kernel, kubelet   uint64
		minFree, amount   uint64
		steady, met, half bool
		available         uint64
	}{
		{"B01: page cache lowers kubelet's reading alone", Verified, 11 * gi, 1610612736, 0, 2 * gi, false, false, false, 11 * gi},
		{"B01: kubelet's own source would kill", FromKubelet, 11 * gi, 1610612736, 0, 2 * gi, false, true, false, 1610612736},
		{"B01: then the kernel agrees", Verified, 1 << 30, 1610612736, 0, 2 * gi, false, true, false, 1610612736},
		{"the kernel's reading alone is not enough", Verified, 100 * mi, 3 * gi, 0, 500 * mi, false, false, false, 3 * gi},
		{"steady direct reclaim stands in for it", Verified, 100 * mi, 3 * gi, 0, 500 * mi, true, true, true, 100 * mi},
		{"direct reclaim alone is nothing", Verified, 3 * gi, 3 * gi, 0, 500 * mi, true, false, false, 3 * gi},
		{"B04: min_free_kbytes is nobody's", Verified, 0, 2 * gi, 4 * gi, 100 * mi, false, true, true, 0},
		{"kernel alone by configuration", FromKernel, 100 * mi, 3 * gi, 0, 500 * mi, false, true, true, 100 * mi},
		{"below half", Verified, 240 * mi, 200 * mi, 0, 500 * mi, false, true, true, 240 * mi},
		{"equal is not below", Verified, 500 * mi, 100 * mi, 0, 500 * mi, false, false, false, 500 * mi},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := MemorySample{At: t0, Capacity: 16 * gi, Kernel: tt.kernel, Kubelet: tt.kubelet, MinFree: tt.minFree}
			v := judge(tt.from, &s, tt.amount, tt.steady)
			if v.Met != tt.met || v.Half != tt.half || v.Available != tt.available {
				t.Errorf("met %v half %v available %d, want %v %v %d", v.Met, v.Half, v.Available, tt.met, tt.half, tt.available)
			}
		})
	}
}

func TestDirectReclaimMustBeSteady(t *testing.T) {
	feed := func(d *directReclaim, at time.Duration, pages uint64) {
		d.observe(&MemorySample{At: t0.Add(at), DirectScan: pages, HasDirectScan: true})
	}
	rise := func(d *directReclaim, from, to time.Duration, pages uint64) (time.Duration, uint64) {
		at := from
		for ; at <= to; at += 10 * time.Millisecond {
			pages += 100
			feed(d, at, pages)
		}
		return at, pages
	}
	t.Run("a second of rising counts", func(t *testing.T) {
		var d directReclaim
		at, _ := rise(&d, 0, 990*time.Millisecond, 0)
		if d.steady(t0.Add(at - 10*time.Millisecond)) {
			t.Error("steady before a second has passed")
		}
		at, _ = rise(&d, at, at+20*time.Millisecond, 100_000)
		if !d.steady(t0.Add(at - 10*time.Millisecond)) {
			t.Error("not steady after a second of rising")
		}
	})
	t.Run("one flat sample starts anew", func(t *testing.T) {
		var d directReclaim
		at, pages := rise(&d, 0, 2*time.Second, 0)
		feed(&d, at, pages)
		if d.steady(t0.Add(at)) {
			t.Error("steady although the last sample did not rise")
		}
		at, _ = rise(&d, at+10*time.Millisecond, at+500*time.Millisecond, pages)
		if d.steady(t0.Add(at)) {
			t.Error("steady half a second after a flat sample")
		}
	})
	t.Run("a gap in the samples starts anew", func(t *testing.T) {
		var d directReclaim
		at, pages := rise(&d, 0, 2*time.Second, 0)
		feed(&d, at+time.Second, pages+1000)
		if d.steady(t0.Add(at + time.Second)) {
			t.Error("steady over a second without samples")
		}
	})
	t.Run("old evidence is none", func(t *testing.T) {
		var d directReclaim
		at, _ := rise(&d, 0, 2*time.Second, 0)
		if d.steady(t0.Add(at + time.Second)) {
			t.Error("steady a second after the last sample")
		}
	})
	t.Run("no vmstat is no evidence", func(t *testing.T) {
		var d directReclaim
		rise(&d, 0, 2*time.Second, 0)
		d.observe(&MemorySample{At: t0.Add(2 * time.Second)})
		if d.steady(t0.Add(2 * time.Second)) {
			t.Error("steady without a reading")
		}
	})
}
