package eviction

import (
	"strings"
	"testing"
	"time"
)

// bugs.md B13: two samples 10 s apart would be 1.2 GiB; at −120 MiB/s the kill
// comes within 100 ms of the crossing, with the sampler's own pacing.
func TestCaseB13(t *testing.T) {
	s := newSamplerRig(t, hardRules, 2*gi)
	p, _ := hog(t, "u1", 4*gi)
	s.offer(p)
	left := func(at time.Duration) uint64 { return 2*gi - uint64(at.Seconds()*120*mi) }
	crossing := time.Duration(float64(2*gi-500*mi) / (120 * mi) * float64(time.Second))
	for at := time.Duration(0); at < crossing+time.Second; {
		s.node.setAvailable(left(at))
		wait := s.tick()
		select {
		case <-s.orders:
			if at < crossing || at > crossing+100*time.Millisecond {
				t.Errorf("ordered at %v, the crossing was at %v", at, crossing)
			}
			return
		default:
		}
		s.clock.advance(wait)
		at += wait
	}
	t.Error("no kill")
}

// bugs.md B09 with auto: crossing at 0.20 s, a kill by 0.30 s with 450Mi left.
func TestCaseB09(t *testing.T) {
	auto := AutoMemory(16*gi, 67584<<10, 100*mi)
	if auto != 500*mi {
		t.Fatalf("auto is %d MiB", auto/mi)
	}
	s := newSamplerRig(t, Rules{Amount: auto, Floor: DefaultFloor}, 600*mi)
	p, _ := hog(t, "u1", 4*gi)
	s.offer(p)
	for at := time.Duration(0); at < time.Second; {
		left := 600*mi - uint64(at.Seconds()*500*mi)
		s.node.setAvailable(left)
		wait := s.tick()
		select {
		case <-s.orders:
			if at > 300*time.Millisecond || left < 450*mi {
				t.Errorf("ordered at %v with %d MiB left", at, left/mi)
			}
			return
		default:
		}
		s.clock.advance(wait)
		at += wait
	}
	t.Error("no kill")
}

// bugs.md B14: 8 GiB, system.slice has 7.6, the pods 100Mi, 90Mi are left. One
// victim at most, said to be pressure from outside pods, then nobody.
func TestCaseB14(t *testing.T) {
	for _, tt := range []struct {
		name string
		// the system takes back what the victim gave, or leaves it
		pinned bool
	}{{"the pressure stays", true}, {"it hovers", false}} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.node.capacity, r.node.system = 8*gi, 7782*mi
				r.set.Rules = Rules{Amount: 100 * mi, Floor: 100 * mi, MinReclaim: 100 * mi, SmallGainLast: true}
				r.topLevel = []Consumer{{"/system.slice", 7782 * mi}, {"/kubepods", 100 * mi}}
				for _, uid := range []string{"a", "b", "c", "d"} {
					r.add(testPod{uid: uid, usage: 25 * mi})
				}
				stop := r.start()
				defer stop()
				pass(2 * time.Second)
				r.node.setAvailable(90 * mi)
				for range 180 {
					pass(time.Second)
					if tt.pinned {
						r.node.setAvailable(90 * mi)
					}
				}
				killed := 0
				for _, o := range r.outcomes() {
					if strings.HasPrefix(o, "evicted") {
						killed++
					}
				}
				if killed != 1 {
					t.Errorf("decisions %q, want one victim", r.outcomes())
				}
				rep := r.eng.History(historyLength)
				first := rep[len(rep)-1]
				if want := "pressure from outside pods"; !strings.Contains(first.Summary, want) || !strings.Contains(first.Summary, "system.slice 7782Mi") || len(first.Consumers) != 2 {
					t.Errorf("summary %q, consumers %v", first.Summary, first.Consumers)
				}
				if !strings.Contains(strings.Join(r.lines.all(), "\n"), "most memory is in system.slice 7782Mi") {
					t.Error("no line says who has the memory")
				}
			})
		})
	}
}

