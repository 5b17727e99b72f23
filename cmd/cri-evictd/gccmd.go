package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

func (a *app) gcCommand() *cobra.Command {
	var d dataFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "gc --dry-run",
		Short: "Show which dead containers and unused images would be removed, and why the rest stays",
		Long: `gc --dry-run shows what the daemon would remove while a hard threshold for disk or
inodes is met: in this order, and only until enough is free. Nothing is removed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := d.client()
			if err != nil {
				return err
			}
			if !dryRun {
				return usageError{errors.New("gc needs --dry-run: the daemon removes by itself when space is short")}
			}
			plan, err := c.GC(cmd.Context())
			if err != nil {
				return err
			}
			return d.print(a.out, plan, func(w io.Writer) { printGC(w, &plan) })
		},
	}
	d.add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing")
	return cmd
}

// gcShown is how many things of a kind are listed.
const gcShown = 40

func printGC(out io.Writer, p *gc.Plan) {
	if !p.Acts {
		fmt.Fprintln(out, "nothing is removed now: mode observe, or a pause")
	}
	if p.Problem != "" {
		fmt.Fprintln(out, "problem:", p.Problem)
	}
	how := "lists only, because the proxy is not reached"
	if p.Linked {
		how = "the proxy"
	}
	fmt.Fprintf(out, "uses of images are followed by %s for %s\n", how, p.Watched.Round(time.Second))
	printContainers(out, "would be removed", p.ContainersGo)
	printContainers(out, "stay", p.ContainersStay)
	if p.ImagesOff != "" {
		fmt.Fprintf(out, "\n%s\n", p.ImagesOff)
	}
	if p.ImagesProblem != "" {
		fmt.Fprintf(out, "\nno image is removed: %s\n", p.ImagesProblem)
	}
	printImages(out, "would be removed", p.ImagesGo)
	printImages(out, "stay", p.ImagesStay)
	printRuns(out, "last removals", p.Runs)
}

// printRuns shows what passes of garbage collection did.
func printRuns(out io.Writer, what string, runs []gc.Run) {
	if len(runs) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", what)
	table(out, func(w io.Writer) {
		fmt.Fprintln(w, "WHEN\tFOR\tCONTAINERS\tSANDBOXES\tIMAGES\tFAILED\tFREED\tNOTE")
		for i := range runs {
			r := &runs[i]
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", ago(r.Time), r.Why, r.Containers, r.Sandboxes, r.Images, r.Failed, amountText(r.Freed, r.Unit), r.Text)
		}
	})
}

func printContainers(out io.Writer, what string, steps []gc.ContainerStep) {
	fmt.Fprintf(out, "\ndead containers and sandboxes that %s: %d\n", what, len(steps))
	firstOf(out, steps, "KIND\tPOD\tCONTAINER\tATTEMPT\tCREATED\tID\tBECAUSE", "\t%d more\t\t\t\t\t\n", func(w io.Writer, s *gc.ContainerStep) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", s.Kind, s.Pod, s.Name, s.Attempt, ago(s.Created), shortID(s.ID), s.Why)
	})
}

func printImages(out io.Writer, what string, steps []gc.ImageStep) {
	fmt.Fprintf(out, "\nimages that %s: %d\n", what, len(steps))
	firstOf(out, steps, "IMAGE\tID\tSIZE\tLAST USED\tBECAUSE", "%d more\t\t\t\t\n", func(w io.Writer, s *gc.ImageStep) {
		name := "<none>"
		if len(s.Names) > 0 {
			name = s.Names[0]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, shortID(s.ID), bytesText(s.Size), ago(s.LastUsed), s.Why)
	})
}

// firstOf prints a table of the first steps, and how many more there are.
func firstOf[S any](out io.Writer, steps []S, head, more string, row func(io.Writer, *S)) {
	if len(steps) == 0 {
		return
	}
	table(out, func(w io.Writer) {
		fmt.Fprintln(w, head)
		for i := range min(len(steps), gcShown) {
			row(w, &steps[i])
		}
		if rest := len(steps) - gcShown; rest > 0 {
			fmt.Fprintf(w, more, rest)
		}
	})
}

// shortID is as much of an ID as people compare.
func shortID(id string) string {
	const length = 13
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(length, len(id))]
}
