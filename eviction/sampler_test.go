package eviction

import (
	"errors"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

var hardRules = Rules{Amount: 500 * mi, Floor: 100 * mi}

const alarm = 2 * time.Millisecond

func TestTwoSamplesAreNeeded(t *testing.T) {
	s := newSamplerRig(t, hardRules, 600*mi)
	p, c := hog(t, "u1", 2*gi)
	s.offer(p)
	s.quiet(3, time.Second, "nothing is short")
	s.node.setAvailable(490 * mi)
	s.quiet(1, alarm, "one sample is not enough")
	s.node.setAvailable(510 * mi)
	s.quiet(1, alarm, "it was a dip")
	s.node.setAvailable(490 * mi)
	s.quiet(1, alarm, "the dip before does not count")
	d := s.after(alarm)
	if d == nil {
		t.Fatal("two samples in a row and no kill was ordered")
	}
	if d.pod().UID != "u1" || d.Candidates[0].Usage != 2*gi || d.Sample.Kernel != 490*mi || d.Verdict.Available != 490*mi || !d.EarlyBand {
		t.Errorf("decision %+v does not carry what it was made of", d)
	}
	if killsOf(c) != 0 {
		t.Error("the sampler itself killed")
	}
}

func TestOneSampleBelowHalfSuffices(t *testing.T) {
	s := newSamplerRig(t, hardRules, 249*mi)
	p, _ := hog(t, "u1", 2*gi)
	s.offer(p)
	if s.after(alarm) == nil {
		t.Error("no kill although less than half of the threshold is left")
	}
}

func TestOnePlanIsOneDecision(t *testing.T) {
	s := newSamplerRig(t, hardRules, 200*mi)
	p, _ := hog(t, "u1", 2*gi)
	s.offer(p)
	d := s.after(alarm)
	if d == nil {
		t.Fatal("no first kill")
	}
	d.kill.advance(killSettled)
	s.quiet(2000, alarm, "its plan was used")
	s.offer(p)
	if s.after(alarm) == nil {
		t.Error("no kill with a new plan although the breach stands")
	}
}

func TestAfterASettledKillTwoFreshSamples(t *testing.T) {
	s := newSamplerRig(t, hardRules, 490*mi)
	p, c := hog(t, "u1", 2*gi)
	s.offer(p)
	s.quiet(1, alarm, "one sample")
	d := s.after(alarm)
	if d == nil {
		t.Fatal("no first kill")
	}
	for i := range 50 { // falling
		c.change(func(c *fakeCgroup) { c.current -= 2 * mi })
		s.offer(p)
		s.quiet(1, alarm, "a kill is in flight")
		if i == 0 && action(s.latest.action.Load()) != waiting {
			t.Error("the state does not say that a kill is waited for")
		}
	}
	d.kill.advance(killSettled)
	s.quiet(1, alarm, "this sample may be older than the end of the kill")
	s.node.setAvailable(490*mi + 2*gi)
	s.quiet(1, alarm, "all that the victim had is back")
	s.node.setAvailable(490 * mi)
	s.quiet(1, alarm, "one fresh sample is not enough")
	if s.after(alarm) == nil {
		t.Error("no kill after two fresh samples")
	}
}

// bugs.md B20, design §9: a victim that cannot die must not block the next, one
// that is dying must not cost another pod its life.
func TestNextVictimOnlyWhenUsageStandsStill(t *testing.T) {
	for _, tt := range []struct {
		name string
		step uint64 // per 100 ms
		next bool
	}{
		{"stands still", 0, true},
		{"falls by crumbs", 1024, true},
		{"falls", 2 * mi, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSamplerRig(t, hardRules, 200*mi)
			first, c := hog(t, "u1", 8*gi)
			second, _ := hog(t, "u2", gi)
			s.offer(first, second)
			if d := s.after(alarm); d == nil || d.pod().UID != "u1" {
				t.Fatalf("first victim %v", d)
			}
			first.Barred = "its kill is in progress"
			for range 20 {
				c.change(func(c *fakeCgroup) { c.current -= tt.step })
				s.offer(first, second)
				s.quiet(1, 100*time.Millisecond, "two seconds have not passed")
			}
			var d *Decision
			for range 5 {
				c.change(func(c *fakeCgroup) { c.current -= tt.step })
				s.offer(first, second)
				if d = s.after(100 * time.Millisecond); d != nil {
					break
				}
			}
			if (d != nil) != tt.next {
				t.Fatalf("next victim %v, want one: %v", d, tt.next)
			}
			if d != nil && d.pod().UID != "u2" {
				t.Errorf("next victim %s", d.pod())
			}
		})
	}
}

// bugs.md B05: what cannot be read, or makes no sense, is no sample.
func TestFailedReadingsConcludeNothing(t *testing.T) {
	s := newSamplerRig(t, hardRules, 490*mi)
	p, _ := hog(t, "u1", 2*gi)
	s.offer(p)
	s.quiet(1, alarm, "one sample")
	s.node.fail(errors.New("broken"))
	s.quiet(3, alarm, "no reading")
	if !s.latest.failing.Load() || s.latest.failures.Load() != 3 || s.latest.samples.Load() != 1 {
		t.Errorf("failing %v, %d failures, %d samples", s.latest.failing.Load(), s.latest.failures.Load(), s.latest.samples.Load())
	}
	s.node.fail(nil)
	s.quiet(1, alarm, "the sample before the failures must not count")
	if s.after(alarm) == nil {
		t.Error("no kill after two good samples")
	}
}

