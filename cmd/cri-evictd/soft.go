package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// softText is one line about a soft threshold.
func softText(s *eviction.SoftNow) string {
	return fmt.Sprintf("soft %s: %s", s.Signal, softState(s))
}

func softState(s *eviction.SoftNow) string {
	var b strings.Builder
	if s.Known {
		fmt.Fprintf(&b, "%s, ", amountText(s.Available, s.Unit))
	} else {
		b.WriteString("unknown, ")
	}
	fmt.Fprintf(&b, "threshold %s (minimum reclaim %s, grace %s)", amountText(s.Threshold, s.Unit), amountText(s.MinReclaim, s.Unit), s.Grace)
	switch {
	case !s.MetSince.IsZero():
		fmt.Fprintf(&b, ", met since %s", s.MetSince.Format(time.RFC3339))
	case s.Known:
		b.WriteString(", not met")
	}
	if s.Unarmed {
		b.WriteString(", unarmed")
	}
	if s.Waiting != "" {
		fmt.Fprintf(&b, "; %s", s.Waiting)
	}
	return b.String()
}

// conditionsText names the node's conditions as the proxy is told.
func conditionsText(c *eviction.ConditionsNow) string {
	var on []string
	for _, x := range []struct {
		holds bool
		name  string
	}{{c.MemoryPressure, "MemoryPressure"}, {c.DiskPressure, "DiskPressure"}, {c.PIDPressure, "PIDPressure"}} {
		if x.holds {
			on = append(on, x.name)
		}
	}
	text := "none"
	if len(on) > 0 {
		text = fmt.Sprintf("%s since %s", strings.Join(on, ", "), c.Since.Format(time.RFC3339))
	}
	if c.Error != "" {
		text += "; the proxy cannot be told: " + c.Error
	}
	return text
}

// printSoft prints what a soft decision was made of; nothing for a hard one.
func printSoft(out io.Writer, s *eviction.SoftReport, u eviction.Unit) {
	if s == nil {
		return
	}
	since := "in a previous run"
	if !s.MetSince.IsZero() {
		since = s.MetSince.Format(time.RFC3339)
	}
	fmt.Fprintf(out, "  soft: grace %s, met since %s, minimum reclaim %s, missing %s\n", s.Grace, since, amountText(s.MinReclaim, u), amountText(s.Shortage, u))
	if r := s.Reclaim; r != nil {
		fmt.Fprintf(out, "  memory.reclaim: asked for %s, got %s in %s, pods asked: %d; available %s before, %s after\n",
			bytesText(r.Asked), bytesText(r.Returned), r.Took.Round(time.Millisecond), len(r.Pods), bytesText(r.Available), bytesText(r.After))
		if r.Error != "" {
			fmt.Fprintf(out, "  memory.reclaim failed: %s\n", r.Error)
		}
	}
	if s.PodGrace > 0 {
		asked := "unknown"
		if s.PodAsked != nil {
			asked = s.PodAsked.String()
		}
		fmt.Fprintf(out, "  grace given to the pod: %s (it asks for %s, evictionMaxPodGracePeriod is %s)\n", s.PodGrace, asked, s.MaxPodGrace)
	}
	if s.ByKubelet {
		fmt.Fprintln(out, "  ended by kubelet, which was told; hooks and order of the containers are its own")
	}
	if s.NotByKubelet != "" {
		fmt.Fprintf(out, "  not ended by kubelet: %s\n", s.NotByKubelet)
	}
	for _, h := range s.Hooks {
		result := "done"
		if h.Error != "" {
			result = h.Error
		}
		fmt.Fprintf(out, "  preStop of container %s: %s, %s: %s\n", h.Container, h.Kind, h.Took.Round(time.Millisecond), result)
	}
	if s.Escalated != "" {
		fmt.Fprintf(out, "  its grace ended in a kill: %s\n", s.Escalated)
	}
	if h := s.Shortened; h != nil {
		fmt.Fprintf(out, "  shortened at %s by the hard threshold of %s: available %s, threshold %s\n",
			h.Time.Format(time.RFC3339), h.Signal, bytesText(h.Memory.Available), bytesText(h.Memory.Threshold))
	}
}
