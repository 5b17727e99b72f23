// Command soak wears out proxy and evictor: on a real containerd it creates and
// deletes pods through the proxy as fast as that goes, while containerd, proxy
// and evictor are killed or restarted at random. At the end the inventory must
// be what the runtime lists, the pods that were there from the beginning must
// still run in the same containers, and nothing may have leaked. Needs root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	binary := flags.String("binary", "bin/cri-evictd", "the cri-evictd to wear out")
	length := flags.Duration("for", 10*time.Minute, "how long pods are created and deleted, at least 1m")
	workers := flags.Int("workers", 4, "how many pods are created and deleted at a time")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choices")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *length < time.Minute || *workers < 1 {
		fmt.Fprintln(os.Stderr, "soak: -for is at least 1m, -workers at least 1")
		return 2
	}
	fmt.Printf("soak: %v with %d workers, seed %d\n", *length, *workers, *seed)
	s := &soak{binary: *binary, length: *length, workers: *workers, seed: *seed, out: os.Stdout, counts: newTally()}
	err := s.play(ctx)
	left := s.cleanup()
	for _, l := range left {
		fmt.Printf("left behind: %s\n", l)
	}
	if err != nil {
		fmt.Printf("soak failed: %v\n", err)
	}
	if err != nil || len(left) > 0 {
		return 1
	}
	fmt.Println("soak passed: the inventory is what the runtime lists, nothing was lost and nothing is left")
	return 0
}
