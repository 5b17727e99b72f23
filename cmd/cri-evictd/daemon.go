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
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
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
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run the proxy alone: forward calls, enforce holds",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.daemon(cmd.Context(), true, false) },
	}
	cmd.Flags().StringVar(&a.trialSocket, "trial", "", "listen here instead, for bypass off --when-well")
	cmd.Flags().Lookup("trial").Hidden = true
	return cmd
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
	if a.process, err = newProcess(log); err != nil {
		return err
	}
	cfg, err := a.loadConfig()
	if err != nil {
		// The process that is to be replaced has a configuration that works.
		if !withProxy || a.process.successor() || a.trialSocket != "" {
			return err
		}
		return a.passThrough(ctx, cfg, err, log)
	}
	if a.trialSocket != "" {
		cfg.Listen, cfg.ProxySocket = cri.Endpoint{Path: a.trialSocket}, cri.Endpoint{}
	}
	warnOf(cfg, log)
	a.lowerOOMScore(log)
	lv := newLive(cfg)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := a.process.over
	over.leave, over.limit = cancel, func() time.Duration { return lv.config().HandOverTimeout }

	var wg sync.WaitGroup
	a.process.run(ctx, &wg, log)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	wg.Go(func() { a.reloadOn(ctx, hangup, lv, log) })
	errs := make(chan error, 2)
	var serves []<-chan struct{} // what being ready means
	start := func(half func(context.Context) error) {
		wg.Go(func() {
			if err := half(ctx); err != nil {
				errs <- err
			}
			cancel() // a proxy that cannot listen or has handed over, an evictor that runs alone
		})
	}
	begun := func() (<-chan struct{}, func()) {
		c := make(chan struct{})
		return c, sync.OnceFunc(func() { close(c) }) // an evictor may begin anew; see handOver
	}
	if withEvict {
		prepareProcess(log)
		half := func(ctx context.Context, ready func()) error { return a.runEvict(ctx, lv, log, ready) }
		if withProxy {
			half = beside(half, log)
		}
		is, ready := begun()
		// Beside a proxy that takes over the evictor waits for the old one's end.
		if !withProxy || !a.process.successor() {
			serves = append(serves, is)
		}
		over.evict = newPausable(func(ctx context.Context) error { return half(ctx, ready) })
	}
	if withProxy {
		if !withEvict {
			prepareProxyProcess()
		}
		is, ready := begun()
		serves = append(serves, is)
		start(func(ctx context.Context) error { return a.runProxy(ctx, lv, true, log, ready) })
	}
	if withEvict {
		start(over.evict.run)
	}
	go func() {
		for _, is := range serves {
			select {
			case <-is:
			case <-ctx.Done():
				return
			}
		}
		a.process.ready(log)
	}()
	<-ctx.Done()
	a.process.manager.Stopping()
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lv := newLive(cfg)
	a.process.over.leave, a.process.over.limit = cancel, func() time.Duration { return lv.config().HandOverTimeout }
	var wg sync.WaitGroup
	a.process.run(ctx, &wg, log)
	err := a.runProxy(ctx, lv, false, log, func() { a.process.ready(log) })
	cancel()
	wg.Wait()
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
