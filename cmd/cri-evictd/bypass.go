package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/systemd"
)

// Files in runDir that the bypass is kept with. bypassedFile and failuresFile are
// written by the units in systemd/, which must work with a program that does not.
const (
	// bypassedFile is there while calls go past the proxy; in it, the seconds since
	// boot at which that began.
	bypassedFile = "bypassed"
	// byHandFile is there when somebody wanted it so: nothing ends it but a person.
	byHandFile = "bypass-by-hand"
	// failuresFile has the seconds since boot of the proxy's failures of the last
	// minute.
	failuresFile = "failures"
	// episodesFile has those at which calls were handed back to the proxy.
	episodesFile = "handed-back"
)

const (
	// firstHandBack is how long the bypass lasts at least; each time that it was
	// needed again within handBackMemory it doubles, up to longestHandBack.
	firstHandBack   = time.Minute
	longestHandBack = 16 * time.Minute
	handBackMemory  = time.Hour
	// unitPatience bounds starting a unit.
	unitPatience = time.Minute
)

func (a *app) bypassCommand() *cobra.Command {
	var runDir string
	cmd := &cobra.Command{
		Use:   "bypass",
		Short: "Show whether calls go past the proxy; on and off",
		Long: `The bypass carries kubelet's calls to the runtime as they are, by a relay of systemd's
that has nothing of cri-evictd in it. It begins by itself when the proxy fails five
times within a minute, and ends by itself when a trial of the proxy goes well. While
it lasts no start of a pod is refused; the evictor stops held pods that come up.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showBypass(cmd.Context(), runDir) },
	}
	cmd.PersistentFlags().StringVar(&runDir, "run-dir", config.DefaultRunDir, "the daemon's runDir")
	var whenWell bool
	off := &cobra.Command{
		Use:   "off",
		Short: "Hand calls back to the proxy",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if whenWell {
				return a.handBackWhenWell(cmd.Context(), runDir)
			}
			return a.handBack(cmd.Context(), runDir)
		},
	}
	off.Flags().BoolVar(&whenWell, "when-well", false, "only if it is time, nobody wanted the bypass, and a trial of the proxy goes well; for cri-evictd-handback.service")
	cmd.AddCommand(&cobra.Command{
		Use:   "on",
		Short: "Let calls go past the proxy until bypass off or the next boot",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.bypassOn(cmd.Context(), runDir) },
	}, off)
	return cmd
}

// sinceBoot is the time since boot, which no change of the clock touches.
func sinceBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("the time since boot: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

func (a *app) showBypass(ctx context.Context, runDir string) error {
	ctx, cancel := context.WithTimeout(ctx, unitPatience)
	defer cancel()
	state, err := systemd.UnitState(ctx, systemd.BypassUnit)
	if err != nil {
		return err
	}
	if state != "active" {
		fmt.Fprintln(a.out, "off: calls go through the proxy")
		return nil
	}
	why := "by itself; it ends when a trial of the proxy goes well"
	if exists(filepath.Join(runDir, byHandFile)) {
		why = "by hand; bypass off ends it"
	}
	fmt.Fprintf(a.out, "on (%s): calls go past the proxy, holds are not enforced at the start of pods\n", why)
	return errProblem
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (a *app) bypassOn(ctx context.Context, runDir string) error {
	if err := os.WriteFile(filepath.Join(runDir, byHandFile), nil, 0o600); err != nil {
		return fmt.Errorf("noting that the bypass is wanted: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, unitPatience)
	defer cancel()
	if err := systemd.StartUnit(ctx, systemd.BypassUnit); err != nil {
		return errors.Join(err, removeIfThere(filepath.Join(runDir, byHandFile)))
	}
	fmt.Fprintln(a.out, "calls go past the proxy until bypass off or the next boot; holds are not enforced at the start of pods")
	return nil
}

// handBack starts the proxy; the units' conflict ends the bypass.
func (a *app) handBack(ctx context.Context, runDir string) error {
	if err := errors.Join(removeIfThere(filepath.Join(runDir, byHandFile)), removeIfThere(filepath.Join(runDir, failuresFile))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unitPatience)
	defer cancel()
	if err := systemd.StartUnit(ctx, systemd.ProxyUnit); err != nil {
		return err
	}
	fmt.Fprintln(a.out, "calls go through the proxy")
	return nil
}

// handBackWhenWell hands back if a trial goes well, and later the more often that
// turned out to be wrong.
func (a *app) handBackWhenWell(ctx context.Context, runDir string) error {
	if exists(filepath.Join(runDir, byHandFile)) {
		fmt.Fprintln(a.out, "the bypass was wanted by hand: it stays")
		return nil
	}
	if !exists(filepath.Join(runDir, bypassedFile)) {
		fmt.Fprintln(a.out, "there is no bypass")
		return nil
	}
	now, err := sinceBoot()
	if err != nil {
		return err
	}
	// Whatever is wrong with the notes, the bypass must come to an end: without them
	// it has lasted since the boot, and never came too early.
	began, err := readMoments(filepath.Join(runDir, bypassedFile))
	if err != nil {
		fmt.Fprintln(a.err, err)
	}
	began = append([]time.Duration{0}, recent(began, now, now)...)
	before, err := readMoments(filepath.Join(runDir, episodesFile))
	if err != nil {
		fmt.Fprintln(a.err, err)
	}
	before = recent(before, now, handBackMemory)
	if wait := handBackAfter(len(before)) - (now - began[len(began)-1]); wait > 0 {
		fmt.Fprintf(a.out, "not before %s from now\n", wait.Round(time.Second))
		return nil
	}
	if err := a.trial(ctx, runDir); err != nil {
		return fmt.Errorf("the proxy is not well yet: %w", err)
	}
	if err := writeMoments(filepath.Join(runDir, episodesFile), append(before, now)); err != nil {
		fmt.Fprintln(a.err, err)
	}
	return a.handBack(ctx, runDir)
}

// handBackAfter is how long the bypass lasts at least when calls were handed back
// this many times not long ago, each time too early.
func handBackAfter(times int) time.Duration {
	wait := firstHandBack
	for range times {
		wait = min(2*wait, longestHandBack)
	}
	return wait
}

// recent leaves the moments that lie less than within before now.
func recent(moments []time.Duration, now, within time.Duration) []time.Duration {
	var out []time.Duration
	for _, at := range moments {
		if at <= now && now-at < within {
			out = append(out, at)
		}
	}
	return out
}

// readMoments reads times since boot in whole seconds, one a line; what is none is
// passed over, no file is none.
func readMoments(path string) ([]time.Duration, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("moments: %w", err)
	}
	defer func() { _ = f.Close() }() // read only; nothing can be lost
	const most = 4096                // more is not ours
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("moments: %w", err)
	}
	var out []time.Duration
	for _, line := range strings.Fields(string(b)) {
		if n, err := strconv.ParseInt(line, 10, 32); err == nil && n >= 0 {
			out = append(out, time.Duration(n)*time.Second)
		}
	}
	return out, nil
}

func writeMoments(path string, moments []time.Duration) error {
	var b strings.Builder
	for _, at := range moments {
		fmt.Fprintln(&b, int64(at/time.Second))
	}
	part := path + ".part"
	if err := os.WriteFile(part, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("moments: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("moments: %w", err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bypass: %w", err)
	}
	return nil
}
