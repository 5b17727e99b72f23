package eviction

import (
	"testing"
	"time"
)

// pending orders a kill of a pod of this size with 450Mi left, and lets usage
// and available go on as told.
func pending(t *testing.T, gain uint64) (s *samplerRig, first *fakeCgroup, all []PlanPod) {
	t.Helper()
	s = newSamplerRig(t, hardRules, 450*mi)
	p, c := hog(t, "a", gain)
	q, _ := hog(t, "b", gain/2)
	all = []PlanPod{p, q}
	s.offer(all...)
	s.quiet(1, alarm, "one sample")
	d := s.after(alarm)
	if d == nil || d.pod().UID != "a" {
		t.Fatalf("first victim %v", d)
	}
	return s, c, all
}

func wantVictim(t *testing.T, d *Decision, uid string) {
	t.Helper()
	got := "nobody"
	if d != nil {
		got = d.pod().UID
	}
	if got != uid {
		t.Fatalf("victim %s, want %s", got, uid)
	}
}

// Design §8: a second kill while one is pending if the number passes half the
// threshold, from the plan at hand, because the slow half may get no CPU then.
func TestEmergencyTakesASecondVictim(t *testing.T) {
	s, _, _ := pending(t, 200*mi) // does not make up for the shortage
	s.node.setAvailable(250 * mi)
	s.quiet(10, alarm, "half the threshold is not passed")
	s.node.setAvailable(249 * mi)
	wantVictim(t, s.after(alarm), "b")
	if s.inflight == nil || s.second == nil {
		t.Fatal("not both are followed")
	}
}

func TestEmergencyIsOnlyOneMore(t *testing.T) {
	s, _, all := pending(t, 200*mi)
	r, _ := hog(t, "c", 150*mi)
	s.node.setAvailable(200 * mi)
	wantVictim(t, s.after(alarm), "b")
	s.node.setAvailable(0)
	for range 50 {
		s.offer(append(all, r)...)
		s.quiet(1, alarm, "two are in flight")
	}
	s.inflight.kill.advance(killSettled)
	s.offer(all[1], r)
	s.quiet(1, alarm, "this sample may be older than the end of the kill")
	wantVictim(t, s.after(alarm), "c")
}

// The victim of the first kill is not taken again, however old the plan.
func TestEmergencyNeverTakesTheDyingAgain(t *testing.T) {
	s, c, all := pending(t, 200*mi)
	s.node.setAvailable(200 * mi)
	s.offer(all[0]) // a plan that does not know of the kill
	s.quiet(50, alarm, "the only pod is dying")
	if got := NoVictim(s.latest.noVictim.Load()); got != AllBarred || killsOf(c) != 0 {
		t.Errorf("reason %v", got)
	}
}

// A burst that began below half: the number has to halve once more.
func TestEmergencyLineOfABurst(t *testing.T) {
	s := newSamplerRig(t, hardRules, 200*mi)
	p, _ := hog(t, "a", 290*mi)
	q, _ := hog(t, "b", 280*mi)
	s.offer(p, q)
	s.node.setAvailable(200 * mi)
	wantVictim(t, s.after(alarm), "a")
	s.node.setAvailable(100 * mi)
	s.quiet(10, alarm, "it has not halved")
	s.node.setAvailable(100*mi - 1)
	wantVictim(t, s.after(alarm), "b")
}

// Not while a big victim is visibly shrinking.
func TestBigVictimIsWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name string
		gain uint64
		fall uint64 // per 10 ms
		want string
	}{
		{"makes up for the shortage and shrinks", 600 * mi, 4 * mi, "nobody"},
		{"over 1 GiB and shrinks", 2 * gi, 10 * mi, "nobody"},
		{"trickles", 2 * gi, mi / 8, "b"},
		{"stands still", 8 * gi, 0, "b"},
		{"small, however fast", 200 * mi, 4 * mi, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c, _ := pending(t, tt.gain)
			s.node.setAvailable(150 * mi) // 350Mi are missing
			var second *Decision
			for i := range 40 {
				c.change(func(c *fakeCgroup) { c.current -= min(c.current, tt.fall) })
				if second = s.after(10 * time.Millisecond); second != nil {
					if tt.gain > 500*mi && time.Duration(i+1)*10*time.Millisecond < shrinkWindow {
						t.Errorf("after %d ms: it had no time to begin", 10*(i+1))
					}
					break
				}
			}
			wantVictim(t, second, tt.want)
		})
	}
}

// A big victim that stops shrinking half way is not waited for any longer.
func TestBigVictimThatStopsShrinking(t *testing.T) {
	s, c, _ := pending(t, 4*gi)
	s.node.setAvailable(150 * mi)
	for range 30 {
		c.change(func(c *fakeCgroup) { c.current -= 10 * mi })
		if d := s.after(10 * time.Millisecond); d != nil {
			t.Fatalf("%s was taken while the first shrinks", d.pod())
		}
	}
	var second *Decision
	ticks := 0
	for ; ticks < 60 && second == nil; ticks++ {
		second = s.after(10 * time.Millisecond)
	}
	wantVictim(t, second, "b")
	if waited := time.Duration(ticks) * 10 * time.Millisecond; waited > 2*shrinkWindow+20*time.Millisecond {
		t.Errorf("waited %v for a victim that stands still", waited)
	}
}

// An unarmed threshold knows no emergency.
func TestUnarmedHasNoEmergency(t *testing.T) {
	s, _, _ := pending(t, 200*mi)
	s.armed.always.Store(false)
	s.armed.amount.Store(0)
	s.node.setAvailable(50 * mi)
	s.quiet(20, alarm, "the threshold is unarmed")
}

// Where the shortage is larger than any victim, one over 1 GiB is waited for all
// the same while it shrinks, a smaller one is not.
func TestBigVictimOfALargeShortage(t *testing.T) {
	for _, tt := range []struct {
		gain uint64
		want string
	}{{bigVictim + mi, "nobody"}, {bigVictim, "b"}} {
		s := newSamplerRig(t, Rules{Amount: 6 * gi, Floor: 100 * mi}, 5*gi)
		p, c := hog(t, "a", tt.gain)
		q, _ := hog(t, "b", tt.gain/2)
		s.offer(p, q)
		s.quiet(1, alarm, "one sample")
		wantVictim(t, s.after(alarm), "a")
		s.node.setAvailable(2 * gi) // 4 GiB are missing
		var second *Decision
		for range 18 {
			c.change(func(c *fakeCgroup) { c.current -= 50 * mi })
			if second = s.after(10 * time.Millisecond); second != nil {
				break
			}
		}
		wantVictim(t, second, tt.want)
	}
}
