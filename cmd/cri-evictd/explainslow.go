package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// slowShown is how many pods are listed for each file system.
const slowShown = 10

// printSlow prints who would be evicted for disk, inodes and PIDs; all says that
// it is not about one pod.
func printSlow(out io.Writer, list []eviction.SlowExplanation, all bool) {
	for i := range list {
		x := &list[i]
		var names []string
		for _, s := range x.Signals {
			names = append(names, string(s))
		}
		fmt.Fprintf(out, "\n%s", strings.Join(names, ", "))
		if x.Path != "" {
			fmt.Fprintf(out, " (%s)", x.Path)
		}
		switch {
		case !all:
			fmt.Fprintln(out, ":")
		case x.Next != nil:
			fmt.Fprintf(out, ": would be evicted first: %s (uid %s)\n", x.Next, x.Next.UID)
		default:
			fmt.Fprintf(out, ": would be evicted first: none, because %s\n", x.NoNext)
		}
		if len(x.Candidates) == 0 {
			continue
		}
		table(out, func(w io.Writer) {
			fmt.Fprintln(w, "RANK\tKUBELET\tPOD\tPRIORITY\tUSAGE\tBY A STOP\tBY DELETION\tNOTE")
			for i, c := range x.Candidates {
				if i == slowShown {
					fmt.Fprintf(w, "\t\t%d more\t\t\t\t\t\n", len(x.Candidates)-i)
					break
				}
				fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", c.Rank, kubeletRank(&c), c.Ref, c.Priority.Value,
					slowUsage(&c, x.Unit), amountText(c.Gain, x.Unit), amountText(c.Deletion, x.Unit), c.Barred)
			}
		})
	}
}

// slowUsage is what a pod has, never a number that is not known.
func slowUsage(c *eviction.CandidateReport, u eviction.Unit) string {
	if !c.UsageKnown {
		return "unknown"
	}
	text := amountText(c.Usage, u)
	if c.Incomplete {
		text = "at least " + text
	}
	if c.UsageAge >= time.Second {
		text += fmt.Sprintf(" (%s old)", c.UsageAge.Round(time.Second))
	}
	return text
}

// printResource prints what a decision about disk, inodes or PIDs was about.
func printResource(out io.Writer, r *eviction.Report) {
	x, m := r.Resource, &r.Memory
	fmt.Fprintf(out, "  available %s of %s, threshold %s, minimum reclaim %s", amountText(m.Available, x.Unit), amountText(m.Capacity, x.Unit),
		amountText(m.Threshold, x.Unit), amountText(x.MinReclaim, x.Unit))
	if x.Path != "" {
		fmt.Fprintf(out, "; %s, device %s, layout %s", x.Path, x.Device, x.Layout)
	}
	fmt.Fprintln(out)
	if d := x.Reclaimed; d != nil {
		fmt.Fprintf(out, "  before that %s were freed: %d containers, %d images removed %s\n", amountText(d.Freed, x.Unit), d.Containers, d.Images, d.Text)
	}
}
