package inventory

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// many is a listing of one pod with n containers.
func many(n int) Listing {
	l := Listing{Sandboxes: []ListedSandbox{listed("s1", "a", true)}}
	for i := range n {
		l.Containers = append(l.Containers, run(fmt.Sprintf("c%02d", i), "s1"))
	}
	return l
}

func (r *scripted) askedFor() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for _, id := range r.asked {
		n[id]++
	}
	return n
}

// bugs.md B82: the runtime is asked only for containers that are not found by
// name, and for a few a second.
func TestOnlyContainersThatAreNotFoundAreAskedFor(t *testing.T) {
	r := &scripted{listing: many(50), byName: map[string]bool{}, pid: func(string) (int, error) { return 7, nil }}
	for i := range 25 {
		r.byName[fmt.Sprintf("c%02d", i)] = true
	}
	syncing(t, r, func(t *testing.T, _ *Syncer, store *Store, _ *logtest.Hook) {
		after(treeEvery)
		if n := len(r.askedFor()); n != askPerSecond {
			t.Errorf("%d asked for in the first second, want %d", n, askPerSecond)
		}
		after(10 * treeEvery)
		asked := r.askedFor()
		for i := range 50 {
			id := fmt.Sprintf("c%02d", i)
			if want := map[bool]int{true: 0, false: 1}[r.byName[id]]; asked[id] != want {
				t.Errorf("%s asked for %d times, want %d", id, asked[id], want)
			}
		}
		p, _ := store.Snapshot().Pod("uid-a")
		if c := p.Containers[49]; c.Cgroup != "/of/7" || c.OOMScoreAdj == nil {
			t.Errorf("%+v", c)
		}
	})
}

func TestPodInItsOwnCgroupIsNotAskedFor(t *testing.T) {
	p, _ := cgroupfs.ParsePodPath("/kubepods/burstable/poduid-a")
	r := &scripted{listing: many(3), pods: []cgroupfs.PodPath{p}, pid: func(string) (int, error) { return 7, nil }}
	syncing(t, r, func(t *testing.T, _ *Syncer, _ *Store, _ *logtest.Hook) {
		after(5 * treeEvery)
		if asked := r.askedFor(); len(asked) != 0 {
			t.Errorf("asked for %v", asked)
		}
	})
}

// A container that tells nothing is given up, however many there are of them.
func TestAskingIsGivenUp(t *testing.T) {
	for name, pid := range map[string]func(string) (int, error){
		"no process":      func(string) (int, error) { return 0, nil },
		"an error":        func(string) (int, error) { return 0, errors.New("not found") },
		"no cgroup of it": func(string) (int, error) { return -1, nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := &scripted{listing: many(30), pid: pid}
			syncing(t, r, func(t *testing.T, _ *Syncer, _ *Store, _ *logtest.Hook) {
				after(time.Minute)
				for id, n := range r.askedFor() {
					if n != 5 {
						t.Errorf("%s asked for %d times, want 5", id, n)
					}
				}
				if n := len(r.askedFor()); n != 30 {
					t.Errorf("%d of 30 asked for", n)
				}
			})
		})
	}
}

// A runtime that hangs is asked for one container every 20 s, which holds up
// neither the walk of the tree nor the lists; it costs no container its tries.
func TestHangingRuntimeIsAskedRarely(t *testing.T) {
	r := &scripted{listing: many(10)} // PID hangs
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, _ *logtest.Hook) {
		after(treeEvery + askTimeout + 10*time.Millisecond)
		n := r.listCount()
		s.MarkDirty()
		after(10 * time.Millisecond)
		if r.listCount() != n+1 {
			t.Error("no list although dirty: the questions hold it up")
		}
		after(10 * time.Minute)
		total := 0
		for _, n := range r.askedFor() {
			total += n
		}
		if total < 20 || total > 30 {
			t.Errorf("%d questions in 10 min, want one every 22 s", total)
		}
		r.set(func() { r.pid = func(string) (int, error) { return 7, nil }; r.asked = nil })
		after(30 * time.Second)
		if n := len(r.askedFor()); n != 10 {
			t.Errorf("%d of 10 asked for after it answers again", n)
		}
	})
}

// A container that comes back after it was given up and gone is a new one.
func TestGivenUpIsForgottenWithTheContainer(t *testing.T) {
	r := &scripted{listing: many(1), pid: func(string) (int, error) { return 0, nil }}
	syncing(t, r, func(t *testing.T, s *Syncer, _ *Store, _ *logtest.Hook) {
		after(10 * treeEvery)
		r.set(func() { r.listing = Listing{} })
		s.MarkDirty()
		after(2 * treeEvery)
		r.set(func() { r.listing = many(1) })
		s.MarkDirty()
		after(10 * treeEvery)
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.asked); n != 10 || slices.Contains(r.asked, "") {
			t.Errorf("asked for %d times, want 5 and 5", n)
		}
	})
}
