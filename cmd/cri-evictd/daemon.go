package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/systemd"
)

func (a *app) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Run proxy and evictor in one process",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.daemon(cmd.Context(), true, true) },
	}
}

func (a *app) proxyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "proxy",
		Short: "Run the proxy alone: forward calls, enforce holds",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.daemon(cmd.Context(), true, false) },
	}
}

func (a *app) evictCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "evict",
		Short: "Run the evictor alone: watch, decide, kill, hold",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.daemon(cmd.Context(), false, true) },
	}
}

// loadConfig reads the configuration; without --config and without a file at
// the default path the defaults apply.
func (a *app) loadConfig() (config.Config, error) {
	path := a.configPath
	if path == "" {
		path = config.DefaultPath
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return config.Parse([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n"))
		}
	}
	return config.Load(path)
}

// daemon runs the halves that were asked for until ctx ends.
func (a *app) daemon(ctx context.Context, withProxy, withEvict bool) error {
	log, err := a.logger()
	if err != nil {
		return err
	}
	cfg, err := a.loadConfig()
	if err != nil {
		if !withProxy {
			return err
		}
		return a.passThrough(ctx, cfg, err, log)
	}
	warnOf(cfg, log)
	a.lowerOOMScore(log)
	lv := newLive(cfg)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var wg sync.WaitGroup
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	wg.Go(func() { a.reloadOn(ctx, hangup, lv, log) })
	errs := make(chan error, 2)
	ready := make(chan struct{}, 2)
	halves := 0
	start := func(half func(context.Context, func()) error) {
		halves++
		wg.Go(func() {
			if err := half(ctx, func() { ready <- struct{}{} }); err != nil {
				errs <- err
				cancel() // a proxy that cannot listen, an evictor that runs alone
			}
		})
	}
	if withProxy {
		if !withEvict {
			prepareProxyProcess()
		}
		start(func(ctx context.Context, ready func()) error { return a.runProxy(ctx, lv, true, log, ready) })
	}
	if withEvict {
		prepareProcess(log)
		half := func(ctx context.Context, ready func()) error { return a.runEvict(ctx, lv, log, ready) }
		if withProxy {
			half = beside(half, log)
		}
		start(half)
	}
	go func() {
		for range halves {
			select {
			case <-ready:
			case <-ctx.Done():
				return
			}
		}
		systemd.Ready(log)
	}()
	<-ctx.Done()
	systemd.Stopping(log)
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

const (
	besideFirst   = time.Second
	besideLongest = 30 * time.Second
)

// beside runs the evictor next to a proxy: whatever stops it, calls go on and
// it is tried again.
func beside(half func(context.Context, func()) error, log logrus.FieldLogger) func(context.Context, func()) error {
	return func(ctx context.Context, ready func()) error {
		wait := besideFirst
		said := sync.OnceFunc(ready) // calls flow either way
		for {
			begun := time.Now()
			err := half(ctx, said)
			said()
			if ctx.Err() != nil {
				return nil
			}
			if time.Since(begun) > besideLongest {
				wait = besideFirst
			}
			log.WithError(err).WithField("retryIn", wait).Error("the evictor is down: nothing is evicted; calls are forwarded")
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
			}
			wait = min(2*wait, besideLongest)
		}
	}
}

// passThrough forwards calls although the configuration is broken: kubelet must
// not lose its runtime over a typing error. No policy runs and no hold is
// enforced.
func (a *app) passThrough(ctx context.Context, cfg config.Config, broken error, log *logrus.Logger) error {
	for _, line := range strings.Split(broken.Error(), "\n") {
		log.Error(line)
	}
	log.WithFields(logrus.Fields{"listen": cfg.Listen.Path, "runtimeEndpoint": cfg.RuntimeEndpoint.Path}).
		Error("the configuration is broken: calls are forwarded, nothing is evicted and no hold is enforced; correct it and restart")
	// A SIGHUP must not end what kubelet needs.
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	err := a.runProxy(ctx, newLive(cfg), false, log, func() { systemd.Ready(log) })
	return errors.Join(err, broken)
}

// memoryLimit is a soft limit for the Go heap: far above what the evictor
// needs, so that a leak shows as a busy collector before it hurts the node.
const memoryLimit = 256 << 20

// prepareProcess makes the process fit for reacting under pressure; each part
// that is refused costs one line and no more.
func prepareProcess(log logrus.FieldLogger) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	// The fast threads sleep in system calls; two more Ps let them go on at
	// once when every CPU's own is busy.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	}
	if err := eviction.LockMemory(); err != nil {
		log.Warn(fmt.Sprint("memory: ", err))
	}
}
