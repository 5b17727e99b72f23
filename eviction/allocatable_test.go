package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// fakePods is PodsMemory.
type fakePods struct {
	usage, limit, inactive, active uint64
	usageErr, limitErr, statErr    error
	stats, closes                  int
}

func (f *fakePods) Path() string           { return "/kubepods" }
func (f *fakePods) Usage() (uint64, error) { return f.usage, f.usageErr }
func (f *fakePods) Limit() (uint64, error) { return f.limit, f.limitErr }
func (f *fakePods) Close() error           { f.closes++; return nil }

func (f *fakePods) Stat(m *cgroupfs.MemoryStat) error {
	f.stats++
	*m = cgroupfs.MemoryStat{InactiveFile: f.inactive, ActiveFile: f.active}
	return f.statErr
}

// podsRig is a sampler with room on the node and a pods' cgroup of 29 GiB.
func podsRig(t *testing.T, from MemoryAvailableFrom) (*samplerRig, *fakePods) {
	t.Helper()
	s := newSamplerRig(t, hardRules, 2*gi)
	f := &fakePods{limit: 29 * gi, usage: 20 * gi}
	s.view(f)
	s.use(&Settings{Rules: hardRules, Allocatable: Rules{From: from, Amount: 500 * mi, Floor: 100 * mi}})
	return s, f
}

// view reads the slow half's part of the pods' cgroup again.
func (s *samplerRig) view(f *fakePods) {
	s.t.Helper()
	v, err := (&podsView{memory: f}).refresh(false)
	if err != nil {
		s.t.Fatal(err)
	}
	s.pods = v
}

// bugs.md B47: reserved memory. The node has room, the pods have used up what
// they may: a breach of allocatableMemory.available only.
func TestCaseB47(t *testing.T) {
	s, f := podsRig(t, Verified)
	s.node.setAvailable(3 * gi)
	in, _ := hog(t, "in", 4*gi)
	out, _ := hog(t, "out", 8*gi)
	out.inPods = false
	s.offer(in, out)
	s.quiet(3, time.Second, "nothing is short")
	f.usage = 29*gi - 102*mi // 28.9Gi; below half the threshold one sample will do
	d := s.after(alarm)
	wantVictim(t, d, "in")
	if d.Signal != AllocatableMemoryAvailable || d.Verdict.Available != 102*mi || d.Sample.Capacity != 29*gi {
		t.Errorf("decision by %s with %d of %d", d.Signal, d.Verdict.Available, d.Sample.Capacity)
	}
	if s.latest.met.Load() || !s.allocatable.latest.met.Load() {
		t.Errorf("memory.available met %v, allocatableMemory.available met %v", s.latest.met.Load(), s.allocatable.latest.met.Load())
	}
}

// kubelet takes inactive_file off once, the kernel can take back all file pages;
// verified needs both.
func TestAllocatableReadings(t *testing.T) {
	for _, tt := range []struct {
		from             MemoryAvailableFrom
		inactive, active uint64
		want             uint64
		met              bool
	}{
		{Verified, 0, 0, 200 * mi, true},
		{Verified, 100 * mi, 0, 300 * mi, true},
		{Verified, 100 * mi, gi, 300*mi + gi, false},
		{FromKubelet, 100 * mi, gi, 300 * mi, true},
		{FromKernel, 100 * mi, gi, 300*mi + gi, false},
		{FromKubelet, 40 * gi, gi, 29 * gi, false}, // readings of different times
	} {
		t.Run(fmt.Sprintf("%v, %d and %d MiB of cache", tt.from, tt.inactive/mi, tt.active/mi), func(t *testing.T) {
			s, f := podsRig(t, tt.from)
			f.usage, f.inactive, f.active = 29*gi-200*mi, tt.inactive, tt.active
			s.view(f)
			s.offer()
			s.after(alarm)
			l := &s.allocatable.latest
			if l.available.Load() != tt.want || l.met.Load() != tt.met {
				t.Errorf("%d available, met %v; want %d, %v", l.available.Load(), l.met.Load(), tt.want, tt.met)
			}
		})
	}
}

func TestAllocatableOverItsLimit(t *testing.T) {
	s, f := podsRig(t, Verified)
	f.usage = 30 * gi
	s.offer()
	s.after(alarm)
	if got := s.allocatable.latest.available.Load(); got != 0 {
		t.Errorf("%d available", got)
	}
}

