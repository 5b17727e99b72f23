package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// ordered makes a decision about the first pod of a plan, as the sampler does.
func ordered(pods ...PlanPod) *Decision {
	plan := newPlan(1, t0, pods)
	d := plan.decision
	plan.decision = nil
	d.At, d.Victim = t0, 0
	d.Sample = MemorySample{At: t0, Kernel: 430 * mi, Kubelet: 420 * mi}
	d.Rules = hardRules
	d.Candidates[0] = pods[0].Candidate
	d.Candidates[0].Usage, d.Candidates[0].Known = 900*mi, true
	return d
}

func newKiller(t *testing.T, clock func() time.Time) (*killer, chan *Decision, string) {
	t.Helper()
	w, dir := openHolds(t)
	done := make(chan *Decision, 8)
	return &killer{holds: w, clock: clock, done: done}, done, dir
}

// Promise 3: the hold is visible before the first signal.
func TestHoldIsVisibleBeforeTheKill(t *testing.T) {
	for _, freezes := range []bool{false, true} {
		t.Run(fmt.Sprintf("freezes %v", freezes), func(t *testing.T) {
			k, done, dir := newKiller(t, newClock().Now)
			reader := openReader(t, dir)
			p, c := hog(t, "u1", 2*gi)
			p.freezes = freezes
			var seen holds.Record
			held := false
			c.onKill = func() { seen, held = reader.Held("u1") }
			k.carryOut(ordered(p))
			if !held {
				t.Fatal("no hold could be read when the kill began")
			}
			want := holds.Record{
				ID: 1, State: holds.Intent, Frozen: freezes, UID: "u1", Namespace: "default", Name: "u1", Cgroup: c.path,
				Signal: "memory.available", Threshold: 500 * mi, Available: 430 * mi, AvailableKubelet: 420 * mi,
				Usage: 900 * mi, Decided: t0.UTC(),
			}
			if seen != want {
				t.Errorf("hold\n%+v, want\n%+v", seen, want)
			}
			if d := <-done; d.kill.at() != killSent || d.kill.signalled.Load() != 1 || d.kill.intentErr != nil || d.kill.err() != nil {
				t.Errorf("handed over in state %d, %d signalled, errors %v, %v", d.kill.at(), d.kill.signalled.Load(), d.kill.intentErr, d.kill.err())
			}
			if killsOf(c) != 1 {
				t.Errorf("%d kills", killsOf(c))
			}
		})
	}
}

// A pod whose cgroup is not its own is only ever stopped through the runtime.
func TestNoDirectKill(t *testing.T) {
	k, done, dir := newKiller(t, newClock().Now)
	p, c := hog(t, "u1", 2*gi)
	p.NoDirect, p.freezes = `cgroup "/kubepods" is not this pod's alone`, true
	d := ordered(p)
	k.carryOut(d)
	stuck := make(chan *Decision, 1)
	stuck <- d // even if the watchdog had barked
	close(stuck)
	k.takeOver(stuck)
	again := killsOf(c) + pidfdsOf(c)
	if again != 0 {
		t.Errorf("killed directly %d times", again)
	}
	if r, ok := openReader(t, dir).Held("u1"); !ok || r.Frozen {
		t.Errorf("held %v, frozen %v: want a hold that was never frozen", ok, r.Frozen)
	}
	if <-done; len(done) != 0 {
		t.Error("handed over twice")
	}
}

// brokenHolds is a holds file that takes nothing; everything else works.
type brokenHolds struct {
	*holds.Writer
	reserve, write error
	reserved       int
}

func (b *brokenHolds) Reserve() (holds.Slot, error) {
	b.reserved++
	if b.reserve != nil {
		return holds.Slot{}, b.reserve
	}
	return b.Writer.Reserve()
}

func (b *brokenHolds) WriteIntent(s holds.Slot, p *holds.Prepared, n *holds.Numbers) error {
	if b.write != nil {
		return b.write
	}
	return b.Writer.WriteIntent(s, p, n)
}

func TestUnwritableHoldDoesNotStopTheKill(t *testing.T) {
	boom := errors.New("no space left on tmpfs")
	for _, tt := range []struct {
		name string
		b    brokenHolds
		want error
	}{
		{"write fails", brokenHolds{write: boom}, boom},
		{"no slot", brokenHolds{reserve: holds.ErrFull}, holds.ErrFull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, _ := openHolds(t)
			tt.b.Writer = w
			done := make(chan *Decision, 1)
			k := &killer{holds: &tt.b, clock: newClock().Now, done: done}
			p, c := hog(t, "u1", 2*gi)
			k.carryOut(ordered(p))
			if killsOf(c) != 1 {
				t.Error("not killed")
			}
			if d := <-done; !errors.Is(d.kill.intentErr, tt.want) || killReport(d, t0, 1).HoldError == "" {
				t.Errorf("error %v, report %q", d.kill.intentErr, killReport(d, t0, 1).HoldError)
			}
		})
	}
}

