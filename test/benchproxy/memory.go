package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

const (
	baseAim    = 16 << 20
	flightAim  = 1.5
	settleTime = 10 * time.Second
	// settledSlack is what may stay above the base and still count as back.
	settledSlack = 2 << 20
)

// memoryLoad is one load of the memory test.
type memoryLoad struct {
	name    string
	id      string // of the list
	clients int
	bytes   int64 // of one answer
}

// measureMemory loads each process in the middle and prints its RssAnon: with all
// its connections, each used once, at rest; the peak; and settleTime after the
// load. Bytes in flight are all answers that can be under way at the same time.
func measureMemory(ctx context.Context, w io.Writer, variants []*variant, d time.Duration) error {
	fmt.Fprintf(w, "\nMemory of the process in the middle (RssAnon, MiB), %v of load each; raw client\n", d)
	fmt.Fprintf(w, "%-28s %-7s %8s %10s %8s %15s %12s  %s\n", "load", "way", "before", "in flight", "peak", "(peak-before)/x", "after 10 s", "aim (proxy): base 16, 1.5 x, back")
	loads := []memoryLoad{
		{"ListContainers 300 x50", "300", 50, int64(len(mustEncode(containerList(300))))},
		{"ListContainers 5000 x8", "5000", 8, int64(len(mustEncode(containerList(5000))))},
		{"60 MiB answers x2", bigID, 2, bigSize},
	}
	type running struct {
		v            *variant
		before, peak int64
	}
	for _, load := range loads {
		var ran []running
		ends := make([]time.Time, 0, len(variants))
		for _, v := range variants {
			if v.middle == nil {
				continue
			}
			if err := v.connect(ctx, load.clients); err != nil {
				return err
			}
			before, err := v.middle.rssAnon()
			if err != nil {
				return err
			}
			peak := v.middle.peak()
			_, err = v.run(ctx, scenario{name: load.name, clients: load.clients, call: rawList(load.id)}, d)
			ran = append(ran, running{v, before, peak()})
			if err != nil {
				return err
			}
			v.disconnect(1)
			ends = append(ends, time.Now())
		}
		for i, r := range ran {
			select {
			case <-time.After(time.Until(ends[i].Add(settleTime))):
			case <-ctx.Done():
				return ctx.Err()
			}
			after, err := r.v.middle.rssAnon()
			if err != nil {
				return err
			}
			flight := load.bytes * int64(load.clients)
			ratio := float64(r.peak-r.before) / float64(flight)
			verdict := ""
			if r.v.name == "proxy" {
				verdict = "met"
				if r.before > baseAim || ratio > flightAim || after > max(r.before, baseAim)+settledSlack {
					verdict = "MISSED"
				}
			}
			fmt.Fprintf(w, "%-28s %-7s %8s %10s %8s %15.2f %12s  %s\n",
				load.name, r.v.name, mib(r.before), mib(flight), mib(r.peak), ratio, mib(after), verdict)
		}
	}
	return nil
}

// measureAllocations counts what each process in the middle allocates per call.
func measureAllocations(ctx context.Context, w io.Writer, variants []*variant, calls int) error {
	fmt.Fprintf(w, "\nAllocations of the process in the middle per call, %d calls each\n", calls)
	fmt.Fprintf(w, "%-24s %-14s %12s %12s\n", "call", "way", "allocations", "bytes")
	for _, sc := range []struct {
		name string
		call call
	}{{"Version", version}, {"ContainerStatus", oneStatus}, {"ListContainers 300", rawList("300")}, {"ListContainers 5000", rawList("5000")}} {
		for _, v := range variants {
			if err := v.connect(ctx, 1); err != nil {
				return err
			}
			for range calls / 10 {
				if err := sc.call(ctx, v.conns[0]); err != nil {
					return err
				}
			}
			n0, b0, err := v.middle.allocations()
			if err != nil {
				return err
			}
			for range calls {
				if err := sc.call(ctx, v.conns[0]); err != nil {
					return err
				}
			}
			n1, b1, err := v.middle.allocations()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%-24s %-14s %12.1f %12.0f\n", sc.name, v.name, float64(n1-n0)/float64(calls), float64(b1-b0)/float64(calls))
		}
	}
	return nil
}
