package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func (r *real) freezerState(t *testing.T, cgroup string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.fs.freezer, cgroup, freezerState))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestRealV1Kill(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	a, b := r.start(t, r.path, sleeper), r.start(t, r.container, sleeper)
	began := time.Now()
	n, err := p.Kill(KillOptions{})
	t.Logf("Kill took %v", time.Since(began))
	if err != nil || n != 2 {
		t.Errorf("killed %d, %v, want 2", n, err)
	}
	waitEmpty(t, p)
	t.Logf("empty after %v", time.Since(began))
	a.waitDead(t)
	b.waitDead(t)
	if st := r.freezerState(t, r.path); st != "THAWED" {
		t.Errorf("freezer is %s afterwards", st)
	}
	if n, err := p.Kill(KillOptions{}); n != 0 || err != nil {
		t.Errorf("empty cgroup: %d, %v", n, err)
	}
}

func TestRealV1KillForking(t *testing.T) {
	for _, tc := range []struct {
		name string
		kill func(*PodCgroup) (int, error)
	}{
		{"freezer", func(p *PodCgroup) (int, error) { return p.Kill(KillOptions{Timeout: patience}) }},
		{"pidfd only", func(p *PodCgroup) (int, error) { return p.KillByPidfd() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := realV1(t)
			p := openPod(t, r.fs, r.path)
			f := r.start(t, r.container, forker)
			waitForking(t, p)
			n, err := tc.kill(p)
			if err != nil || n < 2 {
				t.Errorf("killed %d, %v", n, err)
			}
			f.waitDead(t)
			waitEmpty(t, p)
			if st := r.freezerState(t, r.path); st != "THAWED" {
				t.Errorf("freezer is %s afterwards", st)
			}
		})
	}
}

// A process that is another one at every look.
func TestRealV1KillRunner(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	r.start(t, r.container, runner)
	first := 0
	eventually(t, "it runs", func() bool {
		pids, err := p.Pids(nil)
		if err != nil {
			t.Fatal(err)
		}
		if first == 0 && len(pids) > 0 {
			first = pids[0]
		}
		return len(pids) > 0 && pids[0] > first+20
	})
	if n, err := p.Kill(KillOptions{Timeout: patience}); err != nil || n == 0 {
		t.Errorf("killed %d, %v", n, err)
	}
	waitEmpty(t, p)
}

// Whoever appears after the listing is found by the next one.
func TestRealV1KillGoesRoundAgain(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	first := r.start(t, r.container, sleeper)
	var late []*process
	p.onSignalled = func() {
		if len(late) < 3 {
			late = append(late, r.start(t, r.container, sleeper))
		}
	}
	n, err := p.Kill(KillOptions{Timeout: patience})
	if n != 4 || err != nil || len(late) != 3 {
		t.Errorf("killed %d, %v, want 4", n, err)
	}
	for _, l := range append(late, first) {
		l.waitDead(t)
	}
	waitEmpty(t, p)
}

// A pod that makes processes for ever is given up after the time it was given,
// and thawed.
func TestRealV1KillGivesUp(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	r.start(t, r.container, sleeper)
	p.onSignalled = func() { r.start(t, r.container, sleeper) }
	n, err := p.Kill(KillOptions{Timeout: time.Nanosecond})
	if n != 1 || !errors.Is(err, errForking) {
		t.Errorf("killed %d, %v, want 1 and errForking", n, err)
	}
	if populated, err := p.Populated(); err != nil || !populated {
		t.Errorf("populated %v, %v", populated, err)
	}
	if st := r.freezerState(t, r.path); st != "THAWED" {
		t.Errorf("freezer is %s afterwards", st)
	}
}

// Processes of a paused container carry the signal and must be let go.
func TestRealV1KillPausedContainer(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	c := r.start(t, r.container, sleeper)
	state := filepath.Join(r.fs.freezer, r.container, freezerState)
	if err := os.WriteFile(state, []byte("FROZEN"), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "container is frozen", func() bool { return r.freezerState(t, r.container) == "FROZEN" })
	if n, err := p.Kill(KillOptions{}); n != 1 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	c.waitDead(t)
	waitEmpty(t, p)
}

