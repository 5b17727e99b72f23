package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/admin"
)

func (a *app) holdsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "holds",
		Short: "List and release holds: pods that were evicted and may not start again yet",
		Args:  noArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			return usageError{fmt.Errorf("holds needs a subcommand: list or release")}
		},
	}
	cmd.AddCommand(a.holdsListCommand(), a.holdsReleaseCommand())
	return cmd
}

func (a *app) holdsListCommand() *cobra.Command {
	var d dataFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the records of the holds file",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := d.client()
			if err != nil {
				return err
			}
			h, err := c.Holds(cmd.Context())
			if err != nil {
				return err
			}
			return d.print(a.out, h, func(w io.Writer) { printHolds(w, h.Holds) })
		},
	}
	d.add(cmd)
	return cmd
}

func (a *app) holdsReleaseCommand() *cobra.Command {
	var d dataFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "release POD | --all",
		Short: "Let an evicted pod start again; POD is namespace/name or a UID",
		Args:  atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == all {
				return usageError{fmt.Errorf("holds release needs one POD, or --all")}
			}
			c, err := d.client()
			if err != nil {
				return err
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			h, err := c.Release(cmd.Context(), name, all)
			if err != nil {
				return err
			}
			return d.print(a.out, h, func(w io.Writer) {
				for _, r := range h.Holds {
					fmt.Fprintf(w, "released: %s (uid %s)\n", r.Pod, r.Pod.UID)
				}
			})
		},
	}
	d.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "release every hold")
	return cmd
}

func printHolds(out io.Writer, hs []admin.Hold) {
	if len(hs) == 0 {
		fmt.Fprintln(out, "no holds")
		return
	}
	table(out, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tSTATE\tPOD\tUID\tEVICTED\tUSAGE\tNOTE")
		for _, h := range hs {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", h.ID, h.State, h.Pod, h.Pod.UID, ago(h.Decided), bytesText(h.Usage), holdText(&h))
		}
	})
}

// holdText says in words what a record means.
func holdText(h *admin.Hold) string {
	switch h.State {
	case "intent":
		return "its kill is in progress"
	case "killed":
		return fmt.Sprintf("may start again when the pressure has been over for the transition period and %s", h.BackOff)
	case "released":
		return fmt.Sprintf("released %s: %s", ago(h.ReleasedAt), h.ReleaseReason)
	}
	return h.State
}
