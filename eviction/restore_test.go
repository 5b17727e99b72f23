package eviction

import (
	"cmp"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// left puts a record into the holds file as a previous process left it.
func (r *rig) left(rec holds.Record) {
	r.t.Helper()
	rec.Namespace, rec.Name, rec.Signal = "default", rec.UID, cmp.Or(rec.Signal, string(MemoryAvailable))
	rec.Threshold, rec.Available, rec.Usage = 500*mi, 300*mi, 2*gi
	if rec.Decided.IsZero() {
		rec.Decided = time.Now().Add(-100 * time.Millisecond)
	}
	if err := r.writer.Put(rec); err != nil {
		r.t.Fatal(err)
	}
}

const (
	breach   = 300 * mi
	noBreach = 8 * gi
)

// bugs.md B42 and the kill -9 cases.
func TestRestore(t *testing.T) {
	const path = "/kubepods/burstable/podu1"
	own := func(c *fakeCgroup, s holds.State) holds.Record {
		return holds.Record{ID: 7, State: s, UID: "u1", SandboxID: "s-u1", Cgroup: path, CgroupInode: c.inode}
	}
	for _, tt := range []struct {
		name      string
		available uint64
		record    func(c *fakeCgroup) holds.Record
		machine   func(r *rig, c *fakeCgroup)
		state     string
		outcomes  []string
		kills     int
		stops     bool
	}{
		{
			"intent, alive, breach stands: finished", breach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) }, nil,
			"killed", []string{"resumed u1"}, 1, true,
		},
		{
			"intent, alive, breach gone: dropped", noBreach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) }, nil,
			"released breach-gone", nil, 0, false,
		},
		{
			"intent, dying, breach gone because of it: the kill was sent", noBreach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) },
			func(_ *rig, c *fakeCgroup) { time.AfterFunc(500*time.Millisecond, func() { _, _ = c.die() }) },
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"killed, alive, but longer ago than holdMaximum: it runs rightly", noBreach,
			func(c *fakeCgroup) holds.Record {
				rec := own(c, holds.Killed)
				rec.Decided = time.Now().Add(-2 * time.Hour)
				return rec
			}, nil,
			"released maximum", nil, 0, false,
		},
		{
			"intent, dead: the kill had its effect", breach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) },
			func(_ *rig, c *fakeCgroup) { _, _ = c.die() },
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"intent, dead, breach gone: as much", noBreach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) },
			func(_ *rig, c *fakeCgroup) { _, _ = c.die() },
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"intent, cgroup removed", breach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) },
			func(r *rig, c *fakeCgroup) { r.cgroups.remove(path) },
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"intent, another cgroup at its path: never killed by that record", noBreach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) },
			func(r *rig, c *fakeCgroup) { r.cgroups.remove(path); r.cgroups.make(path, mi) },
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"killed, dead: stands", noBreach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Killed) },
			func(_ *rig, c *fakeCgroup) { _, _ = c.die() },
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"killed, alive: finished, pressure or not", noBreach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Killed) }, nil,
			"killed", []string{"resumed u1"}, 1, true,
		},
		{
			"released: nothing", breach,
			func(c *fakeCgroup) holds.Record {
				rec := own(c, holds.Released)
				rec.ReleaseReason = ReleasedByHand
				return rec
			},
			func(r *rig, c *fakeCgroup) { r.set.Protection.Namespaces = []string{"default"} },
			"released by-hand", []string{"noVictim -"}, 0, false,
		},
		{
			"intent of a pod without a cgroup of its own: through CRI only", breach,
			func(c *fakeCgroup) holds.Record {
				return holds.Record{ID: 7, State: holds.Intent, UID: "u1", SandboxID: "s-u1", Cgroup: "/kubepods"}
			}, nil,
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"intent, a foreign process in the cgroup: through CRI only", breach,
			func(c *fakeCgroup) holds.Record { return own(c, holds.Intent) },
			func(_ *rig, c *fakeCgroup) {
				c.change(func(c *fakeCgroup) { c.foreign = []string{"containerd-shim (pid 3)"} })
			},
			"killed", []string{"resumed u1"}, 0, true,
		},
		{
			"intent with a path that is not this pod's: through CRI only", breach,
			func(c *fakeCgroup) holds.Record {
				rec := own(c, holds.Intent)
				rec.UID = "other"
				return rec
			},
			func(r *rig, c *fakeCgroup) {
				r.set.Protection.Namespaces = []string{"default"}
				r.runtime.mu.Lock()
				defer r.runtime.mu.Unlock()
				s := r.runtime.sandboxes["s-u1"]
				s.Pod.UID, s.Pod.Name = "other", "other"
				r.runtime.sandboxes["s-u1"] = s
			},
			"killed", []string{"resumed other"}, 0, true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				c := r.add(testPod{uid: "u1", usage: 2 * gi})
				r.node.setAvailable(tt.available)
				rec := tt.record(c)
				r.left(rec)
				if tt.machine != nil {
					tt.machine(r, c)
				}
				stop := r.start()
				defer stop()
				pass(3 * time.Second)
				if got := r.state(rec.UID); got != tt.state {
					t.Errorf("hold %s, want %s", got, tt.state)
				}
				if killsOf(c) != tt.kills {
					t.Errorf("%d kills, want %d", killsOf(c), tt.kills)
				}
				if tt.outcomes != nil {
					r.wantOutcomes(tt.outcomes...)
				}
				if got := slices.Contains(r.runtime.stopped(), "sandbox s-u1"); got != tt.stops {
					t.Errorf("stopped through the runtime: %v, want %v", got, tt.stops)
				}
				if open := see(c, func(c *fakeCgroup) int { return c.opens - c.closes }); open > 1 {
					t.Errorf("%d sets of descriptors stay open, want the planner's at most", open)
				}
				if n := len(r.writer.Records()); n != 1 {
					t.Errorf("%d records: somebody was evicted twice", n)
				}
			})
		})
	}
}

