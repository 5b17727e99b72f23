package eviction

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestVerifierSettles(t *testing.T) {
	type look struct {
		at        time.Duration
		populated bool
		usage     uint64
		known     bool
		want      verifyStep
	}
	for _, tt := range []struct {
		name  string
		looks []look
	}{
		{"a removed cgroup has nothing left to settle", []look{
			{0, false, 0, false, verifySettled},
		}},
		{"usage must stand still for 50 ms", []look{
			{0, true, 900 * mi, true, verifyWait},
			{5 * time.Millisecond, false, 900 * mi, true, verifyWait},
			{20 * time.Millisecond, false, 500 * mi, true, verifyWait},
			{69 * time.Millisecond, false, 500*mi - 1, true, verifyWait},
			{70 * time.Millisecond, false, 500*mi - 2, true, verifySettled},
		}},
		{"a process that appears again starts anew", []look{
			{0, false, 100 * mi, true, verifyWait},
			{40 * time.Millisecond, true, 100 * mi, true, verifyWait},
			{60 * time.Millisecond, false, 100 * mi, true, verifyWait},
			{100 * time.Millisecond, false, 100 * mi, true, verifyWait},
			{110 * time.Millisecond, false, 100 * mi, true, verifySettled},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newVerifier(t0)
			for i, l := range tt.looks {
				if got := v.observe(t0.Add(l.at), l.populated, l.usage, l.known); got != l.want {
					t.Fatalf("look %d at %v: step %d, want %d", i, l.at, got, l.want)
				}
			}
		})
	}
	t.Run("always falling", func(t *testing.T) {
		v := newVerifier(t0)
		usage := uint64(100 * gi)
		for at := time.Duration(0); at < 2*time.Second; at += 10 * time.Millisecond {
			if got := v.observe(t0.Add(at), false, usage, true); got != verifyWait {
				t.Fatalf("step %d after %v", got, at)
			}
			usage -= 2 * mi
		}
		if got := v.observe(t0.Add(2*time.Second), false, usage, true); got != verifySettled {
			t.Errorf("step %d after 2 s", got)
		}
	})
}

func TestVerifierRetriesWithBackOffAndGivesUp(t *testing.T) {
	v := newVerifier(t0)
	var retries []time.Duration
	var gaveUp time.Duration
	for at := time.Duration(0); at <= 2*time.Minute; at += 50 * time.Millisecond {
		switch v.observe(t0.Add(at), true, gi, true) {
		case verifyRetry:
			retries = append(retries, at)
		case verifyGiveUp:
			gaveUp = at
		case verifySettled:
			t.Fatal("settled with a process left")
		}
		if gaveUp != 0 {
			break
		}
	}
	if gaveUp != time.Minute {
		t.Errorf("gave up after %v, want 1m", gaveUp)
	}
	want := []time.Duration{250 * time.Millisecond, 750 * time.Millisecond, 1750 * time.Millisecond, 3750 * time.Millisecond, 7750 * time.Millisecond, 12750 * time.Millisecond}
	if len(retries) < len(want) {
		t.Fatalf("retries at %v", retries)
	}
	for i, w := range want {
		if retries[i] != w {
			t.Errorf("retry %d after %v, want %v", i, retries[i], w)
		}
	}
	if len(retries) != 15 { // then every 5 s until the minute is over
		t.Errorf("%d retries: %v", len(retries), retries)
	}
}

func TestVerifierLooksOftenAtFirst(t *testing.T) {
	v := newVerifier(t0)
	if got := v.pause(t0.Add(time.Second)); got != 5*time.Millisecond {
		t.Errorf("pause %v after 1 s", got)
	}
	if got := v.pause(t0.Add(2 * time.Second)); got != 100*time.Millisecond {
		t.Errorf("pause %v after 2 s", got)
	}
}

// verified runs verify to its end in virtual time.
func verified(t *testing.T, d *Decision, stopped func(since time.Duration) bool) (ok bool, tries int, took time.Duration) {
	t.Helper()
	begin := time.Now()
	ok, tries = verify(t.Context(), d, time.Now, func() bool { return stopped(time.Since(begin)) }, func() {})
	return ok, tries, time.Since(begin)
}

