package eviction

import (
	"errors"
	"sync"
	"testing"
	"time"
)

type fakeArmed struct {
	mu      sync.Mutex
	amounts map[Signal]uint64
	err     error
}

// armedBefore remembers memory.available only.
func armedBefore(amount uint64) *fakeArmed {
	return &fakeArmed{amounts: map[Signal]uint64{MemoryAvailable: amount}}
}

func (f *fakeArmed) Load() (map[Signal]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.amounts, f.err
}

func (f *fakeArmed) Save(amounts map[Signal]uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.amounts = amounts
	return f.err
}

func (f *fakeArmed) amount(s Signal) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.amounts[s]
}

// A threshold that is new and already met when loaded kills nobody until it was
// seen clear once, or armed by hand; the same one after a crash does at once.
func TestNewThresholdThatIsMetIsUnarmed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store *fakeArmed
		do    func(r *rig)
		kills int
	}{
		{"new", &fakeArmed{}, nil, 0},
		{"another than before", armedBefore(400 * mi), nil, 0},
		{"unreadable", &fakeArmed{amounts: armedBefore(500 * mi).amounts, err: errors.New("broken")}, nil, 0},
		{"the same after a crash", armedBefore(500 * mi), nil, 1},
		{"armed by hand", &fakeArmed{}, func(r *rig) { r.eng.Arm() }, 1},
		{"seen clear once", &fakeArmed{}, func(r *rig) {
			r.node.setAvailable(8 * gi)
			pass(2 * time.Second)
			r.node.setAvailable(300 * mi)
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.armed = tt.store
				hog := r.add(testPod{uid: "hog", usage: 4 * gi})
				r.node.setAvailable(300 * mi)
				stop := r.start()
				defer stop()
				pass(3 * time.Second)
				if tt.do != nil {
					if s := r.eng.State(); !s.Unarmed || s.Waiting == "" || killsOf(hog) != 0 {
						t.Errorf("before: %d kills, %+v", killsOf(hog), s)
					}
					tt.do(r)
					pass(3 * time.Second)
				}
				if killsOf(hog) != tt.kills {
					t.Errorf("%d kills, want %d", killsOf(hog), tt.kills)
				}
				if s := r.eng.State(); s.Unarmed != (tt.kills == 0) {
					t.Errorf("unarmed %v", s.Unarmed)
				}
				if tt.kills > 0 && tt.store.amount(MemoryAvailable) != 500*mi {
					t.Errorf("remembered %d", tt.store.amount(MemoryAvailable))
				}
			})
		})
	}
}
