package eviction

import (
	"testing"
	"time"
)

// A soft threshold that was in force before a crash is acted on at once, another
// one only after it was clear or by hand.
func TestSoftArmed(t *testing.T) {
	soft := MemoryAvailable.SoftName()
	for _, tt := range []struct {
		name    string
		before  map[Signal]uint64
		byHand  bool
		evicted bool
	}{
		{"new", map[Signal]uint64{MemoryAvailable: 500 * mi}, false, false},
		{"another amount", map[Signal]uint64{soft: 2 * gi}, false, false},
		{"the same after a crash", map[Signal]uint64{MemoryAvailable: 500 * mi, soft: gi}, false, true},
		{"by hand", nil, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				store := &fakeArmed{amounts: tt.before}
				r.armed = store
				r.add(testPod{uid: "hog", usage: 2 * gi})
				r.node.setAvailable(900 * mi)
				defer r.startSoft()()
				if s := r.eng.softNow()[0]; s.Unarmed == (tt.name == "the same after a crash") {
					t.Errorf("%+v", s)
				}
				if tt.byHand && !r.eng.Arm() {
					t.Error("nothing was armed")
				}
				pass(35 * time.Second)
				if got := r.state("hog") == "killed"; got != tt.evicted {
					t.Errorf("hold %s", r.state("hog"))
				}
				if _, kept := store.amounts[soft]; kept != tt.evicted {
					t.Errorf("remembered %v", store.amounts)
				}
			})
		})
	}
}
