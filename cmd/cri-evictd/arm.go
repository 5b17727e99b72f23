package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
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

// armedFile keeps the amount of the threshold that was seen clear, in the run
// directory: a reboot ends every breach.
type armedFile struct{ path string }

// Load implements eviction.Armed.
func (f armedFile) Load() (uint64, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.path, err)
	}
	return n, nil
}

// Save implements eviction.Armed.
func (f armedFile) Save(amount uint64) error {
	part := f.path + ".part"
	if err := os.WriteFile(part, []byte(strconv.FormatUint(amount, 10)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(part, f.path)
}
