package holds

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeSource is a writer's memory.
type fakeSource struct {
	mu      sync.Mutex
	records []Record
	changed chan struct{}
}

func newSource() *fakeSource { return &fakeSource{changed: make(chan struct{}, 1)} }

func (s *fakeSource) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records
}

func (s *fakeSource) Changed() <-chan struct{} { return s.changed }

func (s *fakeSource) change(r ...Record) {
	s.mu.Lock()
	s.records = r
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// fakeSaver is a ledger that can fail, and hang.
type fakeSaver struct {
	hang chan struct{} // nil: does not

	mu    sync.Mutex
	err   error
	saved [][]Record
	tries []time.Time
}

func (s *fakeSaver) Save(r []Record) error {
	s.mu.Lock()
	s.tries = append(s.tries, time.Now())
	s.mu.Unlock()
	if s.hang != nil {
		<-s.hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.saved = append(s.saved, r)
	}
	return s.err
}

func (s *fakeSaver) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *fakeSaver) attempts() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tries)
}

func (s *fakeSaver) saves() [][]Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.saved)
}

// last is the set saved last.
func last(s *fakeSaver) []Record {
	all := s.saves()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// runCopier runs a copier in a synctest bubble until stop is called.
func runCopier(t *testing.T, from Source, to Saver) (c *Copier, stop func()) {
	t.Helper()
	c = NewCopier(from, to, quietLog())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	synctest.Wait()
	return c, func() { cancel(); <-done }
}

func TestCopierSavesWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := newSource(), &fakeSaver{}
		_, stop := runCopier(t, from, to)
		if len(to.saves()) != 1 {
			t.Errorf("%d saves at the start, want 1", len(to.saves()))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(to.saves()) != 1 {
			t.Errorf("%d saves without a change", len(to.saves())-1)
		}
		from.change(sample(1)) // after a calm: at once
		synctest.Wait()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := len(to.saves()); n != 2 || !reflect.DeepEqual(to.saves()[1], []Record{sample(1)}) {
			t.Errorf("saves %v", to.saves())
		}
		from.change(sample(2))
		changedAt := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(to.saves()); n != 3 || to.attempts()[2].Sub(changedAt) > time.Second {
			t.Errorf("%d saves, at %v", n, to.attempts())
		}
		begin := len(to.attempts())
		for id := range uint64(1000) { // 5 s of a change every 5 ms
			from.change(sample(id + 10))
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		tries := to.attempts()
		for i, at := range tries[1:] {
			if gap := at.Sub(tries[i]); gap < copyInterval {
				t.Errorf("saves %d and %d are %v apart", i, i+1, gap)
			}
		}
		if n := len(to.attempts()) - begin; n < 20 || n > 28 {
			t.Errorf("%d saves in 5 s of changes", n)
		}
		if got := last(to); got[0].ID != 1009 {
			t.Errorf("the last save has %v", ids(got))
		}
		stop()
	})
}

func TestCopierRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left")
		from, to := newSource(), &fakeSaver{}
		c, stop := runCopier(t, from, to)
		if c.Problem() != nil {
			t.Errorf("problem at the start: %v", c.Problem())
		}
		to.fail(full)
		from.change(sample(1))
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(c.Problem(), full) {
			t.Errorf("problem %v, want %v", c.Problem(), full)
		}
		if n := len(to.attempts()); n < 3 || n > 6 {
			t.Errorf("%d attempts in the first second", n)
		}
		for range 100 { // changes must not make it hammer the disk
			from.change(sample(2))
			time.Sleep(600 * time.Millisecond)
		}
		if n := len(to.attempts()); n < 12 || n > 22 {
			t.Errorf("%d attempts in a minute", n)
		}
		to.fail(nil)
		time.Sleep(copyRetryMax)
		synctest.Wait()
		if c.Problem() != nil {
			t.Errorf("problem after it went well: %v", c.Problem())
		}
		if got := last(to); !reflect.DeepEqual(got, []Record{sample(2)}) {
			t.Errorf("saved %v", ids(got))
		}
		stop()
	})
}

// What changed just before the end is saved, what is saved is not again.
func TestCopierEnds(t *testing.T) {
	for name, c := range map[string]struct {
		change bool
		err    error
		want   int
	}{"nothing new": {false, nil, 1}, "a change": {true, nil, 2}, "failing": {true, errors.New("x"), 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := newSource(), &fakeSaver{}
				_, stop := runCopier(t, from, to)
				to.fail(c.err)
				if c.change {
					from.change(sample(1))
				}
				stop()
				if len(to.attempts()) != c.want {
					t.Errorf("%d attempts, want %d", len(to.attempts()), c.want)
				}
			})
		})
	}
}

// A disk that hangs: the writer goes on, and Problem says so.
func TestCopierNeverBlocksTheWriter(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := openWriter(t, dir)
		to := &fakeSaver{hang: make(chan struct{})}
		c, stop := runCopier(t, w, to)
		if len(to.attempts()) != 1 {
			t.Fatalf("%d attempts, want one that hangs", len(to.attempts()))
		}
		for id := uint64(1); id <= 20; id++ {
			intent(t, w, id)
			must(t, w.Update(sample(id)))
		}
		if c.Problem() != nil {
			t.Errorf("problem at once: %v", c.Problem())
		}
		time.Sleep(copyStuck)
		if c.Problem() == nil {
			t.Error("no problem though saving hangs")
		}
		close(to.hang)
		synctest.Wait()
		time.Sleep(copyInterval)
		synctest.Wait()
		if c.Problem() != nil {
			t.Errorf("problem afterwards: %v", c.Problem())
		}
		if got := last(to); len(got) != 20 {
			t.Errorf("saved %v", ids(got))
		}
		stop()
		must(t, w.Close())
	})
}

// The whole way: an intent is in the ledger's file within a second.
func TestCopierWithARealLedger(t *testing.T) {
	dir := t.TempDir()
	w, l := openWriter(t, dir), openLedger(t, filepath.Join(dir, "l"))
	c := NewCopier(w, l, quietLog())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	intent(t, w, 1)
	put(t, w, 2)
	waitFor(t, "both holds in the ledger", func() bool { return len(loaded(t, l)) == 2 })
	cancel()
	<-done
	if got := loaded(t, l); !reflect.DeepEqual(got, w.Records()) {
		t.Errorf("ledger has %+v\nwriter has %+v", got, w.Records())
	}
}
