package eviction

import (
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// softly runs the rig until a soft eviction of uid is done.
func (r *rig) softly(uid string) (stop func()) {
	r.t.Helper()
	stop = r.startSoft()
	r.t.Cleanup(stop)
	r.over(uid)
	pass(2 * time.Second)
	if got := r.state(uid); got != "killed" {
		r.t.Fatalf("%s: hold %s", uid, got)
	}
	return stop
}

// bugs.md B35 for a soft eviction: held before the pod is asked to end, another
// sandbox of it is stopped again, and it may come back when the condition has
// been clear for the transition period and 10 s.
func TestCaseB35Soft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		p := testPod{namespace: "default", name: "hog", uid: "u1", usage: 2 * gi}
		c := r.add(p)
		r.ignoreTerm("u1", 5*time.Second)
		stop := r.startSoft()
		defer stop()
		r.over("u1")
		if _, held := openReader(t, r.dir).Held("u1"); !held {
			t.Fatal("not held while it is being stopped")
		}
		pass(7 * time.Second)
		r.node.setAvailable(900 * mi)
		r.sandbox(p, 1, c.path, c) // around the proxy
		c.change(func(c *fakeCgroup) { c.procs = true })
		r.eng.syncer.MarkDirty()
		pass(2 * time.Second)
		r.runtime.mu.Lock()
		ready := r.runtime.sandboxes["s-u1'"].Ready
		r.runtime.mu.Unlock()
		if ready {
			t.Error("a held pod came back")
		}
		r.node.setAvailable(8 * gi)
		r.wanted("u1")
		pass(39 * time.Second)
		if got := r.state("u1"); got != "killed" {
			t.Errorf("%s before its time", got)
		}
		pass(4 * time.Second)
		if got := r.state("u1"); got != "released pressure-over" {
			t.Errorf("%s after 30 s + 10 s", got)
		}
	})
}

// bugs.md B36: kubelet stops the stopped sandbox again and removes it. That
// changes nothing about the hold.
func TestCaseB36Evictor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "u1", usage: 2 * gi})
		defer r.softly("u1")()
		r.node.setAvailable(900 * mi)
		for range 2 {
			if err := r.runtime.StopPodSandbox(t.Context(), "s-u1"); err != nil {
				t.Error(err)
			}
		}
		r.runtime.mu.Lock()
		delete(r.runtime.sandboxes, "s-u1")
		delete(r.runtime.containers, "c-u1")
		r.runtime.mu.Unlock()
		r.eng.syncer.Take(inventory.Event{Type: inventory.SandboxRemoved, Time: time.Now(), Sandbox: inventory.Sandbox{ID: "s-u1"}})
		for range 9 {
			r.wanted("u1")
			pass(20 * time.Second)
		}
		if got := r.state("u1"); got != "killed" {
			t.Errorf("%s while the pressure lasts and kubelet asks", got)
		}
	})
}

// bugs.md B37: all containers have exited, the sandbox stands: nothing to free,
// never a victim, soft or hard.
func TestCaseB37(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		done := r.add(testPod{uid: "done", usage: 200 << 10}) // the pause process
		r.runtime.mu.Lock()
		c := r.runtime.containers["c-done"]
		c.Running = false
		r.runtime.containers["c-done"] = c
		r.runtime.mu.Unlock()
		defer r.startSoft()()
		r.node.setAvailable(900 * mi)
		pass(40 * time.Second)
		r.wantOutcomes("noVictim -")
		r.node.setAvailable(50 * mi)
		pass(5 * time.Second)
		if killsOf(done) != 0 || len(r.runtime.stopped()) != 0 || r.state("done") != "none" {
			t.Error("a pod that had ended was evicted")
		}
	})
}

// bugs.md B38: a static pod that the operator lets be evicted is held until the
// condition is clear, and then comes back without anybody's restart.
func TestCaseB38(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.set.Protection.Static = false
		r.add(testPod{uid: "0123456789abcdef0123456789abcdef", name: "static", usage: 2 * gi, static: true})
		defer r.softly("0123456789abcdef0123456789abcdef")()
		for range 10 {
			r.node.setAvailable(900 * mi)
			r.wanted("0123456789abcdef0123456789abcdef")
			pass(20 * time.Second)
		}
		if got := r.state("0123456789abcdef0123456789abcdef"); got != "killed" {
			t.Errorf("%s under pressure", got)
		}
		r.node.setAvailable(8 * gi)
		for range 5 {
			r.wanted("0123456789abcdef0123456789abcdef")
			pass(9 * time.Second)
		}
		if got := r.state("0123456789abcdef0123456789abcdef"); got != "released pressure-over" {
			t.Errorf("%s after the pressure", got)
		}
	})
}

// bugs.md B42 for a soft eviction: killed right after the pod was dead.
func TestCaseB42Soft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := softRig(t)
		r.add(testPod{uid: "u1", usage: 300 * mi})
		other := r.add(testPod{uid: "u2", usage: 200 * mi})
		stop := r.softly("u1")
		stop()
		r.node.setAvailable(1150 * mi) // below threshold + minimum reclaim
		stop = r.start()
		defer stop()
		if _, held := openReader(t, r.dir).Held("u1"); !held {
			t.Error("not held after the restart")
		}
		pass(time.Minute)
		if killsOf(other) != 0 || r.state("u2") != "none" {
			t.Error("a second victim for the same breach")
		}
		if got := r.state("u1"); got != "killed" {
			t.Errorf("hold %s", got)
		}
	})
}
