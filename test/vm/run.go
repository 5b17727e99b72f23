package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

// runCommand is `vm run`, for people: one command in a machine.
func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.SetOutput(stderr)
	m := machine{}
	flags.IntVar(&m.memory, "m", 2048, "memory in MiB")
	flags.IntVar(&m.cpus, "p", processors(), "processors")
	flags.IntVar(&m.swap, "swap", 0, "swap space in MiB")
	flags.StringVar(&m.logs, "logs", "", "folder for the machine's console, kernel log and journal")
	limit := flags.Duration("t", 10*time.Minute, "limit for the command")
	flags.Func("disk", "add an empty disk of so many MiB (may be repeated; serials data0, data1, ...)", func(s string) error {
		n, err := strconv.Atoi(s)
		m.disks = append(m.disks, n)
		return err
	})
	flags.Func("share", "share a folder, DIR:MOUNT or DIR:MOUNT:rw (may be repeated)", func(s string) error {
		sh, err := parseShare(s)
		m.shares = append(m.shares, sh)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return 0, errors.Join(errUsage, err)
	}
	if flags.NArg() == 0 || m.memory < 128 || m.cpus < 1 {
		return 0, fmt.Errorf("%w: vm run [flags] -- COMMAND [ARG...], at least 128 MiB and a processor", errUsage)
	}
	command := flags.Args()
	if len(command) == 1 { // a line for the shell
		command = []string{"/bin/bash", "-c", command[0]}
	}
	r, cleanup, err := newRig(ctx, stderr)
	if err != nil {
		return 0, err
	}
	defer cleanup()
	m.shares = append(m.shares, cacheShare(r))
	m.steps = []protocol.Step{{Name: "run", Args: command, Env: guestEnv(guestCache), Timeout: *limit}}
	w := &passThrough{out: stdout}
	if err := r.run(ctx, m, w); err != nil {
		return 0, err
	}
	if w.result.TimedOut {
		fmt.Fprintf(stderr, "vm: the command did not end within %v\n", *limit)
		return exitTimeout, nil
	}
	return w.result.Code, nil
}

// parseShare reads DIR:MOUNT[:rw].
func parseShare(s string) (share, error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") || len(parts) == 3 && parts[2] != "rw" {
		return share{}, fmt.Errorf("share %q: must be DIR:MOUNT or DIR:MOUNT:rw", s)
	}
	dir, err := filepath.Abs(parts[0])
	if err != nil {
		return share{}, fmt.Errorf("share %q: %w", s, err)
	}
	if strings.Contains(dir, ",") {
		return share{}, fmt.Errorf("share %q: qemu takes no comma in a path", s)
	}
	return share{host: dir, mount: parts[1], write: len(parts) == 3}, nil
}

// passThrough shows what the only step prints.
type passThrough struct {
	out    io.Writer
	result protocol.Ended
}

func (p *passThrough) begin(int)              {}
func (p *passThrough) output(b []byte)        { _, _ = p.out.Write(b) } // nobody reads it any more
func (p *passThrough) ended(e protocol.Ended) { p.result = e }

// guestCache is where the lab's cache is in a machine, read-only.
const guestCache = "/var/cache/evictd-lab"

func cacheShare(r *rig) share {
	return share{host: filepath.Dir(filepath.Dir(r.img.root)), mount: guestCache}
}

// guestEnv is the environment of every step: the lab's cache, and a temporary
// folder on the disk, since containers' layers cannot be on a tmpfs of this size.
func guestEnv(cache string) []string {
	return []string{"CRI_EVICTD_CACHE=" + cache, "TMPDIR=/var/tmp"}
}
