package systemd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const limit = 5 * time.Second

// watched runs a watchdog on a manager that counts how often it was fed.
func watched(t *testing.T, look func(w *Watchdog, fed *atomic.Int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var fed atomic.Int64
		m := NewManager(quiet())
		m.send = func(state string) error {
			if state == "WATCHDOG=1" {
				fed.Add(1)
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWatchdog(m, limit, quiet())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		look(w, &fed)
		cancel()
		<-done
	})
}

// starves says whether the manager would have ended the process.
func starves(fed *atomic.Int64) bool {
	before := fed.Load()
	time.Sleep(limit)
	synctest.Wait()
	return fed.Load() == before
}

func TestWatchdogIsFedInTime(t *testing.T) {
	watched(t, func(w *Watchdog, fed *atomic.Int64) {
		time.Sleep(10 * limit)
		synctest.Wait()
		if n := fed.Load(); n < 10*looksPerLimit {
			t.Errorf("fed %d times in ten limits", n)
		}
	})
}

func TestWatchdogStarvesWhenAPartStandsStill(t *testing.T) {
	watched(t, func(w *Watchdog, fed *atomic.Int64) {
		var rounds atomic.Uint64
		stop := make(chan struct{})
		work := func(stop chan struct{}) {
			tick := time.NewTicker(time.Second) // the slowest sampling
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					rounds.Add(1)
				case <-stop:
					return
				}
			}
		}
		go work(stop)
		remove := w.Watch("sampler", Progress(rounds.Load))
		for range 5 {
			if starves(fed) {
				t.Fatal("starves although it works")
			}
		}
		close(stop)
		time.Sleep(limit / 2) // the last step may just have been made
		if !starves(fed) {
			t.Error("fed although the sampler stands still")
		}
		again := make(chan struct{})
		go work(again)
		if starves(fed) {
			t.Error("starves although it goes on")
		}
		close(again)
		remove()
		if starves(fed) {
			t.Error("starves by a part that is no more")
		}
	})
}

// A part that works and is slow to say so is no part that stands still.
func TestSlowAnswersFeed(t *testing.T) {
	watched(t, func(w *Watchdog, fed *atomic.Int64) {
		w.Watch("proxy", func(ctx context.Context) error {
			select {
			case <-time.After(limit * 6 / 10):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for range 10 {
			if starves(fed) {
				t.Fatal("starves")
			}
		}
	})
}

func TestWatchdogStarvesByAPartThatFailsOrHangs(t *testing.T) {
	for name, beat := range map[string]Beat{
		"fails": func(context.Context) error { return errors.New("no") },
		"waits": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(w *Watchdog, fed *atomic.Int64) {
				if starves(fed) {
					t.Error("starves without it")
				}
				w.Watch("proxy", beat)
				time.Sleep(limit / 2)
				if !starves(fed) {
					t.Error("fed all the same")
				}
			})
		})
	}
	t.Run("hangs", func(t *testing.T) {
		watched(t, func(w *Watchdog, fed *atomic.Int64) {
			free := make(chan struct{})
			w.Watch("proxy", func(context.Context) error { <-free; return nil })
			time.Sleep(limit / 2)
			if !starves(fed) {
				t.Error("fed all the same")
			}
			close(free)
		})
	})
}

// The process that is to be replaced feeds it, and after the hand-over the new one.
func TestWatchdogIsTheServicesOwn(t *testing.T) {
	watched(t, func(w *Watchdog, fed *atomic.Int64) {
		w.manager.Silence()
		asked := false
		w.Watch("proxy", func(context.Context) error { asked = true; return nil })
		time.Sleep(limit / 2)
		if !starves(fed) || asked {
			t.Error("fed for another process")
		}
		w.manager.Speak()
		if starves(fed) {
			t.Error("not fed after taking over")
		}
	})
}

func TestWithoutWatchdogNothingRuns(t *testing.T) {
	w := newWatchdog(NewManager(quiet()), 0, quiet())
	w.Watch("proxy", func(context.Context) error { t.Error("asked"); return nil })
	w.Run(t.Context()) // returns
}
