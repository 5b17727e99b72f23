package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// printSignal prints one signal with its thresholds.
func printSignal(row func(key, format string, args ...any), s *eviction.SignalNow) {
	switch {
	case !s.Signal.Memory():
		row(string(s.Signal), "%s", slowState(s))
	case s.Absent:
		row(string(s.Signal), "this machine has no such number")
	case !s.Known:
		row(string(s.Signal), "not known yet")
	default:
		row(string(s.Signal), "%s of %s (%s)", bytesText(s.Available), bytesText(s.Capacity), s.From)
		row("  kernel / kubelet", "%s / %s", bytesText(s.AvailableKernel), bytesText(s.AvailableKubelet))
	}
	for _, t := range s.Thresholds {
		if t.Kind == eviction.KindSoft {
			continue // they have lines of their own
		}
		row("  "+t.Kind+" threshold", "%s", thresholdText(&t, s))
	}
	if s.Unarmed {
		row("  unarmed", "it was met when it was loaded; `cri-evictd arm` makes it be acted on")
	}
	if s.Breaker != "" {
		row("  breaker", "%s", breakerText(s))
	}
	if s.NotActing != "" {
		row("  not acting", "%s", s.NotActing)
	}
}

// slowState is the state of a signal of disk, inodes or PIDs.
func slowState(s *eviction.SignalNow) string {
	text := "not known yet"
	switch {
	case s.Absent:
		text = "this file system has no such number"
	case s.Known:
		text = amountText(s.Available, s.Unit) + " of " + amountText(s.Capacity, s.Unit)
	case s.Problem != "":
		text = "not known: " + s.Problem
	}
	if s.Path != "" {
		text += " (" + s.Path + ")"
	}
	if s.SameAs != "" {
		text += ", which " + string(s.SameAs) + " decides"
	}
	return text
}

// breakerText says which breaker is open and for how long.
func breakerText(s *eviction.SignalNow) string {
	if s.BreakerUntil.IsZero() {
		return s.Breaker
	}
	return s.Breaker + ", for " + time.Until(s.BreakerUntil).Round(time.Second).String()
}

func thresholdText(t *eviction.ThresholdNow, s *eviction.SignalNow) string {
	if t.Amount == 0 {
		return "off"
	}
	text := amountText(t.Amount, s.Unit)
	if s.Floor > 0 {
		text += ", floor " + bytesText(s.Floor)
	}
	if t.MinReclaim > 0 {
		text += ", minimum reclaim " + amountText(t.MinReclaim, s.Unit)
	}
	switch {
	case t.Met:
		return text + ": below it for " + time.Since(t.MetSince).Round(time.Second).String()
	case !s.Known:
		return text
	case s.TimeToThreshold != nil:
		return text + ": clear, reached in " + s.TimeToThreshold.Round(time.Second).String() + " at the present rate"
	}
	return text + ": clear"
}

// sourcesText tells how old everything is that decisions rely on.
func sourcesText(list []eviction.SourceNow) string {
	var out []string
	for _, x := range list {
		text := x.Name + " "
		switch {
		case x.Absent && x.At.IsZero():
			text += "not here"
		case x.At.IsZero():
			text += "never"
		case x.Age < time.Second:
			text += x.Age.Round(time.Millisecond).String()
		default:
			text += x.Age.Round(time.Second).String()
		}
		if !x.OK && (!x.At.IsZero() || x.Error != "") && !x.Absent {
			text += " (failing)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// signalText is one line about a signal and its hard threshold.
func signalText(s *eviction.SignalNow) string {
	text := string(s.Signal) + ": "
	switch {
	case !s.Signal.Memory():
		text += slowState(s)
		if !s.Known {
			return text
		}
		return text + hardText(s)
	case s.Absent:
		return text + "this machine has no such number"
	case !s.Known:
		return text + "not known yet"
	}
	text += fmt.Sprintf("%s (%s; kernel %s, kubelet %s)", bytesText(s.Available), s.From, bytesText(s.AvailableKernel), bytesText(s.AvailableKubelet))
	return text + hardText(s)
}

// hardText is the hard threshold, and why nothing is done about it.
func hardText(s *eviction.SignalNow) string {
	text := ""
	for _, t := range s.Thresholds {
		if t.Kind == eviction.KindHard {
			text += ", threshold " + thresholdText(&t, s)
		}
	}
	if s.NotActing != "" {
		text += "; " + s.NotActing
	}
	return text
}
