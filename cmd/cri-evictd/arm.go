package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/eviction"
)

func (a *app) armCommand() *cobra.Command {
	var d dataFlags
	cmd := &cobra.Command{
		Use:   "arm",
		Short: "Act on a threshold that was met already when it was loaded",
		Long: `A threshold that is new and already met when the daemon loads it is not acted on
until it was clear once: a mistyped value must not cost pods their lives. arm says
that it is meant.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := d.client()
			if err != nil {
				return err
			}
			r, err := c.Arm(cmd.Context())
			if err != nil {
				return err
			}
			return d.print(a.out, r, func(w io.Writer) {
				if r.Changed {
					fmt.Fprintln(w, "armed")
				} else {
					fmt.Fprintln(w, "was armed already")
				}
			})
		},
	}
	d.add(cmd)
	return cmd
}

// armedFile keeps the amounts of the thresholds that were seen clear, a line
// each, in the run directory: a reboot ends every breach.
type armedFile struct{ path string }

// maxArmed bounds what is read of it; a whole one has a line for each signal.
const maxArmed = 4096

// Load implements eviction.Armed.
func (f armedFile) Load() (map[eviction.Signal]uint64, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(file, maxArmed))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	amounts, err := parseArmed(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return amounts, nil
}

// parseArmed reads lines of a signal and an amount; an amount alone, as the
// first version wrote it, is memory.available's.
func parseArmed(text string) (map[eviction.Signal]uint64, error) {
	amounts := map[eviction.Signal]uint64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		signal, number, ok := strings.Cut(line, " ")
		if !ok {
			signal, number = string(eviction.MemoryAvailable), line
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || !known(eviction.Signal(signal)) {
			return nil, fmt.Errorf("%q is not a signal and an amount", line)
		}
		amounts[eviction.Signal(signal)] = n
	}
	return amounts, nil
}

// known says whether a threshold's name is one of ours.
func known(name eviction.Signal) bool {
	return slices.ContainsFunc(eviction.Signals(), func(s eviction.Signal) bool { return name == s || name == s.SoftName() })
}

// Save implements eviction.Armed.
func (f armedFile) Save(amounts map[eviction.Signal]uint64) error {
	var b strings.Builder
	for _, s := range slices.Sorted(maps.Keys(amounts)) {
		fmt.Fprintf(&b, "%s %d\n", s, amounts[s])
	}
	part := f.path + ".part"
	if err := os.WriteFile(part, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(part, f.path)
}
