// Command vm runs tests, or a command of your own, in a virtual machine made from
// Debian packages: pure cgroup v2, systemd as PID 1, swap, a memory of its own that
// may be exhausted. It needs root, Debian and x86_64, and gets the rest itself.
//
//	evictd-vm test [-only REGEXP]
//	evictd-vm soak [-for 10m]
//	evictd-vm powercut [-cuts N] [-pictures N] [-seed N]
//	evictd-vm run [-m MIB] [-swap MIB] [-share DIR:MOUNT[:rw]] -- COMMAND [ARG...]
//	evictd-vm build
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// Exit codes; `run` passes on the command's own.
const (
	exitFailed         = 1
	exitUsage          = 2
	exitTimeout        = 124
	exitInfrastructure = 125 // the machine could not be made or broke: try again
)

const usage = `usage: vm COMMAND [flags]
  test   run the tests that need cgroup v2, systemd or a memory of their own
  soak   the tests in which nothing may happen, for longer
  powercut  cut the machine's power again and again
  run    run a command in the machine: its output and exit code are this program's
  build  make the machine's image and get qemu, and no more
`

func main() {
	// The parent-death signal of qemu is about the thread that started it.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]func(context.Context, []string, io.Writer, io.Writer) (int, error){
		"test": testCommand, "soak": soakCommand, "run": runCommand, "build": buildCommand, "powercut": powercutCommand,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	code, err := commands[args[0]](ctx, args[1:], stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "vm: %v\n", err)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "vm: interrupted")
		return 130
	default:
		fmt.Fprintf(stderr, "vm: %v\n", err)
		return exitInfrastructure
	}
	return code
}

// errUsage means a mistake on the command line.
var errUsage = errors.New("usage")

func buildCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("%w: build takes no arguments", errUsage)
	}
	r, cleanup, err := newRig(ctx, stderr)
	if err != nil {
		return 0, err
	}
	cleanup()
	fmt.Fprintln(stdout, filepath.Dir(r.img.root))
	return 0, nil
}

// newRig gets everything a machine needs.
func newRig(ctx context.Context, log io.Writer) (*rig, func(), error) {
	if runtime.GOARCH != "amd64" {
		return nil, nil, fmt.Errorf("the test machine is made for amd64 only, this is %s", runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("needs root: the machine's root file system is made here, and folders are shared with it as they are")
	}
	// The changes to the machine's disk go here: not on a tmpfs, which is memory.
	if os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", "/var/tmp"); err != nil {
			return nil, nil, err
		}
	}
	root, err := lab.CacheRoot()
	if err != nil {
		return nil, nil, err
	}
	img, err := ensureImage(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	q, err := ensureQEMU(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	if err := q.chooseAccel(ctx, log, img, root); err != nil {
		return nil, nil, err
	}
	dir, remove, err := lab.NewScratch()
	if err != nil {
		return nil, nil, err
	}
	r := &rig{img: img, qemu: q, agent: filepath.Join(dir, "agent"), log: log}
	if err := lab.RunGo(ctx, ".", nil, "build", "-ldflags=-s -w", "-o", r.agent, modulePath+"/test/vm/agent"); err != nil {
		remove()
		return nil, nil, err
	}
	return r, remove, nil
}

const modulePath = "github.com/cri-evictd/cri-evictd"

// processors of a machine: the host's, and no more than the tests can use.
func processors() int { return min(runtime.NumCPU(), 4) }

// seconds prints a duration for people.
func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }
