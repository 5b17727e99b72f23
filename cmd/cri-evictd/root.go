package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
)

// Exit codes (design §12).
const (
	exitOK      = 0
	exitProblem = 1
	exitUsage   = 2
)

// problem is an error that was found by a command that worked: it has been
// printed already.
var errProblem = errors.New("problem found")

// usageError is a wrong call of the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// app is what every subcommand shares.
type app struct {
	out, err io.Writer

	configPath string
	logLevel   string
	logFormat  string
	roots      cgroupfs.Roots
	// process is that of serve, proxy and evict.
	process *process
	// trialSocket makes proxy one that is only tried; see trial.
	trialSocket string
	// between breaks a kill off; set by fault builds only.
	between func()
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	a := &app{out: out, err: errOut, between: faultBetween()}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errProblem):
		return exitProblem
	case errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(errOut, "cri-evictd: %v\nSee cri-evictd --help.\n", err)
		return exitUsage
	}
	fmt.Fprintf(errOut, "cri-evictd: %v\n", err)
	var invalid config.Errors
	if errors.As(err, &invalid) {
		return exitUsage
	}
	return exitProblem
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cri-evictd",
		Short: "CRI proxy that evicts pods before the node runs out of memory",
		Long: `cri-evictd listens on a CRI socket that kubelet is pointed at, forwards every
call to the real runtime, and evicts pods itself when the node runs short of
memory: in milliseconds, with a reason everybody can read, and without any pod
coming back while the reason lasts.

Exit codes: 0 ok, 1 a problem was found, 2 wrong usage or configuration.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&a.configPath, "config", "", "configuration file (default "+config.DefaultPath+" where it exists)")
	f.StringVar(&a.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "text", "text or json")
	f.StringVar(&a.roots.Proc, "path.procfs", "/proc", "where procfs is mounted")
	f.StringVar(&a.roots.Cgroup, "path.cgroupfs", "/sys/fs/cgroup", "where the cgroup hierarchy is mounted")
	root.AddCommand(
		a.serveCommand(), a.proxyCommand(), a.evictCommand(),
		a.checkCommand(), a.statusCommand(), a.explainCommand(), a.holdsCommand(), a.armCommand(), a.gcCommand(), a.pauseCommand(), a.upgradeCommand(), a.bypassCommand(), a.versionCommand(),
	)
	completionCommand(root)
	return root
}

// completionCommand makes a wrong call of cobra's own command a usage error
// instead of a help text and exit 0.
func completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.RunE = func(*cobra.Command, []string) error {
				return usageError{errors.New("completion needs a shell: bash, zsh, fish or powershell")}
			}
		}
	}
}

// logger returns the log of this run.
func (a *app) logger() (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(a.err)
	level, err := logrus.ParseLevel(a.logLevel)
	if err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q: must be debug, info, warn or error", a.logLevel)}
	}
	log.SetLevel(level)
	switch a.logFormat {
	case "text":
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: "2006-01-02T15:04:05.000Z07:00", DisableColors: true})
	case "json":
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: "2006-01-02T15:04:05.000Z07:00"})
	default:
		return nil, usageError{fmt.Errorf("--log-format %q: must be text or json", a.logFormat)}
	}
	return log, nil
}

// noArgs refuses arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

// atMostOne allows one argument.
func atMostOne(cmd *cobra.Command, args []string) error {
	if err := cobra.MaximumNArgs(1)(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}
