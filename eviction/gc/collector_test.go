package gc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// bugs.md B74: 5 GiB are needed, ten unused images of 2 GiB: three go, the one not
// used for the longest time first; also where the runtime gives the space back
// seconds later.
func TestCaseB74(t *testing.T) {
	for _, lag := range []time.Duration{0, 50 * time.Millisecond, 4 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMachine(t, 10*gi)
				m.lag = lag
				for i := range 10 {
					m.image(fmt.Sprintf("i%d", i), 2*gi, time.Duration(20-i)*time.Hour)
				}
				start := time.Now()
				done, err := m.reclaim(eviction.ImageFsAvailable, 5*gi)
				if err != nil || done.Images != 3 || done.Freed != 6*gi {
					t.Errorf("%+v, %v", done, err)
				}
				m.wantRemoved("i0", "i1", "i2")
				if took := time.Since(start); took > 3*(lag+settleStep)+time.Second {
					t.Errorf("took %s", took)
				}
				if m.calls["statfs"] < 4 {
					t.Errorf("measured %d times", m.calls["statfs"])
				}
			})
		})
	}
}

// One is enough as soon as it is: nothing more goes, whatever the sizes say.
func TestNothingGoesWhenEnoughIsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 10*gi)
		m.image("i", gi, time.Hour)
		done, err := m.reclaim(eviction.ImageFsAvailable, 0)
		if err != nil || done.Images != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		m.wantRemoved()
	})
}

// bugs.md B68: 41 images, all of them needed. It is said, with who else has the
// space, and not again within five minutes.
func TestCaseB68(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.use = []Consumer{{"default/db", 40 * gi}, {"default/logs", 20 * gi}, {"default/c", 2 * gi}, {"default/d", gi}}
		for i := range 41 {
			id := fmt.Sprintf("i%d", i)
			m.image(id, gi, time.Hour)
			m.container("p"+id, "main", 0, Running, time.Hour, "docker.io/library/"+id+":1")
		}
		var done eviction.ReclaimedDisk
		for range 30 {
			var err error
			if done, err = m.reclaim(eviction.NodeFsAvailable, 5*gi); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
		}
		want := "0 of 41 images are unused and may be removed; the largest consumers besides images: default/db 40Gi, default/logs 20Gi, default/c 2Gi"
		if done.Text != want || done.Images != 0 {
			t.Errorf("%+v, want %q", done, want)
		}
		if n := m.lines(logrus.WarnLevel); n != 1 {
			t.Errorf("said %d times within 4.5 min", n)
		}
		m.wantRemoved()
	})
}

// bugs.md B69: the pause image, which no container uses and which is not pinned, is
// known by the runtime's configuration, also in its digest form.
func TestCaseB69(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.image("infra", gi, 20*time.Hour)
		m.images[0].Names = []string{"registry.local/infra@sha256:" + strings.Repeat("0a", 32)}
		m.image("byName", gi, 20*time.Hour)
		m.images[1].Names = []string{"registry.local/pause:3.5"}
		m.image("other", gi, time.Hour)
		m.sandbox = []string{"registry.local/infra:3.5"}
		m.names["registry.local/infra:3.5"] = "infra"
		if _, err := m.reclaim(eviction.ImageFsAvailable, 50*gi); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("other")
	})
}

// bugs.md B71: an image was pulled a second ago and its container is created three
// seconds later; while the pull and the creation are under way, and for the minimum
// age after, it stays, however short the space is.
func TestCaseB71(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.image("i9", gi, 20*time.Hour) // an older pull of it
		reclaim := func(when string, want ...string) {
			t.Helper()
			if _, err := m.reclaim(eviction.ImageFsAvailable, 50*gi); err != nil {
				t.Fatal(err)
			}
			if len(m.removed) != len(want) {
				t.Fatalf("%s: removed %q, want %q", when, m.removed, want)
			}
		}
		m.uses.Begin("i9:1")
		reclaim("while it is pulled")
		m.uses.Pulled(true, "i9:1", "i9")
		time.Sleep(time.Second)
		reclaim("a second after the pull")
		time.Sleep(3 * time.Second)
		m.uses.Begin("i9:1")
		reclaim("while its container is created")
		m.uses.Created(true, "i9:1")
		time.Sleep(m.set.MinAge - time.Second)
		reclaim("less than the minimum age after its use")
		time.Sleep(time.Second)
		reclaim("the minimum age after its use, without a container that has it", "i9")
	})
}

// bugs.md B77: 500 unused images, 100 GiB are needed: one pass goes on until they
// are there.
func TestCaseB77(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 0)
		m.fs.Capacity = 1000 * gi
		for i := range 500 {
			m.image(fmt.Sprintf("i%d", i), gi/4, time.Duration(1000-i)*time.Minute)
		}
		done, err := m.reclaim(eviction.ImageFsAvailable, 100*gi)
		if err != nil || done.Images != 400 || done.Freed != 100*gi {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

// A removal that hangs ends with its deadline and ends the pass: the engine waits
// for the pass, and nothing else does.
func TestStuckRemoval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 0)
		m.image("a", gi, 3*time.Hour)
		m.image("b", gi, 2*time.Hour)
		m.hangs["a"] = true
		start := time.Now()
		done, err := m.reclaim(eviction.ImageFsAvailable, 100*gi)
		if !errors.Is(err, context.DeadlineExceeded) || done.Images != 0 || time.Since(start) != removePatience {
			t.Errorf("%+v, %v after %s", done, err, time.Since(start))
		}
		m.wantRemoved()
	})
}