// A restart between kill and settling takes no second victim for one breach.
func TestResumedKillIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "u1", usage: 4 * gi})
		other := r.add(testPod{uid: "u2", usage: gi})
		r.node.setAvailable(breach)
		r.left(holds.Record{ID: 7, State: holds.Intent, UID: "u1", SandboxID: "s-u1", Cgroup: c.path, CgroupInode: c.inode})
		c.immortal = true // it takes its time to die
		time.AfterFunc(1500*time.Millisecond, func() {
			c.change(func(c *fakeCgroup) { c.immortal = false })
			_, _ = c.die()
		})
		stop := r.start()
		defer stop()
		pass(5 * time.Second)
		if killsOf(other) != 0 {
			t.Error("a second pod was killed for the same breach")
		}
		r.wantOutcomes("resumed u1")
		if got := r.state("u1"); got != "killed" {
			t.Errorf("hold %s", got)
		}
	})
}

func TestFrozenCgroupsAreThawed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cgroups.freezes = true
		for i, s := range []holds.State{holds.Intent, holds.Killed, holds.Released} {
			uid := []string{"u1", "u2", "u3"}[i]
			c := r.add(testPod{uid: uid, usage: mi})
			r.left(holds.Record{ID: uint64(i + 1), State: s, UID: uid, Frozen: s != holds.Killed, Cgroup: c.path, CgroupInode: c.inode})
		}
		r.build().restore(t.Context())
		if want := []string{"/kubepods/burstable/podu1", "/kubepods/burstable/podu3"}; !slices.Equal(r.thawed, want) {
			t.Errorf("thawed %q, want %q", r.thawed, want)
		}
	})
}

// Mode observe holds nothing and kills nothing, also not what a previous run in
// mode enforce left.
func TestObserveLetsOldHoldsGo(t *testing.T) {
	for _, s := range []holds.State{holds.Intent, holds.Killed} {
		t.Run(s.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.set.Rules.Observe = true
				c := r.add(testPod{uid: "u1", usage: 2 * gi})
				r.node.setAvailable(breach)
				r.left(holds.Record{ID: 7, State: s, Frozen: true, UID: "u1", SandboxID: "s-u1", Cgroup: c.path, CgroupInode: c.inode})
				stop := r.start()
				defer stop()
				pass(5 * time.Second)
				if killsOf(c) != 0 || len(r.runtime.stopped()) != 0 {
					t.Errorf("%d kills, stopped %q", killsOf(c), r.runtime.stopped())
				}
				if got := r.state("u1"); got != "released observe" {
					t.Errorf("hold %s", got)
				}
				if len(r.thawed) != 1 {
					t.Errorf("thawed %q", r.thawed)
				}
				r.wantOutcomes("wouldEvict u1")
			})
		})
	}
}