// Nothing known is not "all clear".
func TestFailedReadingsAreNotClear(t *testing.T) {
	s := newSamplerRig(t, hardRules, 8*gi)
	s.quiet(1, time.Second, "calm")
	if n := s.latest.lastNotClear.Load(); n != 0 {
		t.Errorf("not clear at %v", time.Unix(0, n))
	}
	s.node.fail(errors.New("broken"))
	s.quiet(1, time.Second, "no reading")
	if got := time.Unix(0, s.latest.lastNotClear.Load()); !got.Equal(s.clock.Now()) {
		t.Errorf("last not clear %v, want now: nobody knows what memory did meanwhile", got)
	}
}

// Design §7: the two readings have to agree, or direct reclaim has to rise in
// every sample of a second.
func TestBothReadingsMustAgree(t *testing.T) {
	const total = 16 * gi
	src := &meminfoFixed{cgroupfs.Meminfo{MemTotal: total, MemAvailable: 100 * mi, AnonPages: 10 * gi, HasAvailable: true, HasKubelet: true}}
	p, _ := hog(t, "u1", 2*gi)
	run := decisions(t, hardRules, src, p)
	if n := run(500); n != 0 {
		t.Errorf("%d kills by the kernel's reading alone", n)
	}
	src.MemAvailable, src.AnonPages = 10*gi, total-100*mi
	if n := run(500); n != 0 {
		t.Errorf("%d kills by kubelet's reading alone", n)
	}
	src.MemAvailable = 100 * mi
	if n := run(2); n != 1 && n != 2 {
		t.Errorf("%d kills although both agree", n)
	}
}

func TestSteadyDirectReclaimStandsInForTheSecondReading(t *testing.T) {
	s := newSamplerRig(t, hardRules, 0)
	s.mem = &meminfoFixed{cgroupfs.Meminfo{MemTotal: 16 * gi, MemAvailable: 100 * mi, AnonPages: 10 * gi, HasAvailable: true, HasKubelet: true}}
	s.scan = &fakeScan{}
	p, _ := hog(t, "u1", 2*gi)
	s.offer(p)
	s.quiet(100, 10*time.Millisecond, "a second has not passed")
	d := s.after(10 * time.Millisecond)
	if d == nil {
		d = s.after(10 * time.Millisecond)
	}
	if d == nil || !d.Verdict.DirectReclaim || d.Verdict.Available != 100*mi {
		t.Errorf("decision %+v after a second of direct reclaim", d)
	}
}

// meminfoFixed is a MeminfoSource that says what it is told.
type meminfoFixed struct{ cgroupfs.Meminfo }

func (f *meminfoFixed) Read(m *cgroupfs.Meminfo) error { *m = f.Meminfo; return nil }

func TestNoPlanNoKill(t *testing.T) {
	s := newSamplerRig(t, hardRules, 100*mi)
	s.quiet(5, alarm, "there is no plan")
	s.offer()
	s.quiet(5, alarm, "there is no pod")
	if got := NoVictim(s.latest.noVictim.Load()); got != NoPods {
		t.Errorf("reason %q", got)
	}
	s.node.setAvailable(8 * gi)
	s.quiet(1, alarm, "calm")
	if got := NoVictim(s.latest.noVictim.Load()); got != Chosen {
		t.Errorf("the reason %q outlives the breach", got)
	}
}

func TestThresholdOff(t *testing.T) {
	s := newSamplerRig(t, Rules{}, 0)
	p, _ := hog(t, "u1", 2*gi)
	s.offer(p)
	s.quiet(10, time.Second, "the threshold is off")
}

func TestObserveReportsOnceAMinuteAndNeverKills(t *testing.T) {
	rules := hardRules
	rules.Observe = true
	s := newSamplerRig(t, rules, 200*mi)
	p, c := hog(t, "u1", 2*gi)
	reports := func(d, step time.Duration, level func(i int) uint64) int {
		n := 0
		for i := range int(d / step) {
			s.node.setAvailable(level(i))
			s.offer(p)
			s.quiet(1, step, "mode observe")
			select {
			case <-s.observed:
				n++
			default:
			}
		}
		return n
	}
	low := func(int) uint64 { return 200 * mi }
	if n := reports(3*time.Minute, 100*time.Millisecond, low); n != 3 {
		t.Errorf("%d reports of a breach of three minutes, want 3", n)
	}
	s.clock.advance(time.Minute)
	// Nothing is done about it, so it hovers: that must not flood the history.
	hover := func(i int) uint64 { return []uint64{200 * mi, 501 * mi}[i%2] }
	if n := reports(3*time.Minute, 100*time.Millisecond, hover); n < 3 || n > 4 {
		t.Errorf("%d reports of three minutes around the threshold, want one a minute", n)
	}
	if killsOf(c)+pidfdsOf(c) != 0 {
		t.Error("killed in mode observe")
	}
}
