package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/admin"
)

func (a *app) pauseCommand() *cobra.Command {
	var d dataFlags
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "pause --for D",
		Short: "Evict nothing for a while; decisions are made and reported all the same",
		Long: `pause makes the daemon decide and report as in mode observe for a time such as 30m:
no pod is killed, and new pods are not refused for pressure. Pods that are held
stay held. The pause ends by itself, at a restart of the daemon, or with --for 0.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("for"):
				return usageError{errors.New("pause needs --for, such as --for 30m; --for 0 ends a pause")}
			case length < 0 || length > admin.LongestPause:
				return usageError{fmt.Errorf("--for %s: must be from 0 to %s", length, admin.LongestPause)}
			}
			c, err := d.client()
			if err != nil {
				return err
			}
			r, err := c.Pause(cmd.Context(), length)
			if err != nil {
				return err
			}
			return d.print(a.out, r, func(w io.Writer) {
				if r.PausedUntil.IsZero() {
					fmt.Fprintln(w, "not paused: pods are evicted when the node runs short")
				} else {
					fmt.Fprintf(w, "paused until %s: nothing is evicted\n", r.PausedUntil.Format(time.RFC3339))
				}
			})
		},
	}
	d.add(cmd)
	cmd.Flags().DurationVar(&length, "for", 0, "how long, such as 30m; 0 ends a pause")
	return cmd
}
