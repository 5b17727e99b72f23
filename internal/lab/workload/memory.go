package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// alloc touches anonymous memory at a rate and then stays, so that whoever
// watches sees exactly how far it got.
func alloc(args []string, stdout, stderr io.Writer) int {
	var total, rate size
	flags := flag.NewFlagSet("alloc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Var(&total, "total", "memory to touch")
	flags.Var(&rate, "rate", "memory to touch per second, 0: at once")
	deaf := flags.Bool("ignore-term", false, "ignore SIGTERM")
	hold := flags.Bool("hold", true, "stay when everything is touched")
	if err := parse(flags, args); err != nil {
		return 2
	}
	end := endSignals(*deaf)

	if total > 0 {
		memory, err := syscall.Mmap(-1, 0, int(total), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
		if err != nil {
			fmt.Fprintf(stderr, "workload: alloc: mmap of %d bytes: %v\n", total, err)
			return 1
		}
		// A huge page is 2 MiB at a touch: 5 ms of work at 400 MiB/s.
		if err := syscall.Madvise(memory, madvNoHugepage); err != nil && !errors.Is(err, syscall.EINVAL) {
			fmt.Fprintf(stderr, "workload: alloc: madvise: %v\n", err)
		}
		start := time.Now()
		fmt.Fprintf(stdout, "alloc: start, %d bytes at %d per second\n", total, rate)
		p := pacer{total: int64(total), rate: int64(rate), start: start}
		err = p.run(func(done, due int64) error {
			touch(memory, done, due)
			select {
			case <-end:
				return errEnded
			default:
				return nil
			}
		})
		if err != nil {
			return 0
		}
		took := time.Since(start)
		fmt.Fprintf(stdout, "alloc: done, %d bytes in %d ms, %.1f MiB/s\n",
			total, took.Milliseconds(), float64(total)/(1<<20)/took.Seconds())
	}
	if *hold {
		<-end
	}
	return 0
}

// Values of madvise(2), the same on amd64 and arm64.
const (
	madvNoHugepage    = 15
	madvPopulateWrite = 23 // Linux 5.14
)

// touch makes the pages that begin in [from, to) resident. One call for all
// costs the kernel a third of a page fault each; with faults alone a busy
// machine does not reach 400 MiB/s.
func touch(memory []byte, from, to int64) {
	page := int64(os.Getpagesize())
	from = (from + page - 1) / page * page
	if from >= to {
		return
	}
	if syscall.Madvise(memory[from:to], madvPopulateWrite) == nil {
		return
	}
	for at := from; at < to; at += page {
		memory[at] = 1
	}
}

// errEnded means that SIGTERM came before the work was done.
var errEnded = errors.New("ended by signal")

// endSignals delivers SIGTERM and SIGINT; deaf ones are swallowed.
func endSignals(deaf bool) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	if deaf {
		// Not signal.Ignore: a process that nothing can wake is a deadlock to Go,
		// and ended as one.
		return make(chan os.Signal) // never
	}
	return c
}

// parse wants flags only.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(flags.Output(), "workload: %s: unexpected argument %q\n", flags.Name(), flags.Arg(0))
		return errors.New("unexpected argument")
	}
	return nil
}