// One kill in flight over both signals; memory.available first.
func TestOneKillOverBothSignals(t *testing.T) {
	s, f := podsRig(t, Verified)
	s.node.setAvailable(400 * mi)
	f.usage = 29*gi - 400*mi
	p, c := hog(t, "a", 4*gi)
	q, _ := hog(t, "b", 2*gi)
	s.offer(p, q)
	s.quiet(1, alarm, "one sample")
	d := s.after(alarm)
	wantVictim(t, d, "a")
	if d.Signal != MemoryAvailable {
		t.Errorf("decided by %s", d.Signal)
	}
	for range 50 {
		c.change(func(c *fakeCgroup) { c.current -= 10 * mi })
		s.offer(p, q)
		s.quiet(1, alarm, "a kill is in flight")
	}
}

// bugs.md B17: never twice on one sample, by however many signals it is short.
func TestOneTickIsOneDecision(t *testing.T) {
	s, f := podsRig(t, Verified)
	p, _ := hog(t, "a", 600*mi)
	q, _ := hog(t, "b", 500*mi)
	s.offer(p, q)
	s.quiet(1, time.Second, "calm")
	s.node.setAvailable(50 * mi)
	f.usage = 29*gi - 50*mi
	s.clock.advance(alarm)
	s.tick()
	if n := len(s.orders); n != 1 {
		t.Errorf("%d kills by one reading", n)
	}
}

// A threshold that is new and met is not acted on until it was clear once, each
// signal by itself.
func TestUnarmedAllocatable(t *testing.T) {
	s, f := podsRig(t, Verified)
	s.allocatable.armed.always.Store(false)
	f.usage = 29*gi - 100*mi
	p, _ := hog(t, "a", 4*gi)
	s.offer(p)
	s.quiet(20, alarm, "it is unarmed")
	f.usage = 20 * gi
	s.quiet(1, alarm, "clear")
	f.usage = 29*gi - 100*mi
	wantVictim(t, s.after(alarm), "a")
}

// What a soft eviction set free and has not shown yet is waited for as well.
func TestReleasesOfOtherKillsAreExpected(t *testing.T) {
	s, f := podsRig(t, Verified)
	f.usage = 29*gi - 400*mi
	s.node.setAvailable(400 * mi)
	p, _ := hog(t, "a", 4*gi)
	bases := [hardSignals]uint64{400 * mi, 400 * mi}
	s.expect(gi, bases)
	for range 100 {
		s.offer(p)
		s.quiet(1, 10*time.Millisecond, "1 GiB is coming back")
	}
	if a, b := s.latest.coming.Load(), s.allocatable.latest.coming.Load(); a != gi || b != gi {
		t.Errorf("%d and %d are to come", a, b)
	}
	if got := s.bases(); got != bases {
		t.Errorf("bases %v", got)
	}
	s.clock.advance(pendingFor)
	s.quiet(1, alarm, "one sample")
	wantVictim(t, s.after(alarm), "a")
}

// Nobody waits for the sampler: what cannot be noted is not waited for.
func TestExpectNeverWaits(t *testing.T) {
	s, _ := podsRig(t, Verified)
	for range 1000 {
		s.expect(gi, s.bases())
	}
}

// What a dead victim will give back comes back to both signals.
func TestPendingReleaseCountsForBothSignals(t *testing.T) {
	s, f := podsRig(t, Verified)
	s.node.setAvailable(400 * mi)
	f.usage = 29*gi - 400*mi
	p, _ := hog(t, "a", 4*gi)
	q, _ := hog(t, "b", 2*gi)
	s.offer(p, q)
	s.quiet(1, alarm, "one sample")
	d := s.after(alarm)
	wantVictim(t, d, "a")
	d.kill.advance(killSettled)
	s.node.setAvailable(5 * gi) // the node has it back, the pods' cgroup not yet
	for range 100 {
		s.offer(p, q)
		s.quiet(1, 10*time.Millisecond, "4 GiB are coming back")
	}
	if got := s.allocatable.latest.coming.Load(); got != 4*gi {
		t.Errorf("%d MiB are still to come", got/mi)
	}
	s.clock.advance(pendingFor)
	s.offer(q)
	s.quiet(1, alarm, "one sample")
	wantVictim(t, s.after(alarm), "b")
}

// Without such a cgroup, or without a limit, the signal is absent and all else
// goes on.
func TestAbsentPodsCgroup(t *testing.T) {
	s, _ := podsRig(t, Verified)
	s.pods = nil
	s.node.setAvailable(400 * mi)
	p, _ := hog(t, "a", 4*gi)
	s.offer(p)
	s.quiet(1, alarm, "one sample")
	l := &s.allocatable.latest
	if !l.absent.Load() || l.at.Load() != 0 || l.failing.Load() || l.failures.Load() != 0 {
		t.Errorf("absent %v, sampled at %d, %d failures", l.absent.Load(), l.at.Load(), l.failures.Load())
	}
	wantVictim(t, s.after(alarm), "a")
}

