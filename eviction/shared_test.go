package eviction

import (
	"testing"
	"time"
)

var _ Cgroup = realCgroup{}

// Design §8: bytes in memory emptyDirs count as gain only when Kubernetes is
// told; other shared memory always does.
func TestGainOfSharedMemory(t *testing.T) {
	for _, tt := range []struct {
		name                    string
		current, volumes, shmem uint64
		told                    bool
		want                    uint64
	}{
		{"MAP_SHARED and /dev/shm only", 2 * gi, 0, 2 * gi, false, 2 * gi},
		{"all in a memory emptyDir", 2 * gi, 2*gi - 4*mi, 2*gi - 4*mi, false, 4 * mi},
		{"kubelet unmounts it when it is told", 2 * gi, 2*gi - 4*mi, 2*gi - 4*mi, true, 2 * gi},
		{"half and half", 2 * gi, gi, 2 * gi, false, gi},
		{"most of the volume is swapped out", 1200 * mi, 4 * gi, 200 * mi, false, 1000 * mi},
		{"no memory.stat that tells", 2 * gi, gi, 0, false, gi},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newPlanRig(t)
			c := r.cgroups.make(ownPath, tt.current)
			c.shmem, r.cgroups.volumes["u1"], r.in.told = tt.shmem, tt.volumes, tt.told
			var m Candidate
			if r.only(r.plan(0, inventoryPod("u1", ownPath, true))).measure(&m); m.Gain != tt.want || m.Usage != tt.current {
				t.Errorf("usage %d, gain %d MiB; want %d MiB", m.Usage, m.Gain/mi, tt.want/mi)
			}
		})
	}
}

// A volume that fills during an alarm is followed, memory.stat is not.
func TestVolumesAreAskedInAnAlarm(t *testing.T) {
	r := newPlanRig(t)
	c := r.cgroups.make(ownPath, 300*mi)
	c.shmem, r.cgroups.volumes["u1"] = 100*mi, 100*mi
	pod := inventoryPod("u1", ownPath, true)
	r.plan(0, pod)
	r.in.alarm = true
	c.current, c.shmem, r.cgroups.volumes["u1"] = 2*gi+200*mi, 2*gi, 2*gi
	var m Candidate
	if r.only(r.plan(time.Second, pod)).measure(&m); m.Gain != 200*mi {
		t.Errorf("gain %d MiB, want 200: what is in the volume stays", m.Gain/mi)
	}
	if c.stats != 1 {
		t.Errorf("%d readings of memory.stat", c.stats)
	}
}

// A hog whose memory is all shared is the victim before a smaller ordinary one.
func TestSharedMemoryHogIsChosen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "hog", usage: 4 * gi}).change(func(c *fakeCgroup) { c.shmem = 4 * gi })
		r.add(testPod{uid: "small", usage: gi})
		defer r.evicted("hog")()
		r.wantOutcomes("evicted hog")
		if got := r.eng.History(1)[0].Candidates[0]; got.UID != "hog" || got.Gain != 4*gi {
			t.Errorf("first candidate %+v", got)
		}
	})
}
