package eviction

import (
	"testing"
	"time"
)

// at is one round of a watch: seconds since t0 and what is available; between is
// the highest number seen since the round before where that is another.
type at struct {
	sec       float64
	available uint64
	between   uint64
	stale     bool // no new sample
}

func (a at) observation() observation {
	o := observation{At: t0.Add(time.Duration(a.sec * float64(time.Second))), Available: a.available}
	o.Lowest, o.Highest = a.available, max(a.available, a.between)
	return o
}

// rounds feeds a watch and returns the second at which it was due first, -1 for
// never.
func rounds(w *watch, th SoftThreshold, seq ...at) float64 {
	var last observation
	for _, a := range seq {
		now := t0.Add(time.Duration(a.sec * float64(time.Second)))
		if !a.stale {
			last = a.observation()
		}
		w.round(th, last, now)
		if w.due(last) {
			return a.sec
		}
	}
	return -1
}

func TestWatchGrace(t *testing.T) {
	th := SoftThreshold{Signal: MemoryAvailable, Amount: 1000, MinReclaim: 200, Grace: 30 * time.Second}
	for _, c := range []struct {
		name string
		seq  []at
		want float64
	}{
		{"met for less than the grace", []at{{sec: 0, available: 999}, {sec: 29, available: 999}}, -1},
		{"met for the grace", []at{{sec: 0, available: 999}, {sec: 29.9, available: 999}, {sec: 30, available: 999}}, 30},
		{"exactly the amount is not met", []at{{sec: 0, available: 1000}, {sec: 30, available: 1000}}, -1},
		{"one clear round begins it anew", []at{{sec: 0, available: 999}, {sec: 15, available: 1000}, {sec: 16, available: 999}, {sec: 45, available: 999}, {sec: 46, available: 999}}, 46},
		{"one clear sample between rounds too", []at{{sec: 0, available: 999}, {sec: 15, available: 999, between: 1000}, {sec: 44, available: 999}, {sec: 45, available: 999}}, 45},
		{"no fresh sample: nothing is concluded, it begins anew", []at{{sec: 0, available: 999}, {sec: 3, stale: true}, {sec: 20, stale: true}, {sec: 30, available: 999}, {sec: 59, available: 999}, {sec: 60, available: 999}}, 60},
		{"a short gap does not", []at{{sec: 0, available: 999}, {sec: 4.5, stale: true}, {sec: 29, available: 999}, {sec: 30, available: 999}}, 30},
		{"never on a sample that was seen before", []at{{sec: 0, available: 999}, {sec: 29, available: 999}, {sec: 30, stale: true}, {sec: 31, stale: true}}, -1},
		{"a sample of five seconds ago says nothing", []at{{sec: 0, available: 999}, {sec: 5, stale: true}, {sec: 6, available: 999}, {sec: 35, available: 999}, {sec: 36, available: 999}}, 36},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := rounds(&watch{armed: true}, th, c.seq...); got != c.want {
				t.Errorf("due at %v s, want %v", got, c.want)
			}
		})
	}
}

// Once the grace was over, the threshold is met until its minimum reclaim is
// there; before that the minimum reclaim plays no part.
func TestWatchMinimumReclaim(t *testing.T) {
	th := SoftThreshold{Amount: 1000, MinReclaim: 200, Grace: 10 * time.Second}
	w := &watch{armed: true}
	if got := rounds(w, th, at{sec: 0, available: 1100}, at{sec: 10, available: 1100}); got != -1 {
		t.Fatalf("due at %v s above the threshold", got)
	}
	if got := rounds(w, th, at{sec: 20, available: 999}, at{sec: 30, available: 999}); got != 30 {
		t.Fatalf("due at %v s", got)
	}
	if got := rounds(w, th, at{sec: 31, available: 1199}); got != 31 {
		t.Error("not met although its minimum reclaim is not there")
	}
	if got := rounds(w, th, at{sec: 32, available: 1200}, at{sec: 33, available: 1100}, at{sec: 60, available: 1100}); got != -1 || w.past {
		t.Errorf("met again at %v s above the threshold after it was clear", got)
	}
	// What is over between two rounds is over.
	rounds(w, th, at{sec: 61, available: 900}, at{sec: 71, available: 900})
	if got := rounds(w, th, at{sec: 72, available: 900, between: 1200}); got != -1 || w.past {
		t.Error("a clear sample between the rounds was passed over")
	}
}

func TestWatchUnarmed(t *testing.T) {
	th := SoftThreshold{Amount: 1000, Grace: 10 * time.Second}
	w := &watch{}
	if got := rounds(w, th, at{sec: 0, available: 900}, at{sec: 20, available: 900}, at{sec: 600, available: 900}); got != -1 {
		t.Fatalf("an unarmed threshold was due at %v s", got)
	}
	if got := rounds(w, th, at{sec: 601, available: 1000}, at{sec: 602, available: 900}, at{sec: 612, available: 900}); got != 612 {
		t.Errorf("due at %v s after it was clear, want 612", got)
	}
	// Armed by hand: it has been met for long.
	w = &watch{}
	rounds(w, th, at{sec: 0, available: 900}, at{sec: 20, available: 900})
	w.armed = true
	if got := rounds(w, th, at{sec: 21, available: 900}); got != 21 {
		t.Errorf("due at %v s after it was armed, want 21", got)
	}
}

