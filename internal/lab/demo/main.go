// Command demo shows on a real containerd with real containers what cri-evictd
// is for. It needs root and Debian; it installs nothing and leaves nothing
// behind but the cache of downloaded programs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	binary := flags.String("binary", "bin/cri-evictd", "the cri-evictd to show")
	version := flags.String("containerd", string(lab.Debian), "containerd to run: 1.6 (Debian's package) or 2.4 (built here, takes minutes the first time)")
	driver := flags.String("cgroup-driver", "cgroupfs", "cgroupfs or systemd (on a host that systemd runs)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	begun := time.Now()
	d := &demo{out: os.Stdout, binary: *binary, version: lab.Version(*version), systemd: *driver == "systemd"}
	err := d.play(ctx)
	left := d.cleanup()
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(d.out, "\ninterrupted")
	case err != nil:
		fmt.Fprintf(d.out, "\nthe demo failed: %v\n", err)
	}
	for _, l := range left {
		fmt.Fprintf(d.out, "left behind: %s\n", l)
	}
	if err != nil || len(left) > 0 {
		return 1
	}
	fmt.Fprintf(d.out, "\nAll gone again: no process, mount, cgroup or file is left. %.0f s in all.\n", time.Since(begun).Seconds())
	return 0
}
