package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// until waits for a condition in real time.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// The real Run, with its real-time threads, in real time.
func TestRun(t *testing.T) {
	r := newRig(t)
	c := r.add(testPod{uid: "hog", usage: 4 * gi})
	e := r.build()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	until(t, "the inventory is read", func() bool { return e.State().Inventory.Listed && e.State().Pods == 1 })
	if err := e.Run(ctx); err == nil {
		t.Error("a second Run was allowed")
	}
	r.node.setAvailable(200 * mi)
	until(t, "the hog is evicted", func() bool { return r.state("hog") == "killed" })
	if killsOf(c) != 1 {
		t.Errorf("%d kills", killsOf(c))
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end")
	}
	if got := see(c, func(c *fakeCgroup) int { return c.opens - c.closes }); got != 0 {
		t.Errorf("%d sets of descriptors stay open", got)
	}
	if got := r.state("hog"); got != "killed" {
		t.Errorf("hold %s after the end: promise 3", got)
	}
}

// An end in the middle of a kill leaves the intent for the next start.
func TestRunEndsDuringAKill(t *testing.T) {
	r := newRig(t)
	r.add(testPod{uid: "hog", usage: 4 * gi}).immortal = true
	r.runtime.failStops(errors.New("connection refused"))
	r.node.setAvailable(200 * mi)
	e := r.build()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	until(t, "the kill is under way", func() bool { return r.state("hog") == "intent" })
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end while a victim lives on")
	}
	if got := r.state("hog"); got != "intent" {
		t.Errorf("hold %s", got)
	}
}

func TestNewNeedsItsParts(t *testing.T) {
	if _, err := New(Settings{}, Parts{}); err == nil {
		t.Error("an engine without parts")
	}
}

// brokenLedger fails at everything.
type brokenLedger struct{ Ledger }

var errLedger = errors.New("input/output error")

func (brokenLedger) Load() ([]holds.Record, string, error)     { return nil, "", errLedger }
func (brokenLedger) SetBootID(string) error                    { return errLedger }
func (brokenLedger) AppendDecision(uint64, []byte) error       { return errLedger }
func (brokenLedger) SetRepeat(string, uint32, time.Time) error { return errLedger }
func (brokenLedger) Repeats() (map[string]holds.Repeat, error) { return nil, errLedger }
func (brokenLedger) DeleteRepeat(string) error                 { return errLedger }
func (brokenLedger) Decisions(int) ([]json.RawMessage, error)  { return nil, errLedger }

// Design §9: a ledger that cannot be written never stops a kill.
func TestBrokenLedgerDoesNotStopTheKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.ledger = brokenLedger{}
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		r.wantOutcomes("evicted hog")
		if got := r.eng.State().LedgerError; got != "decision 1: input/output error" {
			t.Errorf("state says %q", got)
		}
	})
}

// Somebody cleans the run directory: the file is put back with its holds.
func TestHoldsFileIsPutBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "hog", usage: 2 * gi})
		defer r.evicted("hog")()
		if err := os.Remove(filepath.Join(r.dir, holds.FileName)); err != nil {
			t.Fatal(err)
		}
		reader := openReader(t, r.dir)
		if _, held := reader.Held("hog"); held {
			t.Fatal("held without a file")
		}
		pass(2 * time.Second)
		if _, held := reader.Held("hog"); !held {
			t.Errorf("not put back: %v", reader.Problem())
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	var h history
	for i := range 2500 {
		h.put(Report{ID: uint64(i + 1)})
	}
	h.put(Report{ID: 2500, Outcome: OutcomeFailed}) // replaces
	got := h.newest(5000)
	if len(got) != historyLength || got[0].ID != 2500 || got[0].Outcome != OutcomeFailed || got[historyLength-1].ID != 1501 {
		t.Errorf("%d reports, from %d to %d", len(got), got[0].ID, got[len(got)-1].ID)
	}
	if n := len(h.newest(3)); n != 3 {
		t.Errorf("%d of 3", n)
	}
}

// Every stop is tried although one fails, and all errors are told.
func TestStopPodTriesAll(t *testing.T) {
	rt := newRuntime()
	rt.failStops(errors.New("no"))
	err := stopPod(t.Context(), rt, []string{"a", "b"}, []string{"s"}, 0)
	if len(rt.stopped()) != 3 || err == nil {
		t.Fatalf("stopped %q, %v", rt.stopped(), err)
	}
	want := "stopping container a: no\nstopping container b: no\nstopping sandbox s: no"
	if err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if got := rt.stopped()[2]; got != "sandbox s" {
		t.Errorf("last stop %q, want the sandbox after its containers", got)
	}
}
