// Command reaction measures how fast cri-evictd stops a hog: from the first
// sample below the threshold to the end of the hog's growth, on a real
// containerd. It prints every run, medians and spread.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	runs := flag.Int("runs", 5, "runs per rate")
	binary := flag.String("binary", "bin/cri-evictd", "the cri-evictd to measure")
	version := flag.String("containerd", string(lab.Current), "containerd to run: 1.6 or 2.4")
	flag.Parse()
	if err := measure(ctx, *binary, lab.Version(*version), *runs); err != nil {
		fmt.Fprintln(os.Stderr, "reaction:", err)
		os.Exit(1)
	}
}

// rates of allocation in MiB/s.
var rates = [...]int{400, 1000}

func measure(ctx context.Context, binary string, version lab.Version, runs int) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root: runs real containers")
	}
	r, err := newRig(ctx, binary, version)
	if err != nil {
		return err
	}
	defer r.close()
	for _, rate := range rates {
		fmt.Printf("\nhog at %d MiB/s, hard memory.available, containerd %s, %d runs\n", rate, version, runs)
		fmt.Printf("%4s  %14s  %14s  %12s  %12s\n", "run", "growth stopped", "process gone", "overshoot", "decided+sent")
		var stopped, gone, sent []time.Duration
		var over []int64
		for i := range runs {
			m, err := r.round(ctx, rate)
			if err != nil {
				return fmt.Errorf("run %d: %w", i+1, err)
			}
			fmt.Printf("%4d  %14v  %14v  %8d MiB  %12v\n", i+1, round(m.stopped), round(m.gone), m.overshoot, round(m.sent))
			stopped, gone, sent = append(stopped, m.stopped), append(gone, m.gone), append(sent, m.sent)
			over = append(over, m.overshoot)
		}
		fmt.Printf("median growth stopped %v (%v to %v), process gone %v (%v to %v), overshoot %d MiB (%d to %d), from sample to SIGKILL %v (%v to %v)\n",
			round(median(stopped)), round(slices.Min(stopped)), round(slices.Max(stopped)),
			round(median(gone)), round(slices.Min(gone)), round(slices.Max(gone)),
			median(over), slices.Min(over), slices.Max(over),
			round(median(sent)), round(slices.Min(sent)), round(slices.Max(sent)))
	}
	fmt.Println("\nkubelet 1.37.2 for comparison, measured before on the same kind of machine, not in this run: 2.6 to 8.1 s from")
	fmt.Println("crossing to gone and 768 to 2687 MiB past the threshold, hog at 400 and 1000 MiB/s, default settings.")
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func median[T int64 | time.Duration](xs []T) T {
	s := slices.Clone(xs)
	slices.Sort(s)
	return s[len(s)/2]
}
