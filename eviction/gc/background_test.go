package gc

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// bugs.md B76: bytes 45 % used, inodes 94 %: images go until 15 % of the inodes are
// free.
func TestCaseB76(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 55*gi)
		m.fs.InodesFree = 60_000
		for i := range 10 {
			id := fmt.Sprintf("i%d", i)
			m.image(id, 1<<20, time.Duration(20-i)*time.Hour)
			m.frees[id] = release{bytes: 1 << 20, inodes: 40_000}
		}
		if err := m.c.round(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("i0", "i1", "i2") // 180,000 of a million
		if n := m.c.Counts(); countOf(n, KindImage, ForWatermark) != 3 || n.Unused != 10 {
			t.Errorf("%+v", n)
		}
	})
}

func countOf(n Counts, kind, why string) uint64 {
	for _, c := range n.Removed {
		if c.Kind == kind && c.Why == why && !c.Failed {
			return c.Count
		}
	}
	return 0
}

// Between the watermarks nothing begins, and what has begun ends at the low one.
func TestWatermarks(t *testing.T) {
	for _, c := range []struct {
		name      string
		free      uint64
		high, low int
		want      int
	}{
		{"below the high one", 16 * gi, 85, 80, 0},
		{"just above", 15 * gi, 85, 80, 3},
		{"turned off", 0, 100, 80, 0},
		{"all of it", 1, 10, 0, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMachine(t, c.free)
				m.set.High, m.set.Low = c.high, c.low
				for i := range 20 {
					m.image(fmt.Sprintf("i%d", i), 2*gi, time.Duration(40-i)*time.Hour)
				}
				if err := m.c.round(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				if len(m.removed) != c.want {
					t.Errorf("removed %d, want %d", len(m.removed), c.want)
				}
			})
		})
	}
}

func TestMaximumAgeGoesWithoutPressure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 90*gi)
		m.set.MaxAge = 3 * time.Hour
		m.image("old", gi, 4*time.Hour)
		m.image("older", 0, 5*time.Hour)
		m.frees["older"] = release{}
		m.image("young", gi, time.Hour)
		if err := m.c.round(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("older", "old")
		if n := countOf(m.c.Counts(), KindImage, ForAge); n != 2 {
			t.Errorf("counted %d", n)
		}
	})
}

// bugs.md B79: of 20,000 dead containers the oldest that are safe to remove go, 20
// a second, until fewer than 2,000 are left.
func TestCaseB79(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 90*gi)
		for p := range 100 {
			for i := range 200 {
				m.container(fmt.Sprintf("p%d", p), "main", uint32(i), Exited, time.Duration(300-i)*time.Minute, "docker.io/library/app:1")
			}
		}
		start := time.Now()
		if err := m.c.round(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		left, took := len(m.listing.Containers), time.Since(start)
		if left != deadMost-1 || took < 18000*deadPace || took > 18003*deadPace {
			t.Errorf("%d left after %s", left, took)
		}
		for p := range 100 {
			if at, gone := m.removals[fmt.Sprintf("p%d/main/199", p)]; gone {
				t.Fatalf("the newest of p%d was removed at %s", p, at)
			}
		}
		if m.calls["MountedImages"] != 0 {
			t.Errorf("%d containers were asked about", m.calls["MountedImages"])
		}
	})
}

// bugs.md B82: what is asked about single containers is asked once, and no more
// than 50 a second; finished pods' are not asked about.
func TestCaseB82(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 90*gi)
		m.image("app", gi, time.Hour)
		for p := range 2000 {
			m.container(fmt.Sprintf("done%d", p), "main", 0, Exited, time.Hour, "docker.io/library/app:1")
		}
		for p := range 200 {
			m.container(fmt.Sprintf("live%d", p), "main", 0, Running, time.Hour, "docker.io/library/app:1")
		}
		start := time.Now()
		for range 3 {
			if err := m.c.round(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
		if m.calls["List"] > 3+3 || m.calls["MountedImages"] != 200 || m.calls["SandboxImage"] != 200 {
			t.Errorf("calls: %v", m.calls)
		}
		if took := time.Since(start); took < 340*time.Second/asksPerSecond {
			t.Errorf("400 questions took %s", took)
		}
	})
}

// The background part lists each minute, looks after images every five, and keeps
// the uses.
func TestRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		var saved []map[string]Use
		m.c.opt.Save = func(all map[string]Use) error {
			saved = append(saved, all)
			return nil
		}
		m.image("i", 90*gi, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			m.c.Run(ctx)
		}()
		time.Sleep(10*time.Minute + time.Second)
		cancel()
		<-over
		m.wantRemoved("i")
		if m.calls["List"] != 11 || m.calls["Images"] != 4 {
			t.Errorf("calls %v", m.calls)
		}
		if len(saved) == 0 {
			t.Error("the uses were not kept")
		}
	})
}