// A writer that was closed under the killer gives a real write error.
func TestClosedHoldsFileDoesNotStopTheKill(t *testing.T) {
	k, done, _ := newKiller(t, newClock().Now)
	if err := k.reserve(); err != nil {
		t.Fatal(err)
	}
	if err := k.holds.(*holds.Writer).Close(); err != nil {
		t.Fatal(err)
	}
	p, c := hog(t, "u1", 2*gi)
	k.carryOut(ordered(p))
	if d := <-done; killsOf(c) != 1 || d.kill.intentErr == nil {
		t.Errorf("%d kills, error %v", killsOf(c), d.kill.intentErr)
	}
}

func TestFailedWritesDoNotUseUpSlots(t *testing.T) {
	w, _ := openHolds(t)
	b := &brokenHolds{Writer: w, write: errors.New("no")}
	done := make(chan *Decision, 3*holds.Slots)
	k := &killer{holds: b, clock: newClock().Now, done: done}
	for range 2 * holds.Slots {
		p, _ := hog(t, "u1", gi)
		k.carryOut(ordered(p))
	}
	if b.reserved != 1 {
		t.Errorf("%d slots were reserved for writes that all failed", b.reserved)
	}
	b.write = nil
	p, _ := hog(t, "u1", gi)
	d := ordered(p)
	k.carryOut(d)
	if d.kill.intentErr != nil {
		t.Errorf("the first write that works: %v", d.kill.intentErr)
	}
}

func TestReserveKeepsOneSlot(t *testing.T) {
	w, _ := openHolds(t)
	b := &brokenHolds{Writer: w}
	k := &killer{holds: b, clock: newClock().Now, done: make(chan *Decision, 1)}
	for range 3 {
		if err := k.reserve(); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := hog(t, "u1", gi)
	d := ordered(p)
	k.carryOut(d)
	if b.reserved != 1 || d.kill.intentErr != nil {
		t.Errorf("%d slots reserved, want the one that was ready; error %v", b.reserved, d.kill.intentErr)
	}
	b.reserve = holds.ErrFull
	if err := k.reserve(); !errors.Is(err, holds.ErrFull) {
		t.Errorf("error %v", err)
	}
}

func TestKillErrorIsReported(t *testing.T) {
	k, done, _ := newKiller(t, newClock().Now)
	p, c := hog(t, "u1", gi)
	c.killErr, c.immortal = errors.New("cgroup.kill: permission denied"), true
	k.carryOut(ordered(p))
	if d := <-done; killReport(d, t0, 1).KillError != "cgroup.kill: permission denied" {
		t.Errorf("report %+v", killReport(d, t0, 1))
	}
}

// A hard decision about a pod that a soft eviction is stopping shortens that one:
// its hold is there, and its number stays.
func TestSoftEvictionIsShortened(t *testing.T) {
	k, done, dir := newKiller(t, newClock().Now)
	p, c := hog(t, "u1", 2*gi)
	p.Evicting, p.prepared = 77, nil
	k.carryOut(ordered(p))
	d := <-done
	if killsOf(c) != 1 || d.ID != 77 || d.kill.intentErr != nil || d.kill.at() != killSent {
		t.Errorf("%d kills, decision %d, %v, state %d", killsOf(c), d.ID, d.kill.intentErr, d.kill.at())
	}
	if _, held := openReader(t, dir).Held("u1"); held {
		t.Error("a second hold was written")
	}
	if d.kill.intentAt.Load() == 0 {
		t.Error("the watchdog has no time to go by")
	}
}

// The hold says by which signal.
func TestHoldOfAllocatable(t *testing.T) {
	k, done, dir := newKiller(t, newClock().Now)
	p, _ := hog(t, "u1", 2*gi)
	d := ordered(p)
	d.Signal = AllocatableMemoryAvailable
	k.carryOut(d)
	<-done
	if r, ok := openReader(t, dir).Held("u1"); !ok || r.Signal != string(AllocatableMemoryAvailable) {
		t.Errorf("held %v by %q", ok, r.Signal)
	}
}