// Dead containers go before images, and images only if that was not enough.
func TestContainersFirst(t *testing.T) {
	for _, c := range []struct {
		need uint64
		want []string
	}{
		{gi, []string{"p/main/0"}},
		{2 * gi, []string{"p/main/0", "done/main/0"}},
		{3 * gi, []string{"p/main/0", "done/main/0", "i"}},
	} {
		bubble(t, func(t *testing.T) {
			m := newMachine(t, gi)
			m.image("i", gi, time.Hour)
			m.image("app", gi, time.Hour)
			m.container("p", "main", 0, Exited, 3*time.Hour, "docker.io/library/app:1")
			m.container("p", "main", 1, Exited, 2*time.Hour, "docker.io/library/app:1")
			m.container("p", "main", 2, Running, time.Hour, "docker.io/library/app:1")
			m.container("done", "main", 0, Exited, 4*time.Hour, "docker.io/library/app:1")
			m.frees["p/main/0"], m.frees["done/main/0"] = release{bytes: gi}, release{bytes: gi}
			// Who is dead since when is known from the rounds before.
			if err := m.c.round(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if _, err := m.reclaim(eviction.NodeFsAvailable, c.need); err != nil {
				t.Fatal(err)
			}
			m.wantRemoved(c.want...)
		})
	}
}

// Images whose removal frees nothing: five, then none for five minutes, then ten.
func TestGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.use = []Consumer{{"default/db", 40 * gi}}
		for i := range 50 {
			id := fmt.Sprintf("i%02d", i)
			m.image(id, gi, time.Duration(100-i)*time.Hour)
			m.frees[id] = release{}
		}
		for _, c := range []struct {
			after time.Duration
			total int
			text  string
		}{
			{0, 5, "the last 5 images removed freed nothing"},
			{restFirst / 2, 5, "no images are removed until"},
			{restFirst, 10, "freed nothing"},
			{restFirst, 10, "no images are removed until"},
			{restFirst + time.Minute, 15, "freed nothing"},
		} {
			time.Sleep(c.after)
			done, err := m.reclaim(eviction.ImageFsAvailable, 5*gi)
			if err != nil || len(m.removed) != c.total || !strings.Contains(done.Text, c.text) || !strings.Contains(done.Text, "default/db 40Gi") {
				t.Fatalf("after %s: %d removed, %+v, %v", c.after, len(m.removed), done, err)
			}
		}
		if n := m.c.Counts().GaveUp; n != 3 {
			t.Errorf("gave up %d times", n)
		}
	})
}

// What is not known keeps everything where it is.
func TestWithoutFactsNothingGoes(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(m *machine)
		want   []string // what goes all the same
		err    bool
	}{
		"no list":                      {func(m *machine) { m.errs["List"] = errBroken }, nil, true},
		"no images":                    {func(m *machine) { m.errs["Images"] = errBroken }, []string{"p/main/0"}, true},
		"no configuration":             {func(m *machine) { m.errs["ConfiguredSandboxImages"] = errBroken }, []string{"p/main/0"}, true},
		"a sandbox does not answer":    {func(m *machine) { m.errs["SandboxImage"] = errBroken }, []string{"p/main/0"}, true},
		"a container does not answer":  {func(m *machine) { m.errs["MountedImages"] = errBroken }, []string{"p/main/0"}, true},
		"an image cannot be found out": {func(m *machine) { m.listing.Containers[1].Images = []string{"x:1"}; m.errs["ResolveImage"] = errBroken }, []string{"p/main/0"}, true},
		"a container without an image": {func(m *machine) { m.listing.Containers[1].Images = []string{"", ""} }, []string{"p/main/0"}, true},
		"no paths":                     {func(m *machine) { m.errs["Devices"] = errBroken }, nil, true},
		"no statfs":                    {func(m *machine) { m.errs["statfs"] = errBroken }, nil, true},
		"mode observe":                 {func(m *machine) { m.acts = false }, nil, false},
		"no kubelet":                   {func(m *machine) { m.kubelet = false }, []string{"p/main/0"}, false},
		"no kubelet, but configured":   {func(m *machine) { m.kubelet, m.set.Configured = false, true }, []string{"p/main/0", "i"}, false},
		"all is known":                 {func(*machine) {}, []string{"p/main/0", "i"}, false},
		"events were lost":             {func(m *machine) { m.uses.Linked() }, []string{"p/main/0"}, false},
		"no proxy since a moment":      {func(m *machine) { m.reserve = func([]string) error { return errBroken } }, []string{"p/main/0"}, true},
		"it is wanted":                 {func(m *machine) { m.reserve = func([]string) error { return fmt.Errorf("%w: now", ErrWanted) } }, []string{"p/main/0"}, false},
		"it is being pulled":           {func(m *machine) { m.uses.Begin("i:1") }, []string{"p/main/0"}, false},
		"it is mounted":                {func(m *machine) { m.mounted["p/main/2"] = []string{"i:1"} }, []string{"p/main/0"}, false},
		"its pod is held":              {func(m *machine) { m.held["p"] = true }, []string{"i"}, false},
		"it is allow-listed": {func(m *machine) {
			m.set.Keep, _, _ = ParseAllowList([]string{"*"})
		}, []string{"p/main/0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMachine(t, gi)
				m.image("i", gi, time.Hour)
				m.image("app", gi, time.Hour)
				for i := range 3 {
					m.container("p", "main", uint32(i), map[bool]ContainerState{true: Running, false: Exited}[i == 2], time.Duration(5-i)*time.Hour, "app:1")
				}
				c.broken(m)
				_, err := m.reclaim(eviction.NodeFsAvailable, 50*gi)
				if (err != nil) != c.err {
					t.Errorf("error %v", err)
				}
				m.wantRemoved(c.want...)
			})
		})
	}
}