// After the minute nobody else is taken in the same breach either, as long as
// all pods together could not help.
func TestOutsidePressureTakesOneVictimABreach(t *testing.T) {
	s := newSamplerRig(t, Rules{Amount: 500 * mi, Floor: 100 * mi}, 50*mi)
	p, _ := hog(t, "a", 20*mi)
	q, _ := hog(t, "b", 10*mi)
	s.offer(p, q)
	d := s.after(alarm)
	wantVictim(t, d, "a")
	if !d.Outside {
		t.Error("not noted as pressure from outside")
	}
	d.kill.advance(killSettled)
	for range 300 {
		s.offer(q)
		s.quiet(1, time.Second, "the pods have 10 MiB of the 450 that are missing")
	}
	if got := NoVictim(s.latest.noVictim.Load()); got != OutsidePressure {
		t.Errorf("reason %q", got)
	}
	big, _ := hog(t, "big", gi)
	s.offer(q, big)
	wantVictim(t, s.after(alarm), "big") // now they can
}

// The cascade breaker in the sampler: somebody eats what the victims give.
func TestCascadeInTheSampler(t *testing.T) {
	s := newSamplerRig(t, hardRules, 450*mi)
	var kills []time.Duration
	begin := s.clock.Now()
	for i := range 200 {
		p, _ := hog(t, string(rune('a'+i%26)), 4*gi)
		s.offer(p)
		if d := s.after(500 * time.Millisecond); d != nil {
			kills = append(kills, s.clock.Now().Sub(begin))
			d.kill.advance(killSettled)
		}
	}
	if len(kills) < 3 || len(kills) > 6 {
		t.Fatalf("%d kills in %v", len(kills), s.clock.Now().Sub(begin))
	}
	if kills[1]-kills[0] > 20*time.Second || kills[2]-kills[1] < breakerPause {
		t.Errorf("kills at %v: want two, a minute's pause, and on", kills)
	}
}

func TestCascadeIsShown(t *testing.T) {
	s := newSamplerRig(t, hardRules, 90*mi) // below the floor nobody waits for memory to come back
	for range 2 {
		p, _ := hog(t, "u", 4*gi)
		s.offer(p)
		d := s.after(alarm)
		wantVictim(t, d, "u")
		d.kill.advance(killSettled)
		s.quiet(1, alarm, "this sample may be older than the end of the kill")
	}
	p, _ := hog(t, "u", 4*gi)
	s.offer(p)
	s.quiet(10, alarm, "two kills were of no use")
	l := &s.latest
	if NoVictim(l.noVictim.Load()) != Cascade || NoVictim(l.breaker.Load()) != Cascade || action(l.action.Load()) != waiting {
		t.Errorf("reason %v, breaker %v, action %d", NoVictim(l.noVictim.Load()), NoVictim(l.breaker.Load()), l.action.Load())
	}
	if left := time.Unix(0, l.breakerUntil.Load()).Sub(s.clock.Now()); left <= 0 || left > breakerPause {
		t.Errorf("open for another %v", left)
	}
}

// killBudget: then only reports, but for below the floor.
func TestKillBudgetInTheSampler(t *testing.T) {
	s := newSamplerRig(t, hardRules, 450*mi)
	s.use(&Settings{Rules: hardRules, KillBudget: 2})
	round := func(available uint64) *Decision {
		s.node.setAvailable(8 * gi) // what was killed came back
		s.quiet(1, time.Minute, "calm")
		s.node.setAvailable(available)
		p, _ := hog(t, "u", gi)
		for range 3 {
			s.offer(p)
			if d := s.after(alarm); d != nil {
				d.kill.advance(killSettled)
				return d
			}
		}
		return nil
	}
	wantVictim(t, round(450*mi), "u")
	wantVictim(t, round(450*mi), "u")
	wantVictim(t, round(450*mi), "nobody")
	select {
	case d := <-s.observed:
		if !d.Rules.Observe {
			t.Error("reported as if it were carried out")
		}
	default:
		t.Error("not even reported")
	}
	if got := NoVictim(s.latest.noVictim.Load()); got != BudgetSpent {
		t.Errorf("reason %v", got)
	}
	wantVictim(t, round(99*mi), "u")
	wantVictim(t, round(450*mi), "nobody")
	s.clock.advance(time.Hour)
	wantVictim(t, round(450*mi), "u")
}

