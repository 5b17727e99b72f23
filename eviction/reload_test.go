package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// hog adds a pod of 4Gi that leaves this much available.
func (r *rig) hog(available uint64) *fakeCgroup {
	r.t.Helper()
	hog := r.add(testPod{uid: "hog", usage: 4 * gi})
	r.node.setAvailable(available)
	return hog
}

// While paused the node decides and reports, and kills nobody; afterwards it
// evicts at once, also when the pause ends by itself.
func TestPause(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"by itself": func(*rig) { pass(10 * time.Minute) },
		"by hand":   func(r *rig) { r.eng.Pause(0) },
		"resumed":   func(r *rig) { r.eng.Resume() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				hog := r.hog(2 * gi)
				stop := r.start()
				defer stop()
				pass(3 * time.Second)
				began := time.Now()
				if until := r.eng.Pause(10 * time.Minute); !until.Equal(began.Add(10 * time.Minute)) {
					t.Errorf("until %s", until)
				}
				r.node.setAvailable(300 * mi)
				pass(30 * time.Second)
				if killsOf(hog) != 0 {
					t.Error("killed while paused")
				}
				r.wantOutcomes("wouldEvict hog")
				if _, held := r.hold("hog"); held {
					t.Error("held while paused")
				}
				s := r.eng.State()
				if s.Mode != "paused" || !s.PausedUntil.Equal(began.Add(10*time.Minute)) || s.Waiting != "paused by hand until "+s.PausedUntil.Format(time.RFC3339) {
					t.Errorf("%+v", s)
				}
				if rep := r.eng.History(1)[0]; rep.Mode != "paused" {
					t.Errorf("reported in mode %q", rep.Mode)
				}
				end(r)
				pass(3 * time.Second)
				if s := r.eng.State(); killsOf(hog) != 1 || s.Mode != "enforce" || !s.PausedUntil.IsZero() || !r.eng.PausedUntil().IsZero() {
					t.Errorf("%d kills after the pause, %+v", killsOf(hog), s)
				}
				if r.eng.Resume() {
					t.Error("there is no pause to end")
				}
			})
		})
	}
}

// The holds there are stand through a pause.
func TestHoldsStandThroughAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.hog(300 * mi)
		stop := r.start()
		defer stop()
		pass(3 * time.Second)
		r.eng.Pause(time.Hour)
		pass(10 * time.Second)
		if rec, ok := r.hold("hog"); !ok || !rec.Holds() {
			t.Errorf("%+v", rec)
		}
	})
}

// A second pause replaces the first, and a reload does not end it.
func TestPauseAndReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		hog := r.hog(2 * gi)
		stop := r.start()
		defer stop()
		pass(3 * time.Second)
		r.eng.Pause(time.Minute)
		r.eng.Pause(10 * time.Minute)
		r.node.setAvailable(300 * mi)
		set := r.set
		set.Rules.Amount = 600 * mi
		if err := r.eng.Reload(set); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		if killsOf(hog) != 0 || r.eng.State().Mode != "paused" || r.eng.State().Memory.Threshold != 600*mi {
			t.Errorf("%d kills, %+v", killsOf(hog), r.eng.State())
		}
	})
}

// A reload takes effect at the next sample.
func TestReloadTakesEffect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		hog := r.hog(800 * mi)
		stop := r.start()
		defer stop()
		pass(3 * time.Second)
		set := r.set
		set.Rules.Amount, set.Rules.Observe = 900*mi, true
		if err := r.eng.Reload(set); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		r.wantOutcomes("wouldEvict hog")
		set.Rules.Observe = false
		if err := r.eng.Reload(set); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		if killsOf(hog) != 1 {
			t.Errorf("%d kills after observe became enforce", killsOf(hog))
		}
		set.HoldMaximum = 0
		if err := r.eng.Reload(set); err == nil || r.eng.settings().HoldMaximum != r.set.HoldMaximum {
			t.Errorf("settings that cannot be are taken: %v", err)
		}
	})
}

