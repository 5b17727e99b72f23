package kubeletdiff

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/holds"
)

// A full run is this many scenarios, and fills every cell this often.
const (
	fullRun   = 20_000
	cellLeast = 200
)

// TestEviction compares random scenarios: KUBELETDIFF_N of them, or as many as
// there is time for in KUBELETDIFF_FOR (60s); KUBELETDIFF_SEED is that of the
// first, and KUBELETDIFF_ONLY=1 plays that one alone and prints what happened.
func TestEviction(t *testing.T) {
	n, limited := number(t, "KUBELETDIFF_N", 1<<40), os.Getenv("KUBELETDIFF_N") == ""
	first := uint64(number(t, "KUBELETDIFF_SEED", int(time.Now().UnixNano()%1_000_000)*1_000_000))
	budget := time.Minute
	if s := os.Getenv("KUBELETDIFF_FOR"); s != "" {
		var err error
		if budget, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("KUBELETDIFF_ONLY") != "" {
		sc := scenario(first)
		diff, trace := playOne(t, sc, policy(), openHolds(t), func(cell) {})
		t.Fatalf("%v\n%s%s", diff, sc, strings.Join(trace, "\n"))
	}
	c, began := newCounts(), time.Now()
	var done, failed atomic.Int64
	t.Run("scenarios", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				file := openHolds(t)
				for failed.Load() == 0 && (!limited || time.Since(began) < budget) {
					i := done.Add(1) - 1
					if i >= int64(n) {
						done.Add(-1)
						return
					}
					if !agree(t, first+uint64(i), file, c.add) {
						failed.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d scenarios from seed %d in %s", done.Load(), first, time.Since(began).Round(time.Second))
	report(t, c, done.Load() >= fullRun)
}

// scenario is the one of a seed: the seeds go through all subjects.
func scenario(seed uint64) *Scenario {
	all := subjects()
	about := all[seed%uint64(len(all))]
	return Generate(seed, about.signal, about.layout)
}

// agree plays the scenario of a seed; what differs is made small and printed.
func agree(t *testing.T, seed uint64, file *holds.Writer, count func(cell)) bool {
	t.Helper()
	sc := scenario(seed)
	diff, trace := playOne(t, sc, policy(), file, count)
	if diff == nil {
		return true
	}
	small := minimise(sc, func(s *Scenario) bool {
		d, _ := playOne(t, s, policy(), file, func(cell) {})
		return d != nil
	}, 300)
	if d, tr := playOne(t, small, policy(), file, func(cell) {}); d != nil {
		sc, diff, trace = small, d, tr
	}
	t.Errorf("%s\n%s%s", diff, sc, strings.Join(trace, "\n"))
	return false
}

// report prints the cells, and fails for those that are too empty.
func report(t *testing.T, c *counts, full bool) {
	t.Helper()
	for _, about := range subjects() {
		var text strings.Builder
		for _, o := range about.outcomes() {
			n := c.n[cell{about.signal, about.layout, o}]
			fmt.Fprintf(&text, "  %s %d", o, n)
			if full && n < cellLeast {
				t.Errorf("%s, %s: %s was seen %d times, want %d", about.signal, about.layout, o, n, cellLeast)
			}
		}
		t.Logf("%-28s %-8s%s", about.signal, about.layout, text.String())
	}
	for _, o := range []Outcome{AllThresholdsClear, SignalsOnTheirOwn} {
		t.Logf("departure: %s: %d", o, c.n[cell{outcome: o}])
		if full && c.n[cell{outcome: o}] == 0 {
			t.Errorf("no scenario showed: %s", o)
		}
	}
}

func playOne(t *testing.T, sc *Scenario, p eviction.Settings, file *holds.Writer, count func(cell)) (diff *difference, trace []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if diff, trace, err = play(sc, p, file, count); err != nil {
			t.Fatalf("%v\n%s", err, sc)
		}
	})
	return diff, trace
}

func openHolds(t *testing.T) *holds.Writer {
	t.Helper()
	file, err := holds.OpenWriter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return file
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// The same seed makes the same scenario.
func TestGenerate(t *testing.T) {
	var seen []string
	for seed := range uint64(108) {
		a, b := scenario(seed).String(), scenario(seed).String()
		if a != b {
			t.Fatalf("seed %d:\n%s\n%s", seed, a, b)
		}
		seen = append(seen, a)
	}
	slices.Sort(seen)
	if n := len(slices.Compact(seen)); n != 108 {
		t.Errorf("%d different scenarios", n)
	}
}
