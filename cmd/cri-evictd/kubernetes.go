package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/kube/tell"
)

func userAgent() string { return tell.Component + "/" + version() }

// newTeller returns what tells Kubernetes of evictions; nil when nobody does.
func newTeller(cfg config.Config, ledger *holds.Ledger, bootID string, log logrus.FieldLogger) *tell.Teller {
	if cfg.Kubeconfig == "" || cfg.ReportMode == config.ReportNone {
		log.WithFields(logrus.Fields{"kubeconfig": cfg.Kubeconfig, "reportMode": cfg.ReportMode}).Warn("Kubernetes is not told of evictions")
		return nil
	}
	opt := tell.Options{
		Mode: string(cfg.ReportMode), Node: nodeName(cfg, log), BootID: bootID, Clock: time.Now, Log: log,
		Connect: func() (tell.API, error) { return tell.Connect(cfg.Kubeconfig, userAgent()) },
	}
	if ledger != nil {
		opt.Queue = ledger
	}
	return tell.New(opt)
}

// notTold says what is missing when Kubernetes is not told.
const notTold = "evicted pods stay Running or Pending for Kubernetes, are not replaced elsewhere, and their disk volumes and memory emptyDirs are not freed"

// checkKubernetes looks whether Kubernetes can be told of evictions.
func (a *app) checkKubernetes(ctx context.Context, f *findings, cfg config.Config) {
	theirs := kubeletKubeconfig(a.roots.Proc)
	switch {
	case cfg.ReportMode == config.ReportNone:
		f.add(levelWarning, "kubernetes", "reportMode is none: Kubernetes is not told of evictions: %s", notTold)
		return
	case cfg.Kubeconfig == "" && theirs != "":
		f.add(levelWarning, "kubernetes", "kubeconfig is not set, and kubelet is part of a cluster: Kubernetes is not told of evictions: %s; kubelet's own will do: kubeconfig: %s", notTold, theirs)
		return
	case cfg.Kubeconfig == "":
		f.add(levelOK, "kubernetes", "kubeconfig is not set: in a cluster Kubernetes would have to be told of evictions")
		return
	}
	node, err := findNodeName(cfg)
	if err != nil {
		f.add(levelError, "kubernetes", "%v", err)
		return
	}
	api, err := tell.Connect(cfg.Kubeconfig, userAgent())
	if err != nil {
		f.add(levelError, "kubernetes", "%v", err)
		return
	}
	way, fallback, err := tell.Probe(ctx, api, string(cfg.ReportMode), node, time.Now())
	switch {
	case err != nil:
		f.add(levelWarning, "kubernetes", "%s cannot be asked; evictions would be queued: %v", api.Server(), err)
	case way == tell.None:
		f.add(levelError, "kubernetes", "%s refuses every way to be told of evictions: %s: %s", api.Server(), fallback, notTold)
	case fallback != "":
		f.add(levelWarning, "kubernetes", "%s is told by %s, reportMode is %s: %s", api.Server(), way, cfg.ReportMode, fallback)
	default:
		f.add(levelOK, "kubernetes", "%s is told by %s, as node %s", api.Server(), way, node)
	}
}

// kubeletKubeconfig is what a running kubelet was started with; empty for none.
func kubeletKubeconfig(proc string) string {
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return ""
	}
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(proc, d.Name(), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		if path := kubeconfigOf(b); path != "" {
			return path
		}
	}
	return ""
}

// kubeconfigOf finds the flag in the command line of a kubelet, or of a program
// that has kubelet in it, such as hyperkube's.
func kubeconfigOf(cmdline []byte) string {
	args := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
	kubelet := false
	for i, arg := range args[:min(2, len(args))] {
		kubelet = kubelet || filepath.Base(arg) == "kubelet" && (i == 0 || !strings.HasPrefix(arg, "-"))
	}
	if !kubelet {
		return ""
	}
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case name != "kubeconfig" || !strings.HasPrefix(arg, "-"):
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// tellingText is how Kubernetes is told.
func tellingText(t *eviction.TellingNow) string {
	if t == nil {
		return "not told of evictions (no kubeconfig, or reportMode none)"
	}
	var told uint64
	for _, n := range t.Told {
		told += n.Count
	}
	way := t.Way
	if way == "" {
		way = "not known yet"
	}
	where := "no connection yet"
	if t.Server != "" {
		where = t.Server + " as " + t.Node
	}
	text := fmt.Sprintf("%s, by %s, %d told, %d queued, %d being verified", where, way, told, t.Queued, t.Verifying)
	if t.OldestAge > 0 {
		text += fmt.Sprintf(", the oldest for %s", t.OldestAge.Round(time.Second))
	}
	if !t.Reachable && t.Problem != "" {
		text += ", does not answer: " + t.Problem
	}
	return text
}

// toldText is how far the telling of one eviction is.
func toldText(t *eviction.Telling) string {
	text, ok := map[string]string{
		"":                 "not told yet",
		tell.Told:          "Failed, reason Evicted",
		tell.WithoutReason: "Failed; kubelet took the reason back, because every container ended with 0",
		tell.Ended:         "it had ended by itself",
		tell.Deleting:      "it is deleted",
		tell.Gone:          "no such pod is left there",
		tell.Static:        "static pods have no status to set; the event tells",
		tell.Withdrawn:     "not told: the pod may run again",
		tell.Refused:       "the API server did not take it",
		tell.Expired:       "it could not be told for a day",
		tell.Dropped:       "not told: too many were waiting",
	}[t.Outcome]
	if !ok {
		text = t.Outcome
	}
	if t.Outcome == "" && t.Requests > 0 {
		text = "told, and watched for kubelet's overwriting it"
	}
	if t.Requests > 0 {
		text += fmt.Sprintf(" (by %s, %d requests, the last %s)", t.Way, t.Requests, t.Asked.UTC().Format(time.RFC3339))
	}
	if !t.Event {
		text += "; its event is not sent yet"
	}
	return text
}