// Without a proxy the list is taken anew before each removal, and an image has to
// have been of no interest for ten minutes.
func TestWithoutAProxy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.uses.Unlinked()
		m.reserve = func([]string) error { return errBroken }
		m.image("a", gi, 3*time.Hour)
		m.image("b", gi, 2*time.Hour)
		m.image("c", gi, time.Hour)
		m.image("young", gi, unlinkedAge-time.Second)
		m.onRemove = func(id string) {
			if id == "a" { // meanwhile somebody creates a container of b
				m.container("p", "main", 0, Created, 0, "docker.io/library/b:1")
			}
		}
		if _, err := m.reclaim(eviction.ImageFsAvailable, 50*gi); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("a", "c")
	})
}

// With a proxy a container of the image that was created since the last list is
// seen by a new one.
func TestUsedSinceTheList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.image("a", gi, 3*time.Hour)
		m.image("b", gi, 2*time.Hour)
		m.lag = 10 * time.Minute // nothing shows
		m.onRemove = func(id string) {
			if id == "a" {
				m.container("p", "main", 0, Created, 0, "docker.io/library/b:1")
				time.Sleep(listedLately - 4*time.Second) // what is waited for the space comes to it
			}
		}
		if _, err := m.reclaim(eviction.ImageFsAvailable, 50*gi); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("a")
	})
}

func TestOtherFileSystems(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.image("i", gi, time.Hour)
		for _, s := range []eviction.Signal{eviction.MemoryAvailable, eviction.PIDAvailable} {
			if done, err := m.reclaim(s, gi); err != nil || done != (eviction.ReclaimedDisk{}) {
				t.Errorf("%s: %+v, %v", s, done, err)
			}
		}
		done, err := m.c.Reclaim(t.Context(), eviction.ReclaimWant{
			Signal: eviction.NodeFsAvailable, Device: disk + 1, Path: "/", Need: gi,
			Measure: func(context.Context) (uint64, error) { return gi, nil },
		})
		if err != nil || done.Text == "" {
			t.Errorf("%+v, %v", done, err)
		}
		m.wantRemoved()
	})
}

// The dry run shows what a hard threshold would remove, and removes nothing.
func TestPlanIsADryRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, gi)
		m.image("i", gi, time.Hour)
		m.image("app", gi, time.Hour)
		for i := range 3 {
			m.container("p", "main", uint32(i), Exited, time.Duration(5-i)*time.Hour, "app:1")
		}
		p, err := m.c.Plan(t.Context())
		if err != nil || idsOf(p.ContainersGo) != "p/main/0 p/main/1" || len(p.ImagesGo) != 1 || p.ImagesGo[0].ID != "i" || len(p.ImagesStay) != 1 ||
			!p.Acts || !p.Linked || p.Watched < time.Hour || p.ImagesOff+p.ImagesProblem+p.Problem != "" {
			t.Errorf("%+v, %v", p, err)
		}
		m.wantRemoved()
		if _, err := m.reclaim(eviction.ImageFsAvailable, 50*gi); err != nil {
			t.Fatal(err)
		}
		m.errs["Images"] = errBroken
		if p, err = m.c.Plan(t.Context()); err != nil || !strings.Contains(p.ImagesProblem, "broken") || len(p.Runs) != 1 || p.Runs[0].Images != 1 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// An image that was removed and pulled again is as young as a new one, also when
// nobody saw the pull.
func TestRemovedImageThatIsBackIsYoung(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(t, 10*gi)
		m.image("a", gi, 5*time.Hour)
		again := m.images[0]
		if _, err := m.reclaim(eviction.ImageFsAvailable, gi); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("a")
		m.images = append(m.images, again)
		if _, err := m.reclaim(eviction.ImageFsAvailable, gi); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("a")
		time.Sleep(3 * time.Minute)
		if _, err := m.reclaim(eviction.ImageFsAvailable, gi); err != nil {
			t.Fatal(err)
		}
		m.wantRemoved("a", "a")
	})
}
