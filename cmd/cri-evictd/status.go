package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
)

func (a *app) statusCommand() *cobra.Command {
	var d dataFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the daemon sees and does; exit 1 if something is wrong",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := d.client()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := d.print(a.out, s, func(w io.Writer) { printStatus(w, &s) }); err != nil {
				return err
			}
			if len(s.Problems) > 0 {
				return errProblem
			}
			return nil
		},
	}
	d.add(cmd)
	return cmd
}

func printStatus(out io.Writer, s *admin.Status) {
	e, m, p := &s.Engine, &s.Engine.Memory, &s.Proxy
	table(out, func(w io.Writer) {
		row := func(key, format string, args ...any) { fmt.Fprintf(w, "%s:\t%s\n", key, fmt.Sprintf(format, args...)) }
		row("cri-evictd", "%s, pid %d, mode %s, started %s", s.Version, s.PID, e.Mode, ago(e.Started))
		if !e.PausedUntil.IsZero() {
			row("paused", "nothing is evicted until %s", e.PausedUntil.Format(time.RFC3339))
		}
		for i := range e.Signals {
			printSignal(row, &e.Signals[i])
		}
		row("samples", "%s old, next within %s, %d taken, %d failed", m.Age.Round(time.Millisecond), m.Period, m.Samples, m.Failures)
		if len(e.Wakeups) > 0 {
			row("wake-ups", "%s", wakeupsText(e.Wakeups))
		}
		for _, x := range e.Soft {
			row("soft "+string(x.Signal), "%s", softState(&x))
		}
		if c := e.Conditions; c != (eviction.ConditionsNow{}) {
			row("conditions", "%s", conditionsText(&c))
		}
		row("pods", "%d known, %d held", e.Pods, e.Held)
		for _, n := range e.NotAdmitted {
			row("not admitted", "%s (uid %s) under %s, asked %d times, last %s", n.Pod, n.Pod.UID, n.Condition, n.Times, ago(n.Last))
		}
		if p.Reachable {
			row("proxy", "%s -> %s (%s, %s), %d calls, %d refused, %d not admitted, %d decorated", p.Listen, p.Upstream, p.UpstreamState, p.Runtime, p.Calls, p.Refused, notAdmitted(p.NotAdmitted), p.Decorated)
		} else {
			row("proxy", "not reachable")
		}
		row("kubernetes", "%s", tellingText(e.Telling))
		row("sources", "%s", sourcesText(e.Sources))
		switch {
		case s.Metrics.Address == "":
			row("metrics", "off")
		case s.Metrics.Error == "":
			row("metrics", "http://%s/metrics", s.Metrics.Address)
		}
		if l := e.LastDecision; l != nil {
			row("last decision", "#%d %s, %s: %s", l.ID, l.Outcome, ago(l.Time), l.Summary)
		} else {
			row("last decision", "none")
		}
	})
	for _, d := range e.Degraded {
		fmt.Fprintf(out, "degraded: %s\n", d)
	}
	if t := e.Telling; t != nil && t.Fallback != "" {
		fmt.Fprintf(out, "degraded: reportMode %s: %s\n", t.Mode, t.Fallback)
	}
	if s.Metrics.Error != "" {
		fmt.Fprintf(out, "degraded: metrics are not served: %s; trying again\n", s.Metrics.Error)
	}
	if len(s.Problems) == 0 {
		fmt.Fprintln(out, "no problems")
		return
	}
	for _, p := range s.Problems {
		fmt.Fprintf(out, "problem: %s\n", p)
	}
}

// wakeupsText names the kernel's events that can shorten the sampler's wait.
func wakeupsText(all []eviction.WakeupState) string {
	var inUse []string
	for _, s := range all {
		if s.InUse {
			inUse = append(inUse, fmt.Sprintf("%s (%s, %d times)", s.Source, s.Detail, s.Woken))
		}
	}
	if len(inUse) == 0 {
		return "none, sampling alone"
	}
	return strings.Join(inUse, ", ")
}

// notAdmitted adds up the starts of new pods that were refused.
func notAdmitted(byCondition map[string]uint64) uint64 {
	var n uint64
	for _, c := range byCondition {
		n += c
	}
	return n
}
