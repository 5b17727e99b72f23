package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestPausable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, running := 0, false
		p := newPausable(func(ctx context.Context) error {
			runs, running = runs+1, true
			<-ctx.Done()
			running = false
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.run(ctx) }()
		state := func(what string, wantRuns int, wantRunning bool) {
			t.Helper()
			synctest.Wait()
			if runs != wantRuns || running != wantRunning {
				t.Errorf("%s: run %d times, running %t", what, runs, running)
			}
		}
		state("at first", 1, true)
		p.pause()
		p.pause()
		state("paused", 1, false)
		p.resume()
		p.resume()
		state("resumed", 2, true)
		p.pause()
		state("paused again", 2, false)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestPausableEndsByItself(t *testing.T) {
	want := errors.New("no")
	p := newPausable(func(context.Context) error { return want })
	if err := p.run(t.Context()); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
	p.pause() // what has ended is paused at once
}