// In mode observe nothing was killed: the breakers have nothing to say.
func TestObserveTripsNoBreaker(t *testing.T) {
	rules := hardRules
	rules.Observe = true
	s := newSamplerRig(t, rules, 90*mi)
	s.use(&Settings{Rules: rules, KillBudget: 1})
	n := 0
	for range 300 {
		p, _ := hog(t, "u", 4*gi)
		s.offer(p)
		s.quiet(1, time.Second, "mode observe")
		select {
		case <-s.observed:
			n++
		default:
		}
	}
	if n != 5 || NoVictim(s.latest.breaker.Load()) != Chosen {
		t.Errorf("%d reports in five minutes, breaker %v", n, NoVictim(s.latest.breaker.Load()))
	}
}

// bugs.md B102: decaying averages are no evidence. Direct reclaim stood in for
// kubelet's reading; after the kill nothing is reclaimed any more, and there is
// no second kill however low the kernel's number stays.
func TestCaseB102(t *testing.T) {
	s := newSamplerRig(t, hardRules, 0)
	scan := &countedScan{}
	s.mem = &meminfoFixed{infoOf(100 * mi)}
	s.scan = scan
	p, _ := hog(t, "u1", 2*gi)
	q, _ := hog(t, "u2", gi)
	s.offer(p, q)
	var d *Decision
	for range 120 {
		scan.pages += 500
		if d = s.after(10 * time.Millisecond); d != nil {
			break
		}
	}
	wantVictim(t, d, "u1")
	d.kill.advance(killSettled)
	s.clock.advance(pendingFor)
	for range 2000 {
		s.offer(q)
		s.quiet(1, 10*time.Millisecond, "pgscan_direct stands still")
	}
}

// Kills that were given up, and victims that stand still, are of no use either.
func TestCascadeOfVictimsThatDoNotDie(t *testing.T) {
	for name, end := range map[string]func(s *samplerRig, d *Decision){
		"given up":    func(_ *samplerRig, d *Decision) { d.kill.advance(killAbandoned) },
		"stand still": func(s *samplerRig, _ *Decision) { s.clock.advance(notFalling + time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSamplerRig(t, hardRules, 200*mi)
			for _, uid := range []string{"a", "b"} {
				p, _ := hog(t, uid, 4*gi)
				s.offer(p)
				d := s.after(alarm)
				wantVictim(t, d, uid)
				s.quiet(1, alarm, "it is in flight")
				end(s, d)
				s.quiet(1, alarm, "this sample may be older than the end of the kill")
			}
			p, _ := hog(t, "c", 4*gi)
			s.offer(p)
			s.quiet(100, alarm, "two kills were of no use")
			if got := NoVictim(s.latest.noVictim.Load()); got != Cascade {
				t.Errorf("reason %v", got)
			}
		})
	}
}

// What kills that are over will still give back is no reason to blame others.
func TestComingMemoryIsNoOutsidePressure(t *testing.T) {
	s := newSamplerRig(t, hardRules, 100*mi)
	p, _ := hog(t, "a", 450*mi)
	q, _ := hog(t, "b", 200*mi)
	s.offer(p)
	d := s.after(alarm)
	wantVictim(t, d, "a")
	d.kill.advance(killSettled)
	s.node.setAvailable(90 * mi) // below the floor nobody waits
	s.offer(q)
	s.quiet(1, alarm, "this sample may be older than the end of the kill")
	d = s.after(alarm)
	wantVictim(t, d, "b")
	if d.Outside {
		t.Error("410 MiB are missing, 450 are coming back and 200 can be had")
	}
}