// A threshold that is new with a reload and already met is not acted on until it
// was clear once or armed by hand; the old one, loaded again, is.
func TestReloadedThresholdThatIsMetIsUnarmed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		amount uint64
		do     func(r *rig)
		kills  int
	}{
		{"new and met", 900 * mi, nil, 0},
		{"armed by hand", 900 * mi, func(r *rig) { r.eng.Arm() }, 1},
		{"clear once", 900 * mi, func(r *rig) {
			r.node.setAvailable(2 * gi)
			pass(2 * time.Second)
			r.node.setAvailable(700 * mi)
		}, 1},
		{"new and not met", 600 * mi, func(r *rig) { r.node.setAvailable(550 * mi) }, 1},
		{"the old one again", 500 * mi, func(r *rig) { r.node.setAvailable(400 * mi) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				armed := &fakeArmed{}
				r.armed = armed
				hog := r.hog(700 * mi)
				stop := r.start()
				defer stop()
				pass(3 * time.Second)
				if armed.amount(MemoryAvailable) != 500*mi {
					t.Errorf("armed %d", armed.amount(MemoryAvailable))
				}
				set := r.set
				set.Rules.Amount = tt.amount
				if err := r.eng.Reload(set); err != nil {
					t.Fatal(err)
				}
				pass(3 * time.Second)
				if unarmed := r.eng.State().Unarmed; unarmed != (tt.amount > 700*mi) || killsOf(hog) != 0 {
					t.Errorf("unarmed %v, %d kills", unarmed, killsOf(hog))
				}
				if tt.do != nil {
					tt.do(r)
					pass(3 * time.Second)
				}
				if killsOf(hog) != tt.kills {
					t.Errorf("%d kills, want %d", killsOf(hog), tt.kills)
				}
				if want := tt.amount; tt.kills > 0 && armed.amount(MemoryAvailable) != want {
					t.Errorf("remembered %d, want %d", armed.amount(MemoryAvailable), want)
				}
			})
		})
	}
}

// What protects pods is reloaded too, and what is believed of their annotations.
func TestReloadOfProtection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "a", namespace: "team", labels: map[string]string{"keep": "yes"}, usage: 4 * gi})
		stop := r.start()
		defer stop()
		pass(3 * time.Second)
		barred := func() string { return r.eng.Explain(0).Candidates[0].Barred }
		if b := barred(); b != "" {
			t.Fatalf("barred: %s", b)
		}
		set := r.set
		set.Protection.Namespaces = []string{"team"}
		if err := r.eng.Reload(set); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if b := barred(); b != "protected: namespace team" {
			t.Errorf("barred: %q", b)
		}
		set.Protection.Namespaces, set.Protection.Trusted = nil, []string{"team"}
		if err := r.eng.Reload(set); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if b := barred(); b != "protected: label keep=yes" {
			t.Errorf("barred: %q", b)
		}
	})
}

// Both hard thresholds are armed each by itself.
func TestArmingIsPerSignal(t *testing.T) {
	set := Settings{Rules: Rules{Amount: 1}, Allocatable: Rules{Amount: 2}, HoldMaximum: time.Hour}
	r := newRig(t)
	r.set = set
	armed := &fakeArmed{amounts: map[Signal]uint64{AllocatableMemoryAvailable: 2, MemoryAvailable: 3}}
	r.armed = armed
	e := r.build()
	if got := e.unarmed(); len(got) != 0 {
		t.Errorf("without a sample nothing is met: unarmed %v", got)
	}
	for _, h := range e.sampler.hards() {
		h.latest.at.Store(1)
		h.latest.capacity.Store(10)
	}
	if got := e.unarmed(); !slices.Equal(got, []Signal{MemoryAvailable}) {
		t.Errorf("unarmed %v", got)
	}
	if !e.Arm() || e.Arm() || len(e.unarmed()) != 0 {
		t.Error("Arm")
	}
	e.saveArmed()
	if armed.amount(MemoryAvailable) != 1 || armed.amount(AllocatableMemoryAvailable) != 2 {
		t.Errorf("saved %v", armed.amounts)
	}
	set.Allocatable.Amount = 4
	if err := e.Reload(set); err != nil {
		t.Fatal(err)
	}
	if got := e.unarmed(); !slices.Equal(got, []Signal{AllocatableMemoryAvailable}) {
		t.Errorf("after a reload unarmed %v", got)
	}
	e.saveArmed()
	if _, still := armed.amounts[AllocatableMemoryAvailable]; still || armed.amount(MemoryAvailable) != 1 {
		t.Errorf("saved %v", armed.amounts)
	}
	set.Allocatable.Amount = 40
	if err := e.Reload(set); err != nil || e.Arm() {
		t.Errorf("a threshold above the machine's memory was armed (%v)", err)
	}
	if said := strings.Join(r.lines.all(), "\n"); !strings.Contains(said, "armed by hand: memory.available is acted on") {
		t.Error(said)
	}
}
