package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// quartiles of xs; xs is sorted by it.
func quartiles[T cmp.Ordered](xs []T) (q1, median, q3 T) {
	slices.Sort(xs)
	at := func(num int) T { return xs[(len(xs)-1)*num/4] }
	return at(1), at(2), at(3)
}

func short(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func mib(b int64) string { return fmt.Sprintf("%.1f", float64(b)/(1<<20)) }

// reportHeader starts the table of report.
func reportHeader(w io.Writer) {
	fmt.Fprintf(w, "%-24s %-8s %-7s %7s  %9s  %21s  %9s  %9s  %22s  %s\n",
		"call", "client", "way", "calls", "p50", "(quartiles)", "p99", "CPU/call", "ratio to relay (quart.)", "aim")
}

// report prints one line a variant. p50 is the median of the slices' medians
// with their quartiles; the ratio is taken within each round and its median
// and quartiles are printed; p99 is that of all calls.
func report(w io.Writer, sc scenario, variants []*variant, results [][]slice) {
	relay := slices.IndexFunc(variants, func(v *variant) bool { return v.name == "relay" })
	for i, v := range variants {
		var p50s, cpus, all []time.Duration
		var ratios []float64
		for round, s := range results[i] {
			p50s = append(p50s, s.p50())
			cpus = append(cpus, s.cpu)
			all = append(all, s.latencies...)
			ratios = append(ratios, float64(s.p50())/float64(results[relay][round].p50()))
		}
		slices.Sort(all)
		q1, median, q3 := quartiles(p50s)
		_, cpu, _ := quartiles(cpus)
		r1, ratio, r3 := quartiles(ratios)
		cpuText, verdict := "-", ""
		if v.middle != nil {
			cpuText = short(cpu)
		}
		if v.name == "proxy" && sc.aim > 0 {
			verdict = fmt.Sprintf("%.2f met", sc.aim)
			if ratio > sc.aim {
				verdict = fmt.Sprintf("%.2f MISSED", sc.aim)
			}
		}
		fmt.Fprintf(w, "%-24s %-8s %-7s %7d  %9s  %21s  %9s  %9s  %6.2f (%5.2f to %5.2f)  %s\n",
			sc.name, sc.client, v.name, len(all), short(median), short(q1)+" to "+short(q3),
			short(all[len(all)*99/100]), cpuText, ratio, r1, r3, verdict)
	}
	fmt.Fprintln(w)
}