// bugs.md B17: statfs stands still for 300 s after deletes; one action in 30 s
// at most, and never twice on one observation.
func TestCaseB17(t *testing.T) {
	th := SoftThreshold{Signal: NodeFsAvailable, Amount: 1000}
	w := &watch{armed: true}
	var acts []int
	for sec := range 300 {
		o := at{sec: float64(sec), available: 500}.observation()
		for range 3 { // several rounds, one sample
			w.round(th, o, o.At)
			if w.due(o) {
				acts = append(acts, sec)
				w.done(o.At, o.Available)
			}
		}
	}
	if len(acts) != 10 {
		t.Fatalf("acted at %v", acts)
	}
	for i := 1; i < len(acts); i++ {
		if acts[i]-acts[i-1] < 30 {
			t.Errorf("acted at %v", acts)
		}
	}
	// A reading that moves is news.
	o := at{sec: 300, available: 501}.observation()
	w.done(o.At.Add(-time.Second), 500)
	w.round(th, o, o.At)
	if !w.due(o) {
		t.Error("a new reading is passed over")
	}
}

// bugs.md B19, the threshold's own grace: met at 0, 10, 20 s is no kill at 30 s
// grace, and one clear sample at 15 s restarts the clock.
func TestCaseB19Grace(t *testing.T) {
	th := SoftThreshold{Amount: 1000, Grace: 30 * time.Second}
	if got := rounds(&watch{armed: true}, th, at{sec: 0, available: 900}, at{sec: 10, available: 900}, at{sec: 20, available: 900}); got != -1 {
		t.Errorf("due at %v s", got)
	}
	if got := rounds(&watch{armed: true}, th, at{sec: 0, available: 900}, at{sec: 10, available: 900}, at{sec: 15, available: 1100},
		at{sec: 20, available: 900}, at{sec: 30, available: 900}, at{sec: 40, available: 900}, at{sec: 49, available: 900}, at{sec: 50, available: 900}); got != 50 {
		t.Errorf("due at %v s, want 50", got)
	}
}

// bugs.md B104: what is under way for one signal keeps no other waiting.
func TestCaseB104Watches(t *testing.T) {
	memory, disk := &watch{armed: true}, &watch{armed: true}
	thM := SoftThreshold{Signal: MemoryAvailable, Amount: 1000, Grace: 30 * time.Second}
	thD := SoftThreshold{Signal: NodeFsAvailable, Amount: 1000, Grace: 5 * time.Second}
	if got := rounds(memory, thM, at{sec: 0, available: 900}, at{sec: 30, available: 900}); got != 30 {
		t.Fatalf("memory is due at %v s", got)
	}
	// Its victim has 60 s of grace; the disk fills up meanwhile.
	if got := rounds(disk, thD, at{sec: 31, available: 900}, at{sec: 35, available: 900}, at{sec: 36, available: 900}); got != 36 {
		t.Errorf("the disk is due at %v s, want 36", got)
	}
}

// Never twice on one sample, and never on one from before what was done had
// ended.
func TestWatchNeedsANewSample(t *testing.T) {
	th := SoftThreshold{Amount: 1000, Grace: 10 * time.Second}
	w := &watch{armed: true}
	o := at{sec: 10, available: 900}.observation()
	rounds(w, th, at{sec: 0, available: 900})
	w.round(th, o, o.At)
	if !w.due(o) {
		t.Fatal("not due after its grace")
	}
	w.round(th, o, o.At.Add(time.Second))
	if w.due(o) {
		t.Error("due again on the same sample")
	}
	w.done(t0.Add(15*time.Second), 900)
	o = at{sec: 15, available: 890}.observation()
	w.round(th, o, o.At)
	if w.due(o) {
		t.Error("due on a sample from before the eviction had ended")
	}
	o = at{sec: 15.1, available: 890}.observation()
	w.round(th, o, o.At)
	if !w.due(o) {
		t.Error("not due on the next one")
	}
}

func TestWatchRemembersWhatWasNotClear(t *testing.T) {
	th := SoftThreshold{Amount: 1000, MinReclaim: 200, Grace: time.Minute}
	w := &watch{armed: true}
	o := observation{At: t0.Add(10 * time.Second), Available: 5000, Lowest: 1199, Highest: 5000}
	w.round(th, o, o.At)
	if !w.lastNotClear.Equal(o.At) || !w.lastMet.IsZero() {
		t.Errorf("not clear at %v, met at %v", w.lastNotClear, w.lastMet)
	}
	o = observation{At: t0.Add(20 * time.Second), Available: 5000, Lowest: 999, Highest: 5000}
	w.round(th, o, o.At)
	if !w.lastMet.Equal(o.At) {
		t.Error("a dip between two rounds is no condition")
	}
	now := t0.Add(40 * time.Second)
	w.round(th, o, now)
	if !w.lastNotClear.Equal(now) {
		t.Error("a time without samples counts as clear")
	}
}

func TestExtremes(t *testing.T) {
	var x extremes
	if _, _, ok := x.take(); ok {
		t.Error("something out of nothing")
	}
	for _, v := range []uint64{5, 3, 9, 4} {
		x.note(v)
	}
	if low, high, ok := x.take(); low != 3 || high != 9 || !ok {
		t.Errorf("%d to %d, %v", low, high, ok)
	}
	x.note(0)
	if low, high, ok := x.take(); low != 0 || high != 0 || !ok {
		t.Errorf("%d to %d, %v for zero", low, high, ok)
	}
	if n := testing.AllocsPerRun(100, func() { x.note(7) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
