package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
)

func (a *app) explainCommand() *cobra.Command {
	var d dataFlags
	cmd := &cobra.Command{
		Use:   "explain [POD]",
		Short: "Show who would be evicted now and why, and what was decided; POD is namespace/name or a UID",
		Args:  atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := d.client()
			if err != nil {
				return err
			}
			x, err := c.Explain(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return d.print(a.out, x, func(w io.Writer) { printExplanation(w, &x) })
		},
	}
	d.add(cmd)
	return cmd
}

func printExplanation(out io.Writer, x *admin.Explanation) {
	m := &x.Memory
	fmt.Fprintf(out, "memory.available: %s (%s; kernel %s, kubelet %s), threshold %s, floor %s, %s\n",
		bytesText(m.Available), m.From, bytesText(m.AvailableKernel), bytesText(m.AvailableKubelet),
		bytesText(m.Threshold), bytesText(m.Floor), metText(m.Met))
	for i := range x.Signals {
		if s := &x.Signals[i]; s.Signal != eviction.MemoryAvailable {
			fmt.Fprintln(out, signalText(s))
		}
	}
	if m.KubeletSources != 0 {
		fmt.Fprintf(out, "kubelet's own sources, to compare with: %s at %s\n", bytesText(m.KubeletSources), m.KubeletSourcesTime.Format(time.RFC3339))
	}
	if x.Pod == nil {
		if x.Next != nil {
			fmt.Fprintf(out, "would be evicted first: %s (uid %s)\n", x.Next, x.Next.UID)
		} else {
			fmt.Fprintf(out, "would be evicted first: none, because %s\n", x.NoNext)
		}
	}
	for _, s := range x.Soft {
		fmt.Fprintln(out, softText(&s))
	}
	fmt.Fprintln(out)
	printCandidates(out, x.Candidates)
	printSlow(out, x.Slow, x.Pod == nil)
	for _, n := range x.NotAdmitted {
		fmt.Fprintf(out, "\nnew pod %s (uid %s) is not admitted: the node is under %s; it asked %d times since %s, last %s; it is admitted once that is over\n",
			n.Pod, n.Pod.UID, n.Condition, n.Times, n.First.Format(time.RFC3339), ago(n.Last))
	}
	for _, h := range x.Holds {
		fmt.Fprintf(out, "\nhold #%d of %s (uid %s): %s\n", h.ID, h.Pod, h.Pod.UID, holdText(&h))
	}
	for i := range x.Decisions {
		fmt.Fprintln(out)
		printDecision(out, &x.Decisions[i], x.Pod)
	}
	printRuns(out, "removed without a threshold being met", x.Removals)
}

func metText(met bool) string {
	if met {
		return "met"
	}
	return "not met"
}

func printCandidates(out io.Writer, cs []eviction.CandidateReport) {
	if len(cs) == 0 {
		fmt.Fprintln(out, "no running pod")
		return
	}
	table(out, func(w io.Writer) {
		fmt.Fprintln(w, "RANK\tKUBELET\tPOD\tQOS\tPRIORITY\tREQUEST\tSTORAGE\tUSAGE\tOVER\tNOTE")
		for _, c := range cs {
			note := c.Barred
			if note == "" && c.NoDirect != "" {
				note = "stopped through CRI only: " + c.NoDirect
			}
			if c.Ending {
				note = strings.TrimPrefix(note+"; being deleted", "; ")
			}
			qos := "unknown"
			if c.QoS.Value != "" {
				qos = sourced(c.QoS, c.QoS.Value)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Rank, kubeletRank(&c), c.Ref, qos, sourced(c.Priority, fmt.Sprint(c.Priority.Value)),
				requestText(c.Request), requestText(c.StorageRequest), measuredText(&c), yes(c.OverRequest), note)
		}
	})
	fmt.Fprintln(out, legend)
}

const legend = `RANK: who goes first, those that cannot be taken last. KUBELET: the place in kubelet's own order by the same numbers.
In brackets is where a number comes from; ~ marks an estimate, and default is what counts as long as nobody has told it.`