func openLedger(t *testing.T, path string) *holds.Ledger {
	t.Helper()
	log, _ := quietLog()
	l, err := holds.OpenLedger(path, log)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A hold that is let go by hand while its kill is still followed is not put back.
func TestReleaseByHandOutlivesTheKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.add(testPod{uid: "u1", usage: 2 * gi})
		c.immortal = true
		r.left(holds.Record{ID: 7, State: holds.Killed, UID: "u1", SandboxID: "s-u1", Cgroup: c.path, CgroupInode: c.inode})
		stop := r.start()
		defer stop()
		pass(time.Second)
		if n := len(r.eng.ReleaseByHand("")); n != 1 {
			t.Fatalf("%d holds released", n)
		}
		c.change(func(c *fakeCgroup) { c.immortal = false })
		pass(10 * time.Second)
		if got := r.state("u1"); got != "released by-hand" {
			t.Errorf("hold %s", got)
		}
	})
}

// The holds file is on tmpfs; the ledger has its copy.
func TestHoldsComeBackFromTheLedger(t *testing.T) {
	for _, tt := range []struct {
		name  string
		boot  string
		state string
	}{
		{"same boot", "boot-1", "killed"},
		{"another boot ended the pressure", "boot-2", "none"},
		{"a boot that cannot be told apart", "", "none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			at := time.Now().Add(-time.Minute).UTC()
			l := openLedger(t, path)
			rec := killed(7, 0, 2*gi)
			rec.UID, rec.Decided, rec.KilledAt = "u1", at, at
			for _, err := range []error{
				l.Save([]holds.Record{rec}), l.SetBootID("boot-1"), l.SetRepeat("u1", 3, at),
				l.AppendDecision(7, []byte(`{"id":7,"outcome":"evicted","victim":{"namespace":"default","name":"u1","uid":"u1"}}`)),
				l.AppendDecision(8, []byte(`["not a decision"]`)), l.Close(),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			l = openLedger(t, path)
			defer func() { _ = l.Close() }()
			r := newRig(t)
			r.ledger, r.bootID = l, tt.boot
			e := r.build()
			e.restore(t.Context())
			if got := r.state("u1"); got != tt.state {
				t.Errorf("hold %s, want %s", got, tt.state)
			}
			r.wantOutcomes("evicted u1") // the history is kept in any case
			if got := e.repeats["u1"].Count; got != 3 {
				t.Errorf("repeat %d, want 3", got)
			}
			if _, boot, err := l.Load(); err != nil || boot != tt.boot && tt.boot != "" {
				t.Errorf("boot %q, %v", boot, err)
			}
		})
	}
}

// The file, where it is there, is the truth.
func TestLedgerDoesNotOverruleTheFile(t *testing.T) {
	l := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
	defer func() { _ = l.Close() }()
	old := killed(3, 0, gi)
	if err := l.Save([]holds.Record{old}); err != nil {
		t.Fatal(err)
	}
	if err := l.SetBootID("boot-1"); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.ledger = l
	r.left(holds.Record{ID: 9, State: holds.Released, UID: "u9"})
	r.build().restore(t.Context())
	if got := r.state("u3"); got != "none" {
		t.Errorf("hold of the ledger: %s", got)
	}
}

// What is decided is in the ledger soon, with the back-off count.
func TestDecisionsReachTheLedger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
		defer func() { _ = l.Close() }()
		r := newRig(t)
		r.ledger = l
		r.add(testPod{uid: "hog", usage: 2 * gi})
		r.evicted("hog")()
		raw, err := l.Decisions(10)
		if err != nil || len(raw) != 1 {
			t.Fatalf("%d decisions, %v", len(raw), err)
		}
		var h history
		h.load(raw)
		if got := h.newest(1)[0]; got.Outcome != OutcomeEvicted || got.Victim.UID != "hog" || got.Kill == nil || len(got.Candidates) != 1 {
			t.Errorf("decision %s", raw[0])
		}
		if n, err := l.Repeats(); err != nil || n["hog"].Count != 1 {
			t.Errorf("repeats %v, %v", n, err)
		}
	})
}
