package eviction

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// An eviction for a disk that our end interrupted: finished while the threshold is
// met, dropped when it is not or nobody knows.
func TestRestoreDisk(t *testing.T) {
	for _, c := range []struct {
		name      string
		available uint64
		change    func(r *rig, f *fakeDisks)
		state     string
	}{
		{"the breach stands", 5 * gi, nil, "killed"},
		{"the breach is gone", 60 * gi, nil, "released breach-gone"},
		{"the threshold is gone", 5 * gi, func(r *rig, _ *fakeDisks) { r.set.Slow = nil }, "released breach-gone"},
		{"it is not known", 5 * gi, func(_ *rig, f *fakeDisks) { f.errs["/kubelet"] = context.DeadlineExceeded }, "released breach-gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, f := slowRig(t)
				r.slow.PodLogs = ""
				r.set.Slow = []SlowThreshold{{Signal: NodeFsAvailable, Value: threshold(t, "12%"), Hard: true}}
				cgroup := r.add(testPod{uid: "writer", usage: 100 * mi})
				f.has("writer", 1, 30*gi, 10)
				f.fill(c.available)
				if c.change != nil {
					c.change(r, f)
				}
				r.left(holds.Record{
					ID: 7, State: holds.Intent, UID: "writer", SandboxID: "s-writer", Cgroup: cgroup.path, CgroupInode: cgroup.inode,
					Signal: string(NodeFsAvailable),
				})
				defer r.start()()
				pass(3 * time.Second)
				if got := r.state("writer"); got != c.state {
					t.Errorf("hold %s, want %s", got, c.state)
				}
			})
		})
	}
}

// The containers that the previous process had stopped, and not removed yet, are
// removed: those that ended after the decision, of a pod that is held for a disk.
func TestContainersLeftByAPreviousProcess(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal Signal
		state  holds.State
		want   []string
	}{
		{"killed for a disk", NodeFsAvailable, holds.Killed, []string{"c-writer"}},
		{"its kill has to be finished", NodeFsAvailable, holds.Intent, []string{"c-writer"}},
		{"killed for PIDs", PIDAvailable, holds.Killed, nil},
		{"killed for memory", MemoryAvailable, holds.Killed, nil},
		{"let go", NodeFsAvailable, holds.Released, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, f := slowRig(t)
				cgroup := r.add(testPod{uid: "writer", usage: 100 * mi})
				decided := time.Now().Add(-time.Second)
				r.slow.EndedAt = func(_ context.Context, id string) (time.Time, error) {
					return map[string]time.Time{"c-writer": decided.Add(100 * time.Millisecond), "c-init": decided.Add(-time.Hour)}[id], nil
				}
				r.runtime.containers["c-init"] = inventory.Container{ID: "c-init", SandboxID: "s-writer"}
				f.fill(5 * gi)
				if c.state != holds.Intent {
					_, _ = cgroup.die()
					main, sandbox := r.runtime.containers["c-writer"], r.runtime.sandboxes["s-writer"]
					main.Running, sandbox.Ready = false, false
					r.runtime.containers["c-writer"], r.runtime.sandboxes["s-writer"] = main, sandbox
				}
				r.left(holds.Record{
					ID: 7, State: c.state, UID: "writer", SandboxID: "s-writer", Cgroup: cgroup.path, CgroupInode: cgroup.inode,
					Signal: string(c.signal), Decided: decided,
				})
				defer r.start()()
				pass(10 * time.Second)
				if got := f.removals(); !slices.Equal(got, c.want) {
					t.Errorf("removed %q, want %q", got, c.want)
				}
			})
		})
	}
}
