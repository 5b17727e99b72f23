package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// write fills a folder at a rate and then stays.
func write(args []string, stdout, stderr io.Writer) int {
	var total, rate size
	flags := flag.NewFlagSet("write", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "/tmp", "folder to write into")
	flags.Var(&total, "total", "bytes to write")
	flags.Var(&rate, "rate", "bytes to write per second, 0: at once")
	hold := flags.Bool("hold", true, "stay when everything is written")
	deaf := flags.Bool("ignore-term", false, "ignore SIGTERM")
	if err := parse(flags, args); err != nil {
		return 2
	}
	end := endSignals(*deaf)
	f, err := os.OpenFile(filepath.Join(*dir, "workload.data"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		fmt.Fprintf(stderr, "workload: write: %v\n", err)
		return 1
	}
	defer func() { _ = f.Close() }() // fsync is not what this is about

	chunk := newChunk()
	p := pacer{total: int64(total), rate: int64(rate), start: time.Now()}
	err = p.run(func(done, due int64) error { return writeChunks(f, chunk, due-done, end) })
	switch {
	case errors.Is(err, errEnded):
		return 0
	case err != nil:
		// A full disk is what this may be for: stay and keep it full.
		fmt.Fprintf(stderr, "workload: write: %v\n", err)
	default:
		fmt.Fprintf(stdout, "write: done, %d bytes\n", total)
	}
	if *hold {
		<-end
	}
	return 0
}

// files makes empty files in a folder at a rate and then stays.
func files(args []string, stdout, stderr io.Writer) int {
	var count, rate size
	flags := flag.NewFlagSet("files", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "/tmp", "folder to make them in")
	flags.Var(&count, "count", "files to make")
	flags.Var(&rate, "rate", "files to make per second, 0: at once")
	hold := flags.Bool("hold", true, "stay when all are made")
	if err := parse(flags, args); err != nil {
		return 2
	}
	end := endSignals(false)
	p := pacer{total: int64(count), rate: int64(rate), start: time.Now()}
	made := int64(0)
	err := p.run(func(done, due int64) error {
		for made = done; made < due; made++ {
			if err := os.WriteFile(filepath.Join(*dir, fmt.Sprintf("workload.%d", made)), nil, 0o644); err != nil {
				return err
			}
			select {
			case <-end:
				return errEnded
			default:
			}
		}
		return nil
	})
	if errors.Is(err, errEnded) {
		return 0
	}
	if err != nil {
		// Inodes that run out are what this may be for: stay and keep them.
		fmt.Fprintf(stderr, "workload: files: %v\n", err)
	}
	fmt.Fprintf(stdout, "files: %d of %d\n", made, count)
	if *hold {
		<-end
	}
	return 0
}

// fork keeps a number of processes and then stays.
func fork(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("fork", flag.ContinueOnError)
	flags.SetOutput(stderr)
	count := flags.Int("count", 1, "processes to keep beside this one")
	if err := parse(flags, args); err != nil {
		return 2
	}
	end := endSignals(false)
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(stderr, "workload: fork: %v\n", err)
		return 1
	}
	started := 0
	for ; started < *count; started++ {
		if err := exec.Command(self, "child").Start(); err != nil {
			// A PID limit is what this may be for: stay with what there is.
			fmt.Fprintf(stderr, "workload: fork: %v\n", err)
			break
		}
	}
	fmt.Fprintf(stdout, "fork: %d of %d processes\n", started, *count)
	<-end
	return 0
}

// child does nothing until it is told to end or its container ends.
func child([]string, io.Writer, io.Writer) int {
	<-endSignals(false)
	return 0
}
