package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// A soft eviction that was interrupted by our end, 10 s into 30 s of grace.
func TestRestoreSoft(t *testing.T) {
	for _, tt := range []struct {
		name      string
		available uint64
		change    func(r *rig, c *fakeCgroup)
		state     string
		outcomes  []string
		graces    []string
		kills     int
	}{
		{"the breach stands: it gets the rest of its grace, and no hook again", 900 * mi, nil, "killed", []string{"resumed hog"}, []string{"c-hog 20s"}, 0},
		{"minimum reclaim counts: it was past its grace", gi + 100*mi, nil, "killed", []string{"resumed hog"}, []string{"c-hog 20s"}, 0},
		{"the breach is gone: dropped", 8 * gi, nil, "released breach-gone", nil, nil, 0},
		{"the threshold is gone: dropped", 900 * mi, func(r *rig, _ *fakeCgroup) { r.set.Soft = nil }, "released breach-gone", nil, nil, 0},
		{"the hard threshold is met: killed at once", 300 * mi, nil, "killed", []string{"resumed hog"}, nil, 1},
		{"it ended meanwhile", 900 * mi, func(_ *rig, c *fakeCgroup) { c.procs = false }, "killed", []string{"resumed hog"}, nil, 0},
		{"mode observe", 900 * mi, func(r *rig, _ *fakeCgroup) { r.set.Rules.Observe = true }, "released observe", nil, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				hog := r.add(testPod{uid: "hog", usage: 2 * gi})
				r.annotate("hog", "3600", `{"exec":{"command":["drain"]}}`)
				r.node.setAvailable(tt.available)
				r.left(holds.Record{
					ID: 7, State: holds.Intent, Soft: true, UID: "hog", SandboxID: "s-hog", Cgroup: hog.path, CgroupInode: hog.inode,
					Decided: time.Now().Add(-10 * time.Second),
				})
				if tt.change != nil {
					tt.change(r, hog)
				}
				defer r.start()()
				pass(3 * time.Second)
				if got := r.state("hog"); got != tt.state {
					t.Errorf("hold %s, want %s", got, tt.state)
				}
				r.wantOutcomes(tt.outcomes...)
				if got := r.graces(); !slices.Equal(got, tt.graces) {
					t.Errorf("graces %q, want %q", got, tt.graces)
				}
				if n := len(r.hooks.ran()); n != 0 {
					t.Errorf("%d hooks", n)
				}
				if killsOf(hog) != tt.kills {
					t.Errorf("%d kills, want %d", killsOf(hog), tt.kills)
				}
			})
		})
	}
}

// What was for allocatableMemory.available is judged by that.
func TestRestoreAllocatable(t *testing.T) {
	for _, tt := range []struct {
		name  string
		soft  bool
		left  uint64
		state string
		kills int
	}{
		{"hard, the breach stands", false, 400 * mi, "killed", 1},
		{"hard, it is gone", false, 600 * mi, "released breach-gone", 0},
		{"soft, the breach stands", true, 900 * mi, "killed", 0},
		{"soft, it is gone", true, 2 * gi, "released breach-gone", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				r.withPods(tt.left)
				r.set.Allocatable = Rules{Amount: 500 * mi, Floor: 100 * mi}
				c := r.add(testPod{uid: "hog", usage: 2 * gi})
				r.left(holds.Record{ID: 7, State: holds.Intent, Soft: tt.soft, UID: "hog", SandboxID: "s-hog", Cgroup: c.path, CgroupInode: c.inode, Signal: string(AllocatableMemoryAvailable)})
				defer r.start()()
				pass(3 * time.Second)
				if got := r.state("hog"); got != tt.state || killsOf(c) != tt.kills {
					t.Errorf("hold %s, %d kills", got, killsOf(c))
				}
			})
		})
	}
}

// Our end in the middle of a grace: the hold stands, nothing is killed, and the
// next start goes on.
func TestEndWithinAGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		r.ignoreTerm("hog", 25*time.Second)
		stop := r.startSoft()
		r.over("hog")
		pass(5 * time.Second)
		stop()
		if got := r.state("hog"); got != "intent" || killsOf(hog) != 0 {
			t.Fatalf("hold %s, %d kills", got, killsOf(hog))
		}
		r.ignoreTerm("hog", 3*time.Second)
		defer r.start()()
		pass(6 * time.Second)
		if got := r.state("hog"); got != "killed" || killsOf(hog) != 0 {
			t.Errorf("hold %s, %d kills", got, killsOf(hog))
		}
	})
}

// A hard decision shortens a resumed soft eviction too.
func TestHardShortensAResumedSoft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		hog := r.add(testPod{uid: "hog", usage: 2 * gi})
		r.ignoreTerm("hog", time.Hour)
		r.node.setAvailable(900 * mi)
		r.left(holds.Record{
			ID: 7, State: holds.Intent, Soft: true, UID: "hog", SandboxID: "s-hog", Cgroup: hog.path, CgroupInode: hog.inode,
			Decided: time.Now().Add(-10 * time.Second),
		})
		defer r.start()()
		pass(3 * time.Second)
		if killsOf(hog) != 0 {
			t.Fatal("killed within its grace")
		}
		r.node.setAvailable(300 * mi)
		pass(1500 * time.Millisecond)
		if got := r.state("hog"); got != "killed" || killsOf(hog) != 1 || len(r.writer.Records()) != 1 {
			t.Errorf("hold %s, %d kills, %d records", got, killsOf(hog), len(r.writer.Records()))
		}
	})
}
