package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// proxyGCPercent is GOGC of a process that only forwards.
const proxyGCPercent = 30

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

// runProxy runs the proxy until ctx ends. Without policy nothing is held and
// every new pod is admitted.
func (a *app) runProxy(ctx context.Context, lv *live, policy bool, log logrus.FieldLogger, ready func()) error {
	cfg := lv.config()
	opt := proxy.Options{
		Listen: cfg.Listen, Upstream: cfg.RuntimeEndpoint, EventsSocket: cfg.ProxySocket.Path,
		DecorateStatus: cfg.DecorateStatus, Log: log.WithField("part", "proxy"),
	}
	if policy {
		reader := holds.OpenReader(cfg.RunDir)
		defer func() { _ = reader.Close() }() // read only; nothing can be lost
		opt.Holds = expiringHolds{Reader: reader, maximum: func() time.Duration { return lv.config().HoldMaximum }, now: time.Now}
		opt.Admission = admissionPolicy(lv, reader, askFacts(cfg.AdminSocket, opt.Log))
	}
	p, err := proxy.New(opt)
	if err != nil {
		return err
	}
	detach, err := lv.attach(func(cfg config.Config) error {
		p.SetDecorateStatus(cfg.DecorateStatus)
		return nil
	})
	if err != nil {
		return err
	}
	defer detach()
	go func() {
		select {
		case <-p.Serving():
			ready()
		case <-ctx.Done():
		}
	}()
	return p.Run(ctx)
}

// admissionPolicy is what the proxy asks about new pods.
func admissionPolicy(lv *live, reader *holds.Reader, facts func(context.Context, string) proxy.PodFacts) *proxy.Admission {
	return &proxy.Admission{
		Conditions: reader.Conditions,
		BestEffort: bestEffort,
		Facts:      facts,
		Protected: func(namespace string, labels map[string]string) bool {
			cfg := lv.config()
			if slices.Contains(cfg.ProtectedNamespaces, namespace) {
				return true
			}
			if !slices.Contains(cfg.TrustedNamespaces, namespace) {
				return false
			}
			for k, v := range cfg.ProtectedPodLabels {
				if got, ok := labels[k]; ok && got == v {
					return true
				}
			}
			return false
		},
	}
}

// bestEffort says whether a cgroup parent is that of a pod that asked for
// nothing. What is no pod's own cgroup tells nothing.
func bestEffort(cgroupParent string) bool {
	path, err := cgroupfs.ResolveParent(cgroupParent)
	if err != nil {
		return false
	}
	pod, ok := cgroupfs.ParsePodPath(path)
	return ok && pod.QoS == cgroupfs.BestEffort
}

// expiringHolds ends holds after holdMaximum by itself: an evictor that is gone
// must not keep pods down for ever.
type expiringHolds struct {
	*holds.Reader
	maximum func() time.Duration
	now     func() time.Time
}

// Held implements proxy.Holds.
func (h expiringHolds) Held(uid string) (holds.Record, bool) { return h.valid(h.Reader.Held(uid)) }

// HeldSandbox implements proxy.Holds.
func (h expiringHolds) HeldSandbox(id string) (holds.Record, bool) {
	return h.valid(h.Reader.HeldSandbox(id))
}

func (h expiringHolds) valid(r holds.Record, ok bool) (holds.Record, bool) {
	if !ok || h.now().Sub(r.Decided) >= h.maximum() {
		return holds.Record{}, false
	}
	return r, true
}

// Problem is what is wrong with the file, its conditions included.
func (h expiringHolds) Problem() error {
	return errors.Join(h.Reader.Problem(), h.ConditionsProblem())
}
