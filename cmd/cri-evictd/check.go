package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/config"
)

// Levels of a finding.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelError   = "error"
)

// finding is one thing check looked at.
type finding struct {
	Level string `json:"level"`
	What  string `json:"what"`
	Text  string `json:"text"`
}

// findings is the result of check.
type findings struct {
	Findings []finding `json:"findings"`
}

func (f *findings) add(level, what, format string, args ...any) {
	f.Findings = append(f.Findings, finding{level, what, fmt.Sprintf(format, args...)})
}

func (f *findings) failed() bool {
	for _, x := range f.Findings {
		if x.Level == levelError {
			return true
		}
	}
	return false
}

// checkPatience bounds what check asks of others.
const checkPatience = 2 * time.Second

func (a *app) checkCommand() *cobra.Command {
	var d dataFlags
	var kubelet kubeletFiles
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check configuration and machine before serving; exit 1 if something is wrong",
		Long: `check reads the configuration and looks at the machine as serve would, without
changing anything: thresholds as amounts, both memory readings, cgroups, sockets,
the runtime, kubelet's own threshold. It does not need the daemon.

With kubelet's configuration (--kubelet-config, or kubeletConfig in ours) it shows
side by side what kubelet and we would do, and which settings make the two fight.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), checkPatience)
			defer cancel()
			f := a.check(ctx, kubelet)
			if err := d.print(a.out, f, func(w io.Writer) {
				for _, x := range f.Findings {
					fmt.Fprintf(w, "%-8s %s: %s\n", x.Level, x.What, x.Text)
				}
			}); err != nil {
				return err
			}
			if f.failed() {
				return errProblem
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&d.output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&kubelet.file, "kubelet-config", "", "kubelet's configuration file, in place of kubeletConfig")
	cmd.Flags().StringVar(&kubelet.dir, "kubelet-config-dir", "", "kubelet's drop-in directory (its --config-dir)")
	cmd.Flags().StringVar(&d.socket, "admin-socket", config.DefaultAdminSocket, "accepted for symmetry; check does not need the daemon")
	return cmd
}

// kubeletFiles are kubelet's configuration file and its drop-in directory; empty
// for none.
type kubeletFiles struct{ file, dir string }

// check looks at everything and collects what it finds.
func (a *app) check(ctx context.Context, kubelet kubeletFiles) *findings {
	f := &findings{}
	cfg, err := a.loadConfig()
	if kubelet.file != "" {
		cfg.KubeletConfig = kubelet.file
	}
	kubelet.file = cfg.KubeletConfig
	if err != nil {
		var invalid config.Errors
		if errors.As(err, &invalid) {
			for _, e := range invalid {
				f.add(levelError, "configuration", "%v", e)
			}
		} else {
			f.add(levelError, "configuration", "%s", strings.ReplaceAll(err.Error(), "\n", " "))
		}
	} else {
		f.add(levelOK, "configuration", "valid, mode %s", cfg.Mode)
	}
	for _, w := range cfg.Warnings {
		f.add(levelWarning, "configuration", "%v", w)
	}
	a.checkMachine(ctx, f, cfg, kubelet)
	checkRuntime(ctx, f, cfg)
	checkImages(ctx, f, cfg)
	checkFacts(ctx, f, cfg)
	a.checkKubernetes(ctx, f, cfg)
	checkSockets(f, cfg)
	checkDirs(f, cfg)
	return f
}