// kubeletRank is the pod's place in kubelet's own order.
func kubeletRank(c *eviction.CandidateReport) string {
	if c.KubeletRank == 0 {
		return "never"
	}
	return fmt.Sprint(c.KubeletRank)
}

// measuredText is the usage with its source: always the pod's cgroup.
func measuredText(c *eviction.CandidateReport) string {
	text := usageText(c)
	if c.UsageKnown {
		text += " (" + string(inventory.FromCgroup) + ")"
	}
	return text
}

// usageText and requestText never show a number that is not known as zero.
func usageText(c *eviction.CandidateReport) string {
	if !c.UsageKnown {
		return "unknown"
	}
	return bytesText(c.Usage)
}

func requestText(v inventory.Value[int64]) string {
	if v.Source == inventory.FromDefault || v.Source == "" {
		return "unknown"
	}
	return sourced(v, bytesText(v.Value))
}

// sourced prints a value with its source and whether it is an estimate.
func sourced[T any](v inventory.Value[T], text string) string {
	if v.Source == inventory.FromDefault {
		return text + " (default)"
	}
	if !v.Exact {
		text = "~" + text
	}
	if v.Slack != 0 {
		return fmt.Sprintf("%s (%s, up to %s less)", text, v.Source, bytesText(v.Slack))
	}
	return fmt.Sprintf("%s (%s)", text, v.Source)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func printDecision(out io.Writer, r *eviction.Report, about *inventory.Ref) {
	signal := ""
	if r.Signal != "" && r.Signal != eviction.MemoryAvailable {
		signal = string(r.Signal) + ", "
	}
	fmt.Fprintf(out, "decision #%d, %s, %s%s: %s\n", r.ID, r.Time.Format(time.RFC3339), signal, r.Outcome, r.Summary)
	m := &r.Memory
	unit := eviction.Bytes
	if x := r.Resource; x != nil {
		unit = x.Unit
		printResource(out, r)
	} else {
		fmt.Fprintf(out, "  available %s (%s; kernel %s, kubelet %s, min_free %s), threshold %s, floor %s, early band %s\n",
			bytesText(m.Available), m.From, bytesText(m.AvailableKernel), bytesText(m.AvailableKubelet), bytesText(m.MinFree),
			bytesText(m.Threshold), bytesText(m.Floor), yes(m.EarlyBand))
	}
	printSoft(out, r.Soft, unit)
	if k := r.Kill; k != nil {
		way := "the pod's cgroup"
		if !k.Direct {
			way = "the runtime (CRI)"
		}
		if r.Soft != nil && r.Soft.Escalated == "" && r.Soft.Shortened == nil {
			way = "the runtime (CRI), with grace"
			if r.Soft.ByKubelet {
				way = "kubelet, with grace"
			}
		}
		verb, end := "killed", "verified dead"
		if r.Outcome == eviction.OutcomeFailed {
			verb, end = "kill tried", "given up"
		}
		fmt.Fprintf(out, "  %s through %s: hold visible after %s, sent after %s, %s after %s, %d tries\n", verb, way,
			k.Intent.Round(time.Microsecond), k.Sent.Round(time.Microsecond), end, k.Settled.Round(time.Millisecond), k.Tries)
		for _, e := range []string{k.HoldError, k.KillError, k.CRIError} {
			if e != "" {
				fmt.Fprintf(out, "  error: %s\n", e)
			}
		}
	}
	if r.Telling != nil {
		fmt.Fprintf(out, "  Kubernetes: %s\n", toldText(r.Telling))
	}
	for _, c := range r.Candidates {
		if about != nil && c.Ref != *about && (r.Victim == nil || c.Ref != *r.Victim) {
			continue
		}
		mark := " "
		if r.Victim != nil && c.Ref == *r.Victim {
			mark = "*"
		}
		fmt.Fprintf(out, "  %s %d. (kubelet %s) %s: usage %s, request %s, priority %s %s\n", mark, c.Rank, kubeletRank(&c), c.Ref,
			measuredText(&c), requestText(c.Request), sourced(c.Priority, fmt.Sprint(c.Priority.Value)), c.Barred)
	}
}