// A kill that gets stuck between freeze and thaw leaves nobody frozen.
func TestRealV1ThawsWhenTheKillIsStuck(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	c := r.start(t, r.container, sleeper)
	var frozenFor time.Duration
	p.onFrozen = func() {
		if st := r.freezerState(t, r.path); st == "THAWED" {
			t.Error("the kill did not freeze")
		}
		began := time.Now()
		eventually(t, "thawed by the watch", func() bool { return r.freezerState(t, r.path) == "THAWED" })
		frozenFor = time.Since(began)
		if !alive(c.pid()) {
			t.Error("dead before it was signalled")
		}
	}
	n, err := p.Kill(KillOptions{})
	t.Logf("thawed after %v", frozenFor)
	if frozenFor > time.Second { // 100 ms, on a machine that has something else to do
		t.Errorf("frozen for %v", frozenFor)
	}
	if n != 1 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	c.waitDead(t)
	waitEmpty(t, p)
}

// The cgroup vanishes between freeze and listing: no error may keep the thaw
// from happening.
func TestRealV1ThawsWhenTheListingFails(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	memory := r.roots[0]
	p.onFrozen = func() {
		for _, d := range []string{memory + r.container, memory + r.path} {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
	}
	if n, err := p.Kill(KillOptions{}); n != 0 || !errors.Is(err, ErrGone) {
		t.Errorf("%d, %v, want ErrGone", n, err)
	}
	if st := r.freezerState(t, r.path); st != "THAWED" {
		t.Errorf("freezer is %s afterwards", st)
	}
}

func TestRealV1KillSkips(t *testing.T) {
	r := realV1(t)
	p := openPod(t, r.fs, r.path)
	spared, victim := r.start(t, r.path, sleeper), r.start(t, r.container, sleeper)
	n, err := p.Kill(KillOptions{Skip: []int{spared.pid()}})
	if n != 1 || err != nil {
		t.Errorf("killed %d, %v, want 1", n, err)
	}
	victim.waitDead(t)
	if !alive(spared.pid()) {
		t.Error("the spared process is dead")
	}
	if pids, err := p.Pids(nil); err != nil || !slices.Equal(pids, []int{spared.pid()}) {
		t.Errorf("left: %v, %v", pids, err)
	}
}

// Only the pod dies: not its neighbour in the same QoS level, and a parent is
// refused.
func TestRealV1KillSparesTheNeighbour(t *testing.T) {
	r := realV1(t)
	neighbour := filepath.Dir(r.path) + "/podneighbour"
	for _, h := range r.roots {
		if err := os.Mkdir(h+neighbour, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	other, c := r.start(t, neighbour, sleeper), r.start(t, r.container, sleeper)
	if _, err := openPod(t, r.fs, filepath.Dir(r.path)).Kill(KillOptions{}); !errors.Is(err, ErrNotPod) {
		t.Errorf("QoS level: %v, want ErrNotPod", err)
	}
	if n, err := openPod(t, r.fs, r.path).Kill(KillOptions{}); n != 1 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	c.waitDead(t)
	if !alive(other.pid()) {
		t.Error("the neighbour is dead")
	}
	if st := r.freezerState(t, neighbour); st != "THAWED" {
		t.Errorf("the neighbour's freezer is %s", st)
	}
}

func TestRealV1ThawPath(t *testing.T) {
	r := realV1(t)
	r.start(t, r.container, sleeper)
	state := filepath.Join(r.fs.freezer, r.path, freezerState)
	p := openPod(t, r.fs, r.path)
	for name, thaw := range map[string]func() error{
		"ThawPath": func() error { return r.fs.ThawPath(r.path) },
		"Thaw":     p.Thaw,
	} {
		if err := os.WriteFile(state, []byte("FROZEN"), 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "frozen", func() bool { return r.freezerState(t, r.path) == "FROZEN" })
		if err := thaw(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if st := r.freezerState(t, r.path); st != "THAWED" {
			t.Errorf("%s: freezer is %s", name, st)
		}
	}
}
