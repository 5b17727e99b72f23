package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// critestTimeout is four times what a run takes on two CPUs.
const critestTimeout = 10 * time.Minute

// critest runs the suite against a CRI socket. name is that of the log and
// report in the output folder; focus is a regular expression, empty for all specs.
func (r *rig) critest(ctx context.Context, name, socket, focus string) ([]result, error) {
	report := filepath.Join(r.out, name+".json")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	log, err := os.Create(filepath.Join(r.out, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // for reading only after a failure

	ctx, cancel := context.WithTimeout(ctx, critestTimeout)
	defer cancel()
	// Both endpoints: that of images would otherwise come from the host's
	// /etc/crictl.yaml, if it has one.
	args := []string{
		"-runtime-endpoint=unix://" + socket, "-image-endpoint=unix://" + socket, "-nri-socket=" + r.ctd.NRISocket,
		"-ginkgo.seed=" + strconv.FormatInt(r.seed, 10), "-ginkgo.no-color", "-ginkgo.v", "-ginkgo.json-report=" + report,
	}
	if focus != "" {
		args = append(args, "-ginkgo.focus="+focus)
	}
	cmd := exec.CommandContext(ctx, r.programs.Critest, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+r.tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it removes its pods
	cmd.WaitDelay = 10 * time.Second
	runErr := cmd.Run() // an error, too, when specs failed
	if ctx.Err() != nil {
		return nil, fmt.Errorf("critest: %w", context.Cause(ctx))
	}
	f, err := os.Open(report)
	if err != nil {
		return nil, fmt.Errorf("critest wrote no report (%w), see %s: %w", runErr, log.Name(), err)
	}
	defer func() { _ = f.Close() }() // read only
	return readReport(f)
}