func never(time.Duration) bool { return false }

func TestVerify(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cgroup  func(c *fakeCgroup)
		pod     func(p *PlanPod)
		stopped func(time.Duration) bool
		ok      bool
		took    [2]time.Duration
	}{
		{
			"an empty cgroup needs no word from the runtime",
			func(c *fakeCgroup) { c.procs = false }, nil, never, true,
			[2]time.Duration{50 * time.Millisecond, 60 * time.Millisecond},
		},
		{
			"a removed cgroup is empty, whatever the runtime says",
			func(c *fakeCgroup) { c.gone = true }, nil, never, true,
			[2]time.Duration{0, 10 * time.Millisecond},
		},
		{
			"what cannot be looked into is the runtime's to say",
			func(c *fakeCgroup) { c.popErr = errors.New("permission denied"); c.immortal = true }, nil,
			func(d time.Duration) bool { return d >= 3*time.Second }, true,
			[2]time.Duration{3 * time.Second, 3200 * time.Millisecond},
		},
		{
			"without a cgroup too", nil, func(p *PlanPod) { p.cgroups, p.NoDirect = nil, "no cgroup" },
			func(d time.Duration) bool { return d >= time.Second }, true,
			[2]time.Duration{time.Second, 1100 * time.Millisecond},
		},
		{
			"and that word never comes", nil, func(p *PlanPod) { p.cgroups, p.NoDirect = nil, "no cgroup" }, never, false,
			[2]time.Duration{time.Minute, 61 * time.Second},
		},
		{
			"who cannot be killed is given up after a minute",
			func(c *fakeCgroup) { c.immortal = true }, nil, never, false,
			[2]time.Duration{time.Minute, 61 * time.Second},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, c := hog(t, "u1", gi)
				if tt.cgroup != nil {
					c.change(tt.cgroup)
				}
				if tt.pod != nil {
					tt.pod(&p)
				}
				ok, _, took := verified(t, ordered(p), tt.stopped)
				if ok != tt.ok || took < tt.took[0] || took > tt.took[1] {
					t.Errorf("ok %v after %v, want %v between %v and %v", ok, took, tt.ok, tt.took[0], tt.took[1])
				}
			})
		})
	}
}

func TestVerifyRepeatsTheKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, c := hog(t, "u1", gi)
		c.immortal = true
		time.AfterFunc(5*time.Second, func() { c.change(func(c *fakeCgroup) { c.immortal = false }) })
		ok, tries, took := verified(t, ordered(p), never)
		if !ok || tries != 6 || took < 7750*time.Millisecond || took > 8*time.Second {
			t.Errorf("ok %v, %d tries, %v", ok, tries, took)
		}
		if killsOf(c) != 5 || pidfdsOf(c) != 4 {
			t.Errorf("%d kills, %d by pidfd; want 5 and, from the second repeat on, 4", killsOf(c), pidfdsOf(c))
		}
	})
}

func TestVerifyNeverKillsWhatIsNotItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, c := hog(t, "u1", gi)
		p.NoDirect = "shared"
		verified(t, ordered(p), never)
		if killsOf(c)+pidfdsOf(c) != 0 {
			t.Error("killed directly")
		}
	})
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, c := hog(t, "u1", gi)
		c.immortal = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		ok, _ := verify(ctx, ordered(p), time.Now, func() bool { return false }, func() {})
		if ok || time.Since(begin) != time.Second {
			t.Errorf("ok %v after %v", ok, time.Since(begin))
		}
	})
}

// A pod without a cgroup of its own: one container's cgroup is removed before
// the other is empty.
func TestOneOfTwoCgroupsIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := &fakeCgroup{path: "/x/a", gone: true}
		b := &fakeCgroup{path: "/x/b", procs: true, current: gi}
		p := planPod(t, "u1", a, b)
		p.NoDirect = "shared"
		time.AfterFunc(time.Second, func() { b.change(func(c *fakeCgroup) { c.procs, c.current = false, 0 }) })
		ok, _, took := verified(t, ordered(p), never)
		if !ok || took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("ok %v after %v, want when the second is empty", ok, took)
		}
	})
}
