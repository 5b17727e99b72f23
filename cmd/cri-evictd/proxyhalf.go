package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// proxyGCPercent is GOGC of a process that only forwards.
const proxyGCPercent = 40

// prepareProxyProcess fits the Go runtime to a process that only forwards. On
// one P nothing has to wake a thread for the next step of a call: a call takes
// less time and less CPU, and one CPU moves more than kubelet asks for
// (docs/performance.md). The collector runs early, because under load most of
// the heap is frames in flight and garbage would grow in proportion to them.
func prepareProxyProcess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(proxyGCPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// runProxy runs the proxy until ctx ends. Without policy nothing is held.
func (a *app) runProxy(ctx context.Context, cfg config.Config, policy bool, log logrus.FieldLogger, ready func()) error {
	opt := proxy.Options{
		Listen: cfg.Listen, Upstream: cfg.RuntimeEndpoint, EventsSocket: cfg.ProxySocket.Path,
		DecorateStatus: cfg.DecorateStatus, Log: log.WithField("part", "proxy"),
	}
	if policy {
		reader := holds.OpenReader(cfg.RunDir)
		defer func() { _ = reader.Close() }() // read only; nothing can be lost
		opt.Holds = expiringHolds{Reader: reader, maximum: cfg.HoldMaximum, now: time.Now}
	}
	p, err := proxy.New(opt)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-p.Serving():
			ready()
		case <-ctx.Done():
		}
	}()
	return p.Run(ctx)
}

// expiringHolds ends holds after holdMaximum by itself: an evictor that is gone
// must not keep pods down for ever.
type expiringHolds struct {
	*holds.Reader
	maximum time.Duration
	now     func() time.Time
}

// Held implements proxy.Holds.
func (h expiringHolds) Held(uid string) (holds.Record, bool) { return h.valid(h.Reader.Held(uid)) }

// HeldSandbox implements proxy.Holds.
func (h expiringHolds) HeldSandbox(id string) (holds.Record, bool) {
	return h.valid(h.Reader.HeldSandbox(id))
}

func (h expiringHolds) valid(r holds.Record, ok bool) (holds.Record, bool) {
	if !ok || h.now().Sub(r.Decided) >= h.maximum {
		return holds.Record{}, false
	}
	return r, true
}