func TestUnreadablePodsCgroupConcludesNothing(t *testing.T) {
	s, f := podsRig(t, Verified)
	f.usage = 29*gi - 400*mi
	p, _ := hog(t, "a", 4*gi)
	s.offer(p)
	s.quiet(1, alarm, "one sample")
	f.usageErr = errors.New("input/output error")
	s.quiet(3, alarm, "no reading")
	l := &s.allocatable.latest
	if !l.failing.Load() || l.failures.Load() != 3 {
		t.Errorf("failing %v, %d failures", l.failing.Load(), l.failures.Load())
	}
	f.usageErr = nil
	s.quiet(1, alarm, "the sample before the failures must not count")
	wantVictim(t, s.after(alarm), "a")
}

func TestPodsReader(t *testing.T) {
	f := &fakePods{limit: 29 * gi, usage: gi, inactive: 3 * gi, active: 2 * gi}
	opens := 0
	var openErr error
	r := podsReader{open: func() (PodsMemory, error) { opens++; return f, openErr }}
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	v := r.view(at(0), false)
	if v == nil || v.limit != 29*gi || v.inactive != 3*gi || v.file != 5*gi {
		t.Fatalf("view %+v", v)
	}
	f.inactive, f.limit = gi, 28*gi
	if v := r.view(at(999), false); v.inactive != 3*gi || f.stats != 1 {
		t.Errorf("read again within a second: %+v", v)
	}
	if v := r.view(at(1000), true); v.inactive != 3*gi || v.limit != 28*gi || f.stats != 1 {
		t.Errorf("in an alarm: %+v after %d readings of memory.stat", v, f.stats)
	}
	old := v
	if v := r.view(at(2000), false); v.inactive != gi || v.file != 3*gi {
		t.Errorf("in calm times: %+v", v)
	}
	if old.inactive != 3*gi {
		t.Error("a view that a plan has was changed")
	}
	f.limitErr = cgroupfs.ErrAbsent // kubelet took the limit away
	if v := r.view(at(3000), false); v != nil || f.closes != 1 || !errors.Is(r.problem, cgroupfs.ErrAbsent) {
		t.Errorf("unlimited: %+v, closed %d times, %v", v, f.closes, r.problem)
	}
	f.limitErr, openErr = nil, cgroupfs.ErrAbsent
	if v := r.view(at(4000), false); v != nil || r.problem == nil {
		t.Errorf("not there: %+v, %v", v, r.problem)
	}
	openErr = nil
	if v := r.view(at(5000), true); v == nil || v.inactive != gi || opens != 3 {
		t.Errorf("back, in an alarm: %+v after %d opens: without memory.stat all cache would count as used", v, opens)
	}
	r.close()
	if f.closes != 2 {
		t.Errorf("closed %d times", f.closes)
	}
}

func TestPodsBelowTheCgroup(t *testing.T) {
	v := &podsView{memory: &fakePods{}}
	for path, want := range map[string]bool{"/kubepods/burstable/podx": true, "/kubepods": false, "/kubepods2/podx": false, "/k8s.io/x": false} {
		if v.holds(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	if (*podsView)(nil).holds("/kubepods/podx") {
		t.Error("no view holds nothing")
	}
}

// The budget is each signal's own, and allocatableMemory.available has one too.
func TestKillBudgetOfAllocatable(t *testing.T) {
	s, f := podsRig(t, Verified)
	s.use(&Settings{Rules: hardRules, Allocatable: Rules{Amount: 500 * mi, Floor: 100 * mi}, KillBudget: 1})
	for i, want := range []string{"u", "nobody"} {
		f.usage = 20 * gi
		s.quiet(1, time.Minute, "calm")
		f.usage = 29*gi - 200*mi
		p, _ := hog(t, "u", 4*gi)
		s.offer(p)
		d := s.after(alarm)
		wantVictim(t, d, want)
		if i == 0 {
			d.kill.advance(killSettled)
		}
	}
	if len(s.observed) != 1 || NoVictim(s.latest.noVictim.Load()) != Chosen {
		t.Errorf("%d reports", len(s.observed))
	}
	s.node.setAvailable(200 * mi)
	p, _ := hog(t, "u", 4*gi)
	s.offer(p)
	wantVictim(t, s.after(alarm), "u") // memory.available has its own
}
