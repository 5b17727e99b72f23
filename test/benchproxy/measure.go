package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// scenario is one kind of load.
type scenario struct {
	name    string
	client  string // "decoded" or "raw"
	clients int    // each on a connection of its own
	call    call
	aim     float64 // ratio to the relay, 0 for none
}

func scenarios() []scenario {
	s := []scenario{{name: "Version", client: "decoded", clients: 1, call: version, aim: 1.4}}
	for _, n := range listSizes {
		one := scenario{name: fmt.Sprintf("ListContainers %d", n), client: "decoded", clients: 1, call: list(n)}
		switch n {
		case 300:
			one.aim = 1.08
		case 5000:
			one.aim = 1.05
		}
		s = append(s, one)
	}
	for _, n := range listSizes[1:] {
		s = append(s, scenario{name: fmt.Sprintf("ListContainers %d", n), client: "raw", clients: 1, call: rawList(fmt.Sprint(n))})
	}
	return append(s,
		scenario{name: "ContainerStatus", client: "decoded", clients: 1, call: oneStatus},
		scenario{name: "Version x50", client: "decoded", clients: 50, call: version},
		scenario{name: "ListContainers 300 x50", client: "raw", clients: 50, call: rawList("300")},
	)
}

// variant is one way to the backend.
type variant struct {
	name   string
	socket string
	middle *process // nil for the direct one
	conns  []*grpc.ClientConn
}

// connect makes n connections and uses each once.
func (v *variant) connect(ctx context.Context, n int) error {
	for len(v.conns) < n {
		cc, err := dial(v.socket)
		if err != nil {
			return err
		}
		v.conns = append(v.conns, cc)
		if err := version(ctx, cc); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

// disconnect closes all connections but the first keep.
func (v *variant) disconnect(keep int) {
	for len(v.conns) > keep {
		_ = v.conns[len(v.conns)-1].Close()
		v.conns = v.conns[:len(v.conns)-1]
	}
}

// slice is what one variant did in one round.
type slice struct {
	latencies []time.Duration // sorted
	cpu       time.Duration   // of the process in the middle, per call
}

func (s slice) p50() time.Duration { return s.latencies[len(s.latencies)/2] }

// minCalls is the least number of calls in a slice.
const minCalls = 3

// run loads one variant for about d.
func (v *variant) run(ctx context.Context, sc scenario, d time.Duration) (slice, error) {
	var s slice
	var before, after time.Duration
	var err error
	if v.middle != nil {
		if before, err = v.middle.cpu(); err != nil {
			return s, err
		}
	}
	begun := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	for _, cc := range v.conns[:sc.clients] {
		wg.Go(func() {
			var own []time.Duration
			for len(own) < minCalls || time.Since(begun) < d {
				t := time.Now()
				if err := sc.call(ctx, cc); err != nil {
					mu.Lock()
					failed = fmt.Errorf("%s, %s: %w", v.name, sc.name, err)
					mu.Unlock()
					return
				}
				own = append(own, time.Since(t))
			}
			mu.Lock()
			s.latencies = append(s.latencies, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if failed != nil {
		return s, failed
	}
	if v.middle != nil {
		if after, err = v.middle.cpu(); err != nil {
			return s, err
		}
		s.cpu = (after - before) / time.Duration(len(s.latencies))
	}
	slices.Sort(s.latencies)
	return s, nil
}

// compare runs all variants in turn, in short slices, so that noise of the
// machine hits them alike; it returns the slices by variant and round.
func compare(ctx context.Context, variants []*variant, sc scenario, slot, total time.Duration) ([][]slice, error) {
	results := make([][]slice, len(variants))
	for _, v := range variants {
		if err := v.connect(ctx, sc.clients); err != nil {
			return nil, err
		}
		if _, err := v.run(ctx, sc, slot/4); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	for round := 0; round < 3 || time.Since(begun) < total; round++ {
		for i := range variants {
			at := (i + round) % len(variants) // who comes after whom changes
			s, err := variants[at].run(ctx, sc, slot)
			if err != nil {
				return nil, err
			}
			results[at] = append(results[at], s)
		}
	}
	for _, v := range variants {
		v.disconnect(1)
	}
	return results, nil
}
